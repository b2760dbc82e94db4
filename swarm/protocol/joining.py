"""The joining machine: whom to call to get into the swarm, what each answered, when to say so (decision D1).

::

    calling    nobody has been reached yet; addresses are called, again after pauses that double
    trying     the same, and it has been said that nobody answers, and what to do about it
    in         a link is up; only new neighbours are called, once

Whoever loses all links is ``calling`` again. An effort ends in a link, or within ``VERDICT_SECONDS`` in a
verdict.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never

from swarm.errors import LocalError

VERDICT_SECONDS: Final = 15.0
"""From the begin of an effort to its verdict. The DHT then has as long, and a join ends within 30 s."""

GRACE_SECONDS: Final = 3.0
"""After the last link was lost: its peer is called again first, where it was (``services.redialing``)."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
"""Between two calls of one address; each pause is about twice the one before."""

CALLS_AT_ONCE: Final = 16
MOST_ADDRESSES: Final = 64
"""Addresses that are called at the same time, and that are kept."""

SHOWN_ADDRESSES: Final = 3
"""Of so many addresses a sentence says what they answered; the status has all."""

_HEARSAY: Final = frozenset({"neighbour", "referral"})

LASTING: Final = frozenset(
    {"revoked", "invite-expired", "invite-used-up", "version", "clock", "bad-certificate"}
    | {"wrong-swarm", "unknown-authority"}
)
"""Refusals that calling again does not change."""

Source = Literal["invite", "neighbour", "referral", "remembered"]
"""How an address is known: from the invite, by multicast, from a full bootstrap node, from an earlier run."""

_RANKS: Final[dict[Source, int]] = {"invite": 0, "neighbour": 1, "referral": 2, "remembered": 3}
_INVITED: Final = frozenset({"invite", "remembered"})
"""Whose refusals end an effort: a stranger in this network does not get to do that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one numeric address of a called one answered.

    ``sentence`` has the address as its subject; ``code`` is that of a refusal, or empty.
    """

    address: str
    family: str
    """``IPv4`` or ``IPv6``; empty where the name gave no number."""
    sentence: str
    seconds: float
    code: str = ""

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """``address`` may lead into the swarm."""

    address: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A call of ``address`` has ended; with a link, or with these answers."""

    address: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Linked:
    """A link is up, whoever made the call."""


@dataclass(frozen=True, slots=True)
class Alone:
    """The last link has ended."""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The deadline may have passed."""


Event = Found | Answered | Linked | Alone | Elapsed


@dataclass(frozen=True, slots=True)
class Call:
    """Call ``address``."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """Say that nobody was reached. ``code`` is that of a refusal which calling again does not change."""

    sentence: str
    code: str


Action = Call | Conclude

State = Literal["calling", "trying", "in"]


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What is known of one address. Times are those of ``now``."""

    address: str
    source: Source
    due: float
    calling: bool = False
    calls: int = 0
    """Calls that have ended, since the effort began."""
    answers: tuple[Answer, ...] = field(default=())
    """Of the last call; none where it gave a link."""

    def __str__(self) -> str:
        if not self.answers:
            return f"{self.address} has not answered yet"
        text = "; ".join(map(str, self.answers))
        numeric = any(answer.address == self.address for answer in self.answers)
        return text if numeric else f"{self.address}: {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningStatistics:
    """Where joining is. ``since`` is when the effort began."""

    state: State
    since: float
    attempts: tuple[Attempt, ...]
    verdict: str

    @property
    def waiting(self) -> str:
        """What is waited for: the verdict, once there is one."""
        if self.verdict:
            return self.verdict
        if not self.attempts:
            return "a peer of the swarm in this network"
        shown = ", ".join(attempt.address for attempt in self.attempts[:SHOWN_ADDRESSES])
        return f"an answer from {shown}{' and others' if len(self.attempts) > SHOWN_ADDRESSES else ''}"


