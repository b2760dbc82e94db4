"""The block machine: who is asked for which block, when another is asked, and when a seeker is told no.

A *seeker* is one call that waits for blocks; a *want* is one block that seekers wait for, shared among them::

    queued     to be asked for, of the source that is likely to deliver it first, once one has room
    asked      of one source; queued again when that lacks it, is lost, or lets the deadline pass
    keeping    its bytes came; their hash is being computed. Queued again where it is another one
    starving   no source is left that has not failed it; looked at again with every poll

A source that lacked a block may have it later, so it is asked again, ever more rarely. A seeker is given up
when a want starves for all of its patience; a failure of a source that had not failed it before starts that
time again. Blocks are immutable and named by their hash, so an answer that comes too late is still good.
A peer that sent other bytes for a block is asked for nothing more, on whichever link, as long as anybody here
seeks anything; what becomes of it in the long run is for ``swarm.protocol.trust``.
"""

from dataclasses import dataclass
from typing import Final, assert_never

from swarm.errors import LocalError, RemoteProtocolError
from swarm.ids import PeerId, short
from swarm.protocol.blocks_events import (
    Action,
    Ask,
    BlockKept,
    BlockWrong,
    Complete,
    Drop,
    Event,
    Forget,
    GiveUp,
    Keep,
    KeepFailed,
    LookForSources,
    MissingArrived,
    ReplyArrived,
    ReplyRefused,
    Seek,
    SeekerNumber,
    Source,
    SourceLost,
    SourceNumber,
    SourcesSeen,
    Tick,
)
from swarm.protocol.blocks_sources import WINDOW, Asked, SourceState, quickest
from swarm.protocol.blocks_wants import Want, Wants
from swarm.wire.limits import KIB

POLL_SECONDS: Final = 0.5
"""How often a seeker's sources are looked for, and starving wants looked at again."""

FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 8.0
"""A source that lacked a block is asked again after the first of these, doubling up to the last."""

GENTLE_BYTES: Final = 256 * KIB
"""What gentle seekers ask for at a time, of all sources together: one block, or some small ones. Each source
that sends takes a share of the downlink from whatever else is under way on it."""

