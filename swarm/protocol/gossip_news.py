"""What is new and has still to be told to a few neighbours."""

from collections.abc import Iterable
from typing import Final

from swarm.errors import LocalError
from swarm.ids import PeerId
from swarm.protocol.gossip_self import REPEAT_SECONDS
from swarm.protocol.gossip_store import Known
from swarm.wire.limits import MAX_GOSSIP_SUMMARY

SPREAD_SECONDS: Final = 3.0
"""For so long news is gathered before it is told: the time of a hop."""


class News:
    """Records by key, and credentials by name, with the time (elapsed) from which on each may be told."""

    def __init__(self) -> None:
        self._due: dict[bytes, float] = {}
        self._names: dict[bytes, None] = {}
        self._told: dict[bytes, float] = {}
        """When a record of the last REPEAT_SECONDS was told."""
        self._sources: dict[bytes, PeerId] = {}
        self.tell_at = float("inf")

    def add(self, known: Known, source: PeerId | None, *, now: float) -> None:
        """A record is new here; ``source`` gave it. That a peer departs is told without delay."""
        due = now + SPREAD_SECONDS
        if not known.record.departed:
            earlier = self._told.get(known.key, -float("inf")) + REPEAT_SECONDS
            due = min(self._due.get(known.key, float("inf")), max(due, earlier))
        self._due[known.key] = due
        self.tell_at = min(self.tell_at, due)
        self._sources.pop(known.key, None)
        if source is not None:
            self._sources[known.key] = source

    def add_name(self, name: bytes, *, now: float) -> None:
        """Credentials are new here."""
        self._names[name] = None
        self.tell_at = min(self.tell_at, now + SPREAD_SECONDS)

    def discard(self, keys: Iterable[bytes]) -> None:
        """These peers are forgotten."""
        for key in keys:
            self._due.pop(key, None)
            self._sources.pop(key, None)

    def take(self, *, now: float) -> tuple[dict[bytes, PeerId | None], list[bytes]]:
        """What is due, keys with who gave each, and names; it is news no longer."""
        keys = [key for key, at in self._due.items() if at <= now][:MAX_GOSSIP_SUMMARY]
        names = list(self._names)[:MAX_GOSSIP_SUMMARY]
        self._told = {key: at for key, at in self._told.items() if at > now - REPEAT_SECONDS}
        for key in keys:
            self._told[key] = now
            del self._due[key]
        for name in names:
            del self._names[name]
        self.tell_at = min([now if self._names else float("inf"), *self._due.values()])
        return {key: self._sources.pop(key, None) for key in keys}, names

    def check(self) -> None:
        """Raise LocalError where something would never be told."""
        if self._due and self.tell_at > min(self._due.values()):
            raise LocalError("gossip: there is news that will be told late")
        if self._names and self.tell_at == float("inf"):
            raise LocalError("gossip: there are credentials that will not be told")
        if not self._sources.keys() <= self._due.keys():
            raise LocalError("gossip: it is remembered who gave what is no news")