class JoiningMachine:
    """One node's way into its swarm. ``handle`` is the only mutator."""

    def __init__(self, *, now: float, spread: Callable[[float, float], float], listens: float = 0.0) -> None:
        """``spread`` draws a number between two (``Random.uniform``): nodes that start together spread out.

        ``listens`` is for how many seconds neighbours are listened for before a verdict; 0 where not.
        """
        self._spread = spread
        self._listens = listens
        self._state: State = "calling"
        self._began = now
        self._attempts: dict[str, Attempt] = {}
        self._verdict = ""
        self._now = now

    @property
    def state(self) -> State:
        """The state; see the module."""
        return self._state

    @property
    def calls(self) -> int:
        """Calls under way."""
        return sum(attempt.calling for attempt in self._attempts.values())

    @property
    def deadline(self) -> float:
        """When :class:`Elapsed` is due."""
        dues = [attempt.due for attempt in self._callable()] if self.calls < CALLS_AT_ONCE else []
        if self._state == "calling":
            dues += [self._began + VERDICT_SECONDS]
            dues += [moment for moment in (self._began + self._listens,) if moment > self._now]
        return min(dues, default=float("inf"))

    def handle(self, event: Event, *, now: float) -> list[Action]:
        """Take one event; returns what to do, in order."""
        self._now = now
        match event:
            case Found():
                self._found(event, now)
            case Answered():
                self._answered(event, now)
            case Linked():
                self._state, self._verdict = "in", ""
            case Alone():
                if self._state == "in":
                    self._begin_anew(now + GRACE_SECONDS)
            case Elapsed():
                pass
            case _:
                assert_never(event)
        return self._call_those_due(now) + self._conclude(now)

    def statistics(self) -> JoiningStatistics:
        """Where it is; addresses by their source."""
        attempts = tuple(sorted(self._attempts.values(), key=_rank))
        return JoiningStatistics(
            state=self._state, since=self._began, attempts=attempts, verdict=self._verdict
        )

    def check(self) -> None:
        """Raise LocalError where an invariant is broken."""
        faults = (
            (self.calls > CALLS_AT_ONCE, "too many calls at once"),
            (len(self._attempts) > MOST_ADDRESSES, "too many addresses"),
            (bool(self._verdict) != (self._state == "trying"), "a verdict at the wrong time"),
            (any(one.calls < 0 or one.due != one.due for one in self._attempts.values()), "a wrong count"),
        )
        for wrong, sentence in faults:
            if wrong:
                raise LocalError(f"{self}: {sentence}")

    def __str__(self) -> str:
        return f"joining: {self._state}, {self.calls} of {len(self._attempts)} addresses are being called"

    def _callable(self) -> list[Attempt]:
        """Those that may be called in this state, when they are due."""
        waiting = self._idle()
        if self._state == "in":
            return [one for one in waiting if one.source == "neighbour" and not one.calls]
        return waiting

    def _idle(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.calling]

    def _found(self, event: Found, now: float) -> None:
        if event.address not in self._attempts and self._has_room():
            self._attempts[event.address] = Attempt(address=event.address, source=event.source, due=now)

    def _has_room(self) -> bool:
        """Make some, where there is none, by forgetting what others said: where nobody answered, then what
        was referred to first."""
        if len(self._attempts) >= MOST_ADDRESSES:
            hearsay = [one for one in self._idle() if one.source in _HEARSAY]
            referred = (one for one in hearsay if one.source == "referral")
            useless = next((one for one in hearsay if one.answers), next(referred, None))
            if useless is not None:
                del self._attempts[useless.address]
        return len(self._attempts) < MOST_ADDRESSES

    def _answered(self, event: Answered, now: float) -> None:
        attempt = self._attempts.get(event.address)
        if attempt is None or not attempt.calling:
            raise LocalError(f"{event.address} was not being called")
        attempt.calling = False
        attempt.calls += 1
        attempt.answers = event.answers
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(attempt.calls - 1, 10), LONGEST_PAUSE_SECONDS)
        attempt.due = now + pause * self._spread(0.75, 1.25)

    def _begin_anew(self, begin: float) -> None:
        self._state, self._began = "calling", begin
        for attempt in self._attempts.values():
            if attempt.calls or attempt.calling:
                attempt.due, attempt.calls, attempt.answers = begin, 0, ()

    def _call_those_due(self, now: float) -> list[Action]:
        due = sorted(
            (one for one in self._callable() if one.due <= now), key=lambda one: (_rank(one), one.due)
        )
        chosen = due[: CALLS_AT_ONCE - self.calls]
        for attempt in chosen:
            attempt.calling = True
        return [Call(attempt.address) for attempt in chosen]

    def _conclude(self, now: float) -> list[Action]:
        if self._state != "calling" or not self._is_over(now):
            return []
        attempts = sorted(self._attempts.values(), key=_rank)
        code = _lasting_code(attempts)
        self._state, self._verdict = "trying", verdict_on(attempts, listened=self._listens > 0)
        return [Conclude(sentence=self._verdict, code=code)]

    def _is_over(self, now: float) -> bool:
        tried = all(attempt.calls for attempt in self._attempts.values())
        return now >= self._began + VERDICT_SECONDS or (tried and now >= self._began + self._listens)


def verdict_on(attempts: Sequence[Attempt], *, listened: bool) -> str:
    """One line that says what every address answered, refusals first and each once, and what to do."""
    if not attempts:
        nobody = " and no peer of the swarm answers in this network" if listened else ""
        return (
            f"the invite has no address in it{nobody}: "
            "run swarm bootstrap with it, and use the invite that prints"
        )
    refused = [one for one in attempts if any(answer.code for answer in one.answers)]
    told = _by_code(refused) + [one for one in attempts if one not in refused]
    text = "; ".join(map(str, told[:SHOWN_ADDRESSES]))
    more = f"; and {len(told) - SHOWN_ADDRESSES} more addresses" if len(told) > SHOWN_ADDRESSES else ""
    if refused:
        return text + more
    return (
        f"no bootstrap node answers: {text}{more}: check this machine's network, start a bootstrap node "
        "there, or ask for an invite with other addresses"
    )


def _by_code(refused: Sequence[Attempt]) -> list[Attempt]:
    """The first that was refused for each reason."""
    codes = [frozenset(answer.code for answer in one.answers) for one in refused]
    return [one for place, one in enumerate(refused) if codes[place] not in codes[:place]]


def _lasting_code(attempts: Sequence[Attempt]) -> str:
    """The refusal that says that calling again is in vain; empty where it may not be."""
    codes = (answer.code for one in attempts if one.source in _INVITED for answer in one.answers)
    return next((code for code in codes if code in LASTING), "")


def _rank(attempt: Attempt) -> int:
    return _RANKS[attempt.source]
