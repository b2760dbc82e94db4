"""``python -m peer`` is the ``swarm`` command."""

from peer.main import main

main()
