"""Capture: an ``nn.Module`` and its loss become an OP-DAG in functional form (decision D4).

The way of a model through this package: ``wrapper`` puts the loss around the module, ``tracing`` runs
``torch.export`` on both under ``watch``, in functional form, ``signature`` reads what the program takes and
returns, ``gradients`` asks autograd which values need a gradient, and ``translation`` writes the graph as
data. ``calling`` says how a module is called, ``experts`` and ``ctc`` are what libraries and torch have in a
form that no graph can hold, and ``places`` names modules and source lines for people.
"""

from swarm.train.capture.api import Captured, capture
from swarm.train.capture.calling import Loss, Metric, loss_and_outputs
from swarm.train.capture.modes import Mode, set_mode

__all__ = ["Captured", "Loss", "Metric", "Mode", "capture", "loss_and_outputs", "set_mode"]
