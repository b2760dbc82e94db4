"""The roster: which of several links between two peers stays (decision D3).

There is at most one. Of the two peers, the one with the lower PeerId decides; the other accepts every link
and keeps the one that comes up. So both ends always agree, whatever order things happen in. The decider

- refuses an incoming link while its own call to that peer is past TLS: of two simultaneous calls, the one
  that the lower PeerId made wins;
- asks a link that it has for a sign of life before it refuses another: the other side may know better that
  the old one is dead.

A hello with another ``boot`` comes from another run of the program. Whoever has a link to the earlier run
asks it for a sign of life: if there is one, a second program runs under the same identity and is refused;
else it was a restart, and the new link takes the old one's place.

When all links are taken, a newcomer gets the place of a caller by the invite that has the most links, unless
its own has as many: one invite, in however many hands, does not shut out the others.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, NewType, assert_never

from swarm.errors import LocalError
from swarm.ids import PeerId
from swarm.wire.limits import MAX_LINKS
from swarm.wire.messages.hello import RefusalCode

LinkKey = NewType("LinkKey", int)
"""Names a link among all of this run; never used again."""

PROBE_SECONDS: Final = 3.0
"""A link that is asked for a sign of life counts as dead after this time; well within the hello's."""


@dataclass(frozen=True, slots=True)
class Called:
    """This peer's own call has passed TLS: ``peer`` answers there."""

    link: LinkKey
    peer: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduced:
    """The hello on ``link`` is good. ``boot`` names the run of the other program."""

    link: LinkKey
    peer: PeerId
    boot: bytes
    dialed: bool
    """Whether this peer made the call."""
    invite: str
    """By which the other peer is a member."""


@dataclass(frozen=True, slots=True)
class Risen:
    """``link`` is up: both sides have accepted."""

    link: LinkKey


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """``link`` has answered a probe."""

    link: LinkKey


