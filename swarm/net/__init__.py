"""Bytes between peers: TLS, links, the pool, and the in-memory twin."""
