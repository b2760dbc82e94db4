"""The tasks that join decisions to the network; services/training joins them to torch."""
