"""The messages of the protocol: one module per flow, one registry of numbers (``registry``)."""