_LIED: Final = "sent other bytes"
_NAMED: Final = 6
"""Peers that a sentence names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStatistics:
    """What is wanted, how much of it is asked for, and of how many."""

    wanted: int
    asked: int
    sources: int


class BlockMachine:
    """See the module. ``handle`` is the only mutator; call it again at ``deadline``."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self._books = Wants()
        self._sources: dict[SourceNumber, SourceState] = {}
        self._liars: set[PeerId] = set()
        self._requests = 0
        self._poll = 0.0

    def most_bytes(self, source: SourceNumber, request: int) -> int | None:
        """The most bytes that the answer to an open request may have; None where it is not open."""
        state = self._sources.get(source)
        asked = state.find(request) if state is not None else None
        return None if asked is None else asked.size

    def handle(self, event: Event, *, now: float) -> list[Action]:
        """Take one event; returns what to do, in order.

        Raises RemoteProtocolError for an answer to something that its sender was not asked.
        """
        actions = self._take(event, now)
        self._expire(now)
        if now >= self._poll:
            self._poll = now + POLL_SECONDS
            self._sort(now)
            actions += self._give_up(now)
            actions += [LookForSources(seeker=number) for number in self._books.seekers]
        actions += self._dispatch(now)
        self._arm()
        return actions

    def _take(self, event: Event, now: float) -> list[Action]:  # noqa: C901, PLR0911 - a table
        match event:
            case Seek():
                return self._seek(event, now)
            case SourcesSeen():
                self._see(event, now)
                return []
            case Forget():
                self._books.forget(event.seeker)
                return []
            case ReplyArrived():
                return self._replied(event, now)
            case ReplyRefused():
                self._lacking(event, "sent too many bytes", now)
                return []
            case MissingArrived():
                self._lacking(event, "lacks it", now)
                return []
            case BlockKept():
                return [Complete(seeker=number) for number in self._books.fulfil(event.digest)]
            case BlockWrong():
                self._wrong(event, now)
                return []
            case KeepFailed():
                return self._unkept(event)
            case SourceLost():
                self._lost(event.source, now)
                return []
            case Tick():
                return []
            case _:
                assert_never(event)

    # Seekers.

    def _seek(self, event: Seek, now: float) -> list[Action]:
        if not event.blocks:
            return [Complete(seeker=event.seeker)]
        self._books.seek(event)
        self._poll = min(self._poll, now)
        return []

    def _see(self, event: SourcesSeen, now: float) -> None:
        seeker = self._books.seekers.get(event.seeker)
        if seeker is None:
            return
        for source in event.sources:
            self._sources.setdefault(source.number, SourceState(source))
        before, seeker.sources = seeker.sources, tuple(source.number for source in event.sources)
        if set(seeker.sources) - set(before):
            self._sort(now)

    def _unkept(self, event: KeepFailed) -> list[Action]:
        want = self._books.wants.get(event.digest)
        told = tuple(want.seekers) if want is not None else ()
        for number in told:
            self._books.forget(number)
        return [GiveUp(seeker=number, sentence=event.sentence) for number in told]

    def _give_up(self, now: float) -> list[Action]:
        told: dict[SeekerNumber, str] = {}
        for number, want in self._books.impatient(now):
            told.setdefault(number, self._sentence(want, self._books.seekers[number].patience))
        for number in told:
            self._books.forget(number)
        return [GiveUp(seeker=number, sentence=sentence) for number, sentence in told.items()]

    def _sentence(self, want: Want, patience: float) -> str:
        failed = dict(want.failed)
        for state in self._linked(want):
            if state.source.peer in self._liars:
                failed[state.source.peer] = _LIED
            elif state.overdue:
                failed.setdefault(state.source.peer, "did not answer in time")
        named = [f"{short(peer)} {why}" for peer, why in failed.items()]
        shown = ", ".join(named[:_NAMED]) + (
            f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        )
        cause = shown or "no peer that may have it is linked"
        return f"block {short(want.digest)} cannot be fetched: {cause} (waited {patience:.0f} s for a source)"

    # Sources and their answers.

    def _replied(self, event: ReplyArrived, now: float) -> list[Action]:
        asked = self._close(event.source, event.request, event.size, now)
        want = self._books.wants.get(asked.digest)
        if want is None or want.keeping:
            return [Drop()]
        want.keeping = True
        self._books.hold(want)
        return [Keep(source=event.source, digest=asked.digest)]

    def _lacking(self, event: MissingArrived | ReplyRefused, why: str, now: float) -> None:
        asked = self._close(event.source, event.request, 0, now)
        want = self._books.wants.get(asked.digest)
        if want is not None:
            self._blame(want, self._sources[event.source].source, why, now)

    def _close(self, number: SourceNumber, request: int, size: int, now: float) -> Asked:
        state = self._sources.get(number)
        asked = state.answer(request, size, now) if state else None
        if asked is None:
            raise RemoteProtocolError("it answered a request for a block that it was not sent")
        want = self._books.find(asked.digest, request)
        if want is not None:
            want.request = None
            self._books.requeue(want)
        return asked

    def _wrong(self, event: BlockWrong, now: float) -> None:
        want = self._books.wants.get(event.digest)
        if want is None:
            return
        want.keeping = False
        self._books.requeue(want)
        self._liars.add(event.peer)
        if event.source in self._sources:
            self._blame(want, self._sources[event.source].source, _LIED, now)

    def _lost(self, number: SourceNumber, now: float) -> None:
        state = self._sources.pop(number, None)
        if state is None:
            return
        for request, asked in state.open.items():
            self._break_off(request, asked, state.source, "was lost", now)
        for want in self._books.wants.values():
            want.tries.pop(number, None)
            want.again.pop(number, None)

    def _expire(self, now: float) -> None:
        for state in self._sources.values():
            for request, asked in state.expire(now):
                self._break_off(request, asked, state.source, "did not answer in time", now)

    def _break_off(self, request: int, asked: Asked, source: Source, why: str, now: float) -> None:
        want = self._books.find(asked.digest, request)
        if want is not None:
            want.request = None
            want.failed.pop(source.peer, None)  # it had not lacked the block: its failure is news
            self._books.requeue(want)
            self._blame(want, source, why, now)

    def _blame(self, want: Want, source: Source, why: str, now: float) -> None:
        """The source failed this want. Only a failure that is news starts the time of patience again."""
        if source.peer not in want.failed:
            want.starved = now
        tries = want.tries.get(source.number, 0)
        want.tries[source.number] = tries + 1
        want.again[source.number] = now + min(FIRST_RETRY_SECONDS * 2**tries, LAST_RETRY_SECONDS)
        want.failed[source.peer] = why

    # Asking.

    def _sort(self, now: float) -> None:
        """Part the wants that have a source to hope for from those that starve."""
        for want in self._books.waiting():
            hopes = self._hopes(want, now)
            self._books.sort(want, hopeful=bool(hopes))
            if any(state.source.number not in want.tries for state in hopes):
                want.starved = None
            elif want.starved is None:
                want.starved = now

    def _dispatch(self, now: float) -> list[Action]:
        asks: list[Action] = []
        gently = self._gently_asked()
        for want in self._books.queued() if self._has_room() else ():
            size = want.size if self._books.is_gentle(want) else 0
            if size and gently and gently + size > GENTLE_BYTES:
                continue
            ready = [state for state in self._hopes(want, now) if state.has_room]
            if ready:
                asks.append(self._ask(want, ready, now))
                gently += size
                if not self._has_room():
                    break
        return asks

    def _ask(self, want: Want, ready: list[SourceState], now: float) -> Action:
        chosen = quickest(ready, want.size, want.tries)
        self._requests += 1
        want.request = self._requests
        self._books.hold(want)
        chosen.ask(want.request, want.digest, want.size, now)
        return Ask(source=chosen.source.number, request=want.request, digest=want.digest)

    def _gently_asked(self) -> int:
        """Bytes that are asked for in no hurry."""
        open_ones = [item for state in self._sources.values() for item in state.open.items()]
        wants = [self._books.find(asked.digest, request) for request, asked in open_ones]
        return sum(want.size for want in wants if want is not None and self._books.is_gentle(want))

    def _has_room(self) -> bool:
        return any(state.has_room for state in self._sources.values())

    def _linked(self, want: Want) -> list[SourceState]:
        return [self._sources[number] for number in self._books.sources(want) if number in self._sources]

    def _hopes(self, want: Want, now: float) -> list[SourceState]:
        """The sources that may serve the want, with room or not."""
        return [
            state
            for state in self._linked(want)
            if not state.overdue
            and state.source.peer not in self._liars
            and now >= want.again.get(state.source.number, 0.0)
        ]

    def _arm(self) -> None:
        due = [asked.deadline for state in self._sources.values() for asked in state.open.values()]
        if not self._books.seekers:
            self._liars.clear()
        self.deadline = min([*due, self._poll]) if self._books.seekers else min(due, default=None)

    def statistics(self) -> BlockStatistics:
        """What is wanted now."""
        wants = self._books.wants.values()
        asked = sum(want.request is not None for want in wants)
        return BlockStatistics(wanted=len(wants), asked=asked, sources=len(self._sources))

    def check(self) -> None:
        """Raise LocalError unless the machine's invariants hold."""
        self._books.check()
        asked = {
            request: entry.digest for state in self._sources.values() for request, entry in state.open.items()
        }
        for want in self._books.wants.values():
            if want.request is not None and asked.get(want.request) != want.digest:
                raise LocalError(f"request {want.request} is not open: {self}")
        if any(len(state.open) > WINDOW for state in self._sources.values()):
            raise LocalError(f"a source has more than {WINDOW} requests open: {self}")

    def __str__(self) -> str:
        facts = self.statistics()
        return f"{facts.wanted} blocks wanted, {facts.asked} asked of {facts.sources} sources"
