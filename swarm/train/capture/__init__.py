"""Capture: an ``nn.Module`` and its loss become an OP-DAG in functional form (decision D4).

The way of a model through this package: ``tracing`` runs ``torch.export`` on the module with its loss under
watch (``watch``), and puts the result in functional form; ``gradients`` asks autograd which values need a
gradient; ``translation`` writes the graph as data. ``places`` names modules and source lines for people.
"""

from swarm.train.capture.api import Captured, capture
from swarm.train.capture.modes import Mode, set_mode
from swarm.train.capture.tracing import Loss

__all__ = ["Captured", "Loss", "Mode", "capture", "set_mode"]
