"""Which of several nodes in one home to ask."""

from collections.abc import Sequence
from typing import Final

from swarm.services.home import Running

_PREFERRED: Final = ("author", "peer", "bootstrap", "")
"""Roles in the order of preference: the nearer to the jobs, the more a node has heard of them."""


def nearest(nodes: Sequence[Running]) -> Running:
    """The one that knows most of jobs, judged by its role; the first by name among equals."""
    return min(nodes, key=lambda node: (_PREFERRED.index(node.role), node.name))
