"""Which of several nodes in one home to ask."""

from collections.abc import Sequence
from typing import Final

from swarm.services.home import Running

_PREFERRED: Final = ("author", "peer", "bootstrap")
"""Beginnings of names in the order of preference: the nearer to the jobs, the more a node has heard."""


def nearest(nodes: Sequence[Running]) -> Running:
    """The one that knows most of jobs, judged by its name."""
    return min(nodes, key=_preference)


def _preference(node: Running) -> tuple[int, str]:
    fits = (rank for rank, beginning in enumerate(_PREFERRED) if node.name.startswith(beginning))
    return next(fits, len(_PREFERRED)), node.name
