"""What every message is: a frozen msgspec structure with a number, sent as a MessagePack array.

Fields are closed types with limits, so that decoding is the whole check of a message's shape. Under one
number, the fields never change; another shape is another number, and a newer protocol version.
"""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from swarm.ids import DIGEST_LENGTH, SHORT_ID_LENGTH
from swarm.wire.limits import MAX_MICRO_BATCHES, MAX_STAGES, MAX_STEPS

ShortId = Annotated[
    str, Meta(min_length=SHORT_ID_LENGTH, max_length=SHORT_ID_LENGTH, pattern=r"\A[a-z2-7]+\Z")
]
"""A PeerId or SwarmId."""
LongId = Annotated[str, Meta(min_length=DIGEST_LENGTH, max_length=DIGEST_LENGTH, pattern=r"\A[a-z2-7]+\Z")]
"""A Digest or JobId."""
Count = Annotated[int, Meta(ge=0, lt=2**53)]
StageNumber = Annotated[int, Meta(ge=0, lt=MAX_STAGES)]
StepNumber = Annotated[int, Meta(ge=0, lt=MAX_STEPS)]
MicroBatchNumber = Annotated[int, Meta(ge=0, lt=MAX_MICRO_BATCHES)]


class Message(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all messages. ``NUMBER`` names the type on the wire; ``MAX_PAYLOAD`` bounds the raw bytes."""

    NUMBER: ClassVar[int]
    MAX_PAYLOAD: ClassVar[int] = 0
    YIELDS: ClassVar[bool] = False
    """Whether the payload can wait for those of messages that do not yield."""
