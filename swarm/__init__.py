"""The swarm library; see docs/ARCHITECTURE.md for the map."""
