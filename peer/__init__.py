"""The node program: configuration, the status endpoint and the ``swarm`` command."""
