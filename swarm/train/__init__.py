"""Capture, stage execution and the optimizer; the home of torch."""
