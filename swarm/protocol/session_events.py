"""The words of the session machine (``swarm.protocol.session``): its events and its actions."""

from dataclasses import dataclass
from typing import Literal

from swarm.wire.frames import CloseCode
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Accept, Hello, RefusalCode


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Why a link ended: who ended it, a code for programs, a sentence for people.

    ``code`` is a RefusalCode, the name of a CloseCode in lower case, or ``lost`` or ``silent``.
    """

    by: Literal["us", "them", "network"]
    code: str
    sentence: str
    refusal: bool = False
    """Whether it was refused, before it was up."""

    def __str__(self) -> str:
        """With the other side as its subject."""
        match self.by:
            case "network":
                return self.sentence
            case "us" if self.refusal:
                return f"was refused: {self.sentence}"
            case "us" if self.code == "protocol":
                return f"broke the protocol: {self.sentence}"
            case "us":
                return f"was hung up on: {self.sentence}"
            case "them" if self.refusal:
                return f"refused this peer: {self.sentence}"
            case "them" if self.code == "protocol":
                return f"says that this peer broke the protocol: {self.sentence}"
            case _:
                return f"left: {self.sentence}" if self.sentence else "left"


@dataclass(frozen=True, slots=True)
class Received:
    """``count`` bytes were put at the start of the view that ``Session.reading`` gave."""

    count: int


@dataclass(frozen=True, slots=True)
class Writable:
    """The channel takes another frame. ``unsent`` bytes of earlier ones wait in it still."""

    unsent: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline may have passed."""


@dataclass(frozen=True, slots=True)
class Post:
    """Send a message. ``key`` names the sending from now on; no two may share one.

    The bytes of ``payload`` must not change until it is sent.
    """

    key: int
    message: Message
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Withdraw:
    """What was posted under ``key`` need not be sent any more."""

    key: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """The payload of an :class:`Offered` stream is not wanted; the sentence tells its sender why."""

    stream: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The hello under :class:`Judge` was good."""

    accept: Accept


@dataclass(frozen=True, slots=True)
class Refuse:
    """The hello under :class:`Judge` was not good."""

    code: RefusalCode
    sentence: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the other side for a sign of life now; :class:`Answered` follows if it gives one."""


@dataclass(frozen=True, slots=True)
class Close:
    """End the link in good order. Unfinished payloads are abandoned."""

    code: CloseCode
    sentence: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The channel ended, and why. ``code`` is that of a refusal where TLS was the one to refuse."""

    sentence: str
    code: str = ""


Event = Received | Writable | Tick | Post | Withdraw | Abandon | Welcome | Refuse | Probe | Close | Lost


@dataclass(frozen=True, slots=True)
class Judge:
    """Decide on the other side's hello: answer with :class:`Welcome` or :class:`Refuse`."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class Up:
    """Both sides have accepted; ``accept`` is theirs."""

    accept: Accept


@dataclass(frozen=True, slots=True)
class Offered:
    """The other side begins a payload of ``size`` bytes. :class:`Abandon` it now, or it is received."""

    stream: int
    message: Message
    size: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """A whole message has arrived; ``payload`` is empty where it has none, and owned by the receiver."""

    message: Message
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Write:
    """Give these bytes to the channel, ``head`` first."""

    head: bytes
    body: memoryview


@dataclass(frozen=True, slots=True)
class Sent:
    """The last byte of what was posted under ``key`` has been given to the channel."""

    key: int


@dataclass(frozen=True, slots=True)
class Unwanted:
    """The other side does not want what was posted under ``key``."""

    key: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The other side has answered the last :class:`Probe`."""


@dataclass(frozen=True, slots=True)
class Down:
    """The link carries nothing any more, and why. At most last words are still to be written."""

    end: End


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing is left to do but to let the channel send what it has, and drop it."""


Action = Judge | Up | Offered | Deliver | Write | Sent | Unwanted | Answered | Down | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """Where a link stands. Rates in bytes a second, 0 where nothing was measured yet; times in seconds."""

    state: str
    bytes_sent: int
    bytes_received: int
    payload_sent: int
    payload_received: int
    rtt: float
    """Smoothed round-trip time; 0 before the first answer."""
    rate_up: float
    rate_down: float
    since: float
    """Elapsed time at which the link came up; before that, at which it began."""
    last_heard: float
    sending: int
    """Payloads posted and not yet sent."""
    receiving: int
    """Payloads begun and not yet received."""
