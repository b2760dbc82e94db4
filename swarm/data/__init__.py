"""Blocks, datasets and the sampler."""
