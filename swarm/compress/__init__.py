"""Codecs: tensors to bytes and back."""
