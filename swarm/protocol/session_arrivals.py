"""What the bytes of a link were, once they are there: what its inbox tells its session."""

from msgspec import Struct

from swarm.wire.frames import Buffer, Header
from swarm.wire.messages.base import Message


class Control(Struct, frozen=True, gc=False):
    """A frame other than OPEN and DATA, with its body."""

    header: Header
    body: Buffer


class Opened(Struct, frozen=True):
    """A payload begins. ``refusal`` says why there is no memory for it; empty where there is."""

    stream: int
    message: Message
    size: int
    refusal: str


class Progress(Struct, frozen=True, gc=False):
    """Bytes of a payload came. ``grant`` is the credit that is due for it now, 0 for none."""

    stream: int
    grant: int


class Complete(Struct, frozen=True, gc=False):
    """The last byte of a payload came."""

    message: Message
    payload: memoryview


Arrival = Control | Opened | Progress | Complete
