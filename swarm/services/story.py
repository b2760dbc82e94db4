"""What happened lately, in sentences: the ``events`` of ``GET /status`` and the log say the same."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from swarm.clock import Clock
from swarm.ids import Digest, PeerId, short
from swarm.log import Log
from swarm.services.blocks import BlockExchange
from swarm.services.status.document import EventKind

KEPT: Final = 200
"""Events kept in memory; a night of a peer's life is a few dozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event. ``wall`` is seconds since 1970 UTC; ``peer`` is whom it is about, or empty."""

    wall: float
    kind: EventKind
    sentence: str
    peer: str = ""


class Story:
    """The last events of this node, newest last."""

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._events: deque[Happening] = deque(maxlen=KEPT)
        self.listeners: list[Callable[[Happening], None]] = []
        """Hear of every event as it is told."""

    def tell(self, kind: EventKind, sentence: str, *, peer: PeerId | None = None) -> None:
        """Add an event and log it; the peer as a field where the sentence does not name it already."""
        event = Happening(wall=self._clock.wall(), kind=kind, sentence=sentence, peer=peer or "")
        self._events.append(event)
        level = self._log.warning if kind in {"trouble", "refused"} else self._log.info
        level(sentence, **({"peer": peer} if peer and short(peer) not in sentence else {}))
        for listener in self.listeners:
            listener(event)

    def follow(self, exchange: BlockExchange) -> None:
        """Tell what goes wrong with blocks: in the store, on whichever thread, and by peers that lie."""
        later = asyncio.get_running_loop().call_soon_threadsafe

        def lied(peer: PeerId, block: Digest) -> None:
            what = f"peer {short(peer)} sent other bytes for block {short(block)}"
            self.tell("trouble", f"{what}: its link is closed, and others are asked", peer=peer)

        def troubled(sentence: str) -> None:
            later(self.tell, "trouble", sentence)

        exchange.on_liar, exchange.store.on_trouble = lied, troubled

    def events(self) -> tuple[Happening, ...]:
        """All that is kept, oldest first."""
        return tuple(self._events)
