"""What the bytes of a link were, once they are there: what its inbox tells its session."""

from typing import final

from msgspec import Struct

from swarm.protocol.session_events import Deliver
from swarm.wire.frames import Buffer, Header
from swarm.wire.messages.base import Message


@final
class Control(Struct, frozen=True, gc=False):
    """A frame with its body that is about the link: a greeting, or one that keeps the traffic going."""

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


Arrival = Control | Opened | Progress | Deliver
