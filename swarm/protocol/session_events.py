"""The words of the session machine (``swarm.protocol.session``): its events and its actions.

They are msgspec structures because several are made for every frame, and a frozen dataclass takes five times
as long to make (tried). To find that one is not of a class takes ``isinstance`` ten times as long as ``type``
(tried): those that most actions are asked for are final.
"""

from dataclasses import dataclass
from typing import Final, Literal, final

from msgspec import Struct

from swarm.wire.frames import CloseCode
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Accept, Hello, RefusalCode

NO_BYTES: Final = memoryview(b"")
"""The payload of a message that has none."""


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
        if self.by == "network":
            return self.sentence
        words = _WORDS.get((self.by, "refusal" if self.refusal else self.code), _OTHER_WORDS[self.by])
        return f"{words}: {self.sentence}" if self.sentence else words


_WORDS: Final = {
    ("us", "refusal"): "was refused, and told",
    ("us", "protocol"): "broke the protocol",
    ("us", "revoked"): "was hung up on, and told",
    ("them", "refusal"): "refused this peer",
    ("them", "protocol"): "says that this peer broke the protocol",
    ("them", "revoked"): "hung up",
}
_OTHER_WORDS: Final = {"us": "was hung up on", "them": "left"}


@final
class Received(Struct, frozen=True, gc=False):
    """``count`` bytes were put at the start of where the inbox is ``reading``; 0 where it ``has_more``."""

    count: int


@final
class Writable(Struct, frozen=True, gc=False):
    """The channel takes another frame. ``unsent`` bytes of earlier ones wait in it still."""

    unsent: int


class Tick(Struct, frozen=True, gc=False):
    """The deadline may have passed."""


@final
class Post(Struct, frozen=True, gc=False):
    """Send a message. ``key`` names the sending from now on; no two may share one.

    The bytes of ``payload`` must not change until it is sent.
    """

    key: int
    message: Message
    payload: memoryview


@final
class Pass(Struct, frozen=True, gc=False):
    """Send a message without a payload now: the channel takes a frame. :class:`Write` is the answer where
    nothing is before it, and no :class:`Sent` follows; else nothing is, and it is to be posted."""

    message: Message


class Withdraw(Struct, frozen=True):
    """What was posted under ``key`` need not be sent any more."""

    key: int


class Abandon(Struct, frozen=True):
    """The payload of an :class:`Offered` stream is not wanted; the sentence tells its sender why."""

    stream: int
    sentence: str


class Welcome(Struct, frozen=True):
    """The hello under :class:`Judge` was good."""

    accept: Accept


class Refuse(Struct, frozen=True):
    """The hello under :class:`Judge` was not good."""

    code: RefusalCode
    sentence: str


class Probe(Struct, frozen=True):
    """Ask the other side for a sign of life now; :class:`Answered` follows if it gives one."""


class Close(Struct, frozen=True):
    """End the link in good order. Unfinished payloads are abandoned."""

    code: CloseCode
    sentence: str


class Lost(Struct, frozen=True):
    """The channel ended, and why. ``code`` is that of a refusal where TLS was the one to refuse."""

    sentence: str
    code: str = ""


Event = (
    Received | Writable | Tick | Post | Pass | Withdraw | Abandon | Welcome | Refuse | Probe | Close | Lost
)


class Judge(Struct, frozen=True):
    """Decide on the other side's hello: answer with :class:`Welcome` or :class:`Refuse`."""

    hello: Hello


class Up(Struct, frozen=True):
    """Both sides have accepted; ``accept`` is theirs."""

    accept: Accept


class Offered(Struct, frozen=True):
    """The other side begins a payload of ``size`` bytes. :class:`Abandon` it now, or it is received."""

    stream: int
    message: Message
    size: int


@final
class Deliver(Struct, frozen=True, gc=False):
    """A whole message has arrived; ``payload`` is empty where it has none, and owned by the receiver."""

    message: Message
    payload: memoryview


@final
class Write(Struct, frozen=True, gc=False):
    """Give these bytes to the channel, ``head`` first."""

    head: bytes
    body: memoryview


@final
class Sent(Struct, frozen=True, gc=False):
    """The last byte of what was posted under ``key`` has been given to the channel."""

    key: int


@final
class Unwanted(Struct, frozen=True):
    """The other side does not want what was posted under ``key``."""

    key: int
    sentence: str


class Answered(Struct, frozen=True):
    """The other side has answered the last :class:`Probe`."""


class Vain(Struct, frozen=True):
    """The other side did something useless: ``what``."""

    what: str


class Down(Struct, frozen=True):
    """The link carries nothing any more, and why. At most last words are still to be written."""

    end: End


@final
class Ended(Struct, frozen=True):
    """Nothing is left to do but to let the channel send what it has, and drop it."""


Action = Judge | Up | Offered | Deliver | Write | Sent | Unwanted | Answered | Vain | Down | Ended


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
