"""``swarm demo``: a whole swarm on one machine, as real processes, from nothing to trained weights."""
