"""Peers that cannot run all of a job's operators: which, and what is said of it (decision D4)."""

from collections.abc import Iterable, Sequence
from typing import Final

from swarm.graph.evaluation import beside
from swarm.graph.needs import needs
from swarm.graph.routing import sourceless
from swarm.graph.stage import Stage
from swarm.ids import short
from swarm.schedule.workload import PeerOffer, Workload

_SHOWN_PEERS: Final = 4
_SHOWN_NAMES: Final = 3
_SHOWN_TEXT: Final = 80


def job_needs(workload: Workload) -> list[frozenset[str]]:
    """What a peer has to have for each operator of the training graph and what is evaluated beside it."""
    found = [set(names) for names in needs(workload.graph)]
    evaluation = workload.evaluation
    free, places = sourceless(evaluation), beside(workload.graph, evaluation)
    for index, names in enumerate(needs(evaluation)):
        if index not in free:
            found[places[index]] |= names
    return [frozenset(names) for names in found]


def unable(workload: Workload, evaluations: Sequence[Stage], holders: Sequence[PeerOffer]) -> set[int]:
    """The stages whose holder cannot run its part of the evaluation graph, by index: see :func:`beside`."""
    needed = needs(workload.evaluation)
    return {
        index
        for index, (stage, holder) in enumerate(zip(evaluations, holders, strict=True))
        if any(not holder.lacks.isdisjoint(needed[operator]) for operator in stage.operators)
    }


def explain_lacking(offers: Iterable[PeerOffer]) -> list[str]:
    """A sentence on each of these peers that cannot run everything; a few at most."""
    limited = [offer for offer in offers if offer.lacks]
    told = [f"peer {short(offer.peer)} cannot run {_listed(offer.lacks)}" for offer in limited[:_SHOWN_PEERS]]
    more = len(limited) - len(told)
    return [*told, f"{more} more peers cannot run everything"] if more else told


def _listed(names: frozenset[str]) -> str:
    shown = [name[:_SHOWN_TEXT] for name in sorted(names)[:_SHOWN_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
