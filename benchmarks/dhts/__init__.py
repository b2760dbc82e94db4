"""Swarms of several programs that find records, driven alike."""