@dataclass(frozen=True, slots=True)
class Gone:
    """``link`` has ended, or never came to be."""

    link: LinkKey


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The deadline may have passed."""


Event = Called | Introduced | Risen | SignOfLife | Gone | Elapsed


@dataclass(frozen=True, slots=True)
class Admit:
    """Accept the hello on ``link``."""

    link: LinkKey


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Refuse the hello on ``link``."""

    link: LinkKey
    code: RefusalCode
    sentence: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Close ``link``: another peer needs its place more."""

    link: LinkKey
    sentence: str


@dataclass(frozen=True, slots=True)
class AskForLife:
    """Probe ``link``."""

    link: LinkKey


@dataclass(frozen=True, slots=True)
class Replace:
    """Close ``link``: another has taken its place."""

    link: LinkKey
    sentence: str


Action = Admit | TurnAway | Dismiss | AskForLife | Replace

State = Literal["calling", "held", "accepted", "up"]


@dataclass(slots=True, kw_only=True)
class _Entry:
    peer: PeerId
    boot: bytes
    dialed: bool
    state: State
    invite: str = ""
    """Empty while it is not known."""
    until: float = float("inf")
    """While ``held``: when the link that was asked for a sign of life counts as dead."""


class Roster:
    """The links of one peer. ``handle`` is the only mutator."""

    def __init__(self, peer: PeerId, *, boot: bytes, limit: int = MAX_LINKS) -> None:
        self.peer = peer
        self.boot = boot
        self.limit = limit
        self._entries: dict[LinkKey, _Entry] = {}

    @property
    def deadline(self) -> float:
        """When :class:`Elapsed` is due."""
        return min((entry.until for entry in self._entries.values()), default=float("inf"))

    def handle(self, event: Event, *, now: float) -> list[Action]:
        """Take one event; returns what to do, in order."""
        match event:
            case Called():
                self._entries[event.link] = _Entry(peer=event.peer, boot=b"", dialed=True, state="calling")
                return []
            case Introduced():
                return self._introduced(event, now)
            case Risen():
                return self._risen(event.link)
            case SignOfLife():
                return self._alive(event.link)
            case Gone():
                return self._gone(event.link)
            case Elapsed():
                return self._elapsed(now)
            case _:
                assert_never(event)

    def check(self) -> None:
        """Raise LocalError where an invariant is broken."""
        for key, entry in self._entries.items():
            others = [other for k, other in self._entries.items() if k != key and other.peer == entry.peer]
            accepted = [other for other in others if other.state in {"accepted", "up"}]
            if entry.state == "up" and any(other.state == "up" for other in accepted):
                raise LocalError(f"roster: two links to {entry.peer} are up")
            if entry.state == "accepted" and accepted and self._decides(entry.peer):
                raise LocalError(f"roster: two links to {entry.peer} are accepted")
            if (entry.state == "held") != (entry.until < float("inf")):
                raise LocalError(f"roster: a link to {entry.peer} waits without a deadline")

    def __str__(self) -> str:
        counts = dict.fromkeys(("calling", "held", "accepted", "up"), 0)
        for entry in self._entries.values():
            counts[entry.state] += 1
        return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no links"

    def _decides(self, peer: PeerId) -> bool:
        return self.peer < peer

    def _introduced(self, event: Introduced, now: float) -> list[Action]:
        entry = _Entry(
            peer=event.peer, boot=event.boot, dialed=event.dialed, state="held", invite=event.invite
        )
        self._entries[event.link] = entry
        refusal = self._refusal(event)
        if refusal is not None:
            del self._entries[event.link]
            return [refusal]
        return self._make_room(event) + self._place(event, entry, now)

    def _place(self, event: Introduced, entry: _Entry, now: float) -> list[Action]:
        """Admit the new link, or hold it until the one that is there has answered."""
        existing = self._existing(event.peer)
        if existing is None or (self._entries[existing].boot == event.boot and not self._decides(event.peer)):
            entry.state = "accepted"
            return [Admit(event.link)]
        entry.until = now + PROBE_SECONDS
        return [AskForLife(existing)]

    def _refusal(self, event: Introduced) -> TurnAway | None:
        others = self._others(event)
        if event.peer == self.peer:
            sentence = (
                "the address is this peer's own"
                if event.boot == self.boot
                else "another program with this identity is running: stop one, or give this one --name"
            )
            return TurnAway(event.link, "duplicate", sentence)
        if any(entry.state == "held" for entry in others):
            return TurnAway(event.link, "duplicate", "another link from you is being looked at")
        calling = any(entry.state == "calling" for entry in others)
        if calling and not event.dialed and self._decides(event.peer):
            return TurnAway(event.link, "duplicate", "my own call to you takes the place of this one")
        if self._is_too_many(event) and self._dispensable(event.invite) is None:
            return TurnAway(event.link, "busy", f"I have {self.limit} links, and that is my limit")
        return None

    def _others(self, event: Introduced) -> list[_Entry]:
        """Other links with the same peer."""
        return [
            entry for key, entry in self._entries.items() if key != event.link and entry.peer == event.peer
        ]

    def _is_too_many(self, event: Introduced) -> bool:
        return len(self._entries) > self.limit and not self._others(event)

    def _make_room(self, event: Introduced) -> list[Action]:
        link = self._dispensable(event.invite) if self._is_too_many(event) else None
        if link is None:
            return []
        del self._entries[link]
        return [Dismiss(link, f"I have {self.limit} links, and your invite has more of them than another")]

    def _dispensable(self, invite: str) -> LinkKey | None:
        """The newest caller of the invite with the most, where ``invite`` has less even with one more."""
        callers = {
            key: entry.invite
            for key, entry in self._entries.items()
            if entry.state in {"accepted", "up"} and not entry.dialed
        }
        counts = Counter(callers.values())
        most, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
        if count <= counts[invite] + 1:
            return None
        return max(key for key, of in callers.items() if of == most)

    def _existing(self, peer: PeerId) -> LinkKey | None:
        """The accepted link to ``peer``; the one that is up, where there are two."""
        found = None
        for key, entry in self._entries.items():
            if entry.peer == peer and (entry.state == "up" or (entry.state == "accepted" and found is None)):
                found = key
        return found

    def _held(self, peer: PeerId) -> LinkKey | None:
        for key, entry in self._entries.items():
            if entry.peer == peer and entry.state == "held":
                return key
        return None

    def _risen(self, link: LinkKey) -> list[Action]:
        entry = self._entries.get(link)
        if entry is None or entry.state != "accepted":
            raise LocalError(f"roster: link {link} is up without being accepted")
        actions: list[Action] = []
        for key, other in list(self._entries.items()):
            if key != link and other.peer == entry.peer and other.state == "up":
                del self._entries[key]
                actions.append(Replace(key, "a newer link between us takes its place"))
        entry.state = "up"
        return actions + self._alive(link)

    def _alive(self, link: LinkKey) -> list[Action]:
        """``link`` lives, so what is held for its place is refused."""
        entry = self._entries.get(link)
        if entry is None:
            return []
        held = self._held(entry.peer)
        if held is None:
            return []
        same = self._entries.pop(held).boot == entry.boot
        sentence = (
            "there is a link between us already"
            if same
            else "another program with this identity is running: stop one, or give this one --name"
        )
        return [TurnAway(held, "duplicate", sentence)]

    def _gone(self, link: LinkKey) -> list[Action]:
        entry = self._entries.pop(link, None)
        if entry is None:
            return []
        held = self._held(entry.peer)
        if held is None or self._existing(entry.peer) is not None:
            return []
        return self._take(held)

    def _elapsed(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for key, entry in list(self._entries.items()):
            if entry.state == "held" and entry.until <= now:
                for other, old in list(self._entries.items()):
                    if old.peer == entry.peer and old.state in {"accepted", "up"}:
                        del self._entries[other]
                        actions.append(Replace(other, "it did not answer, and a newer link takes its place"))
                actions += self._take(key)
        return actions

    def _take(self, held: LinkKey) -> list[Action]:
        entry = self._entries[held]
        entry.state = "accepted"
        entry.until = float("inf")
        return [Admit(held)]
