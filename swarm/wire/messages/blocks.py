"""Flow: fetching blocks. One who needs a block asks; the other answers with its bytes or lacks it."""

from typing import ClassVar

from swarm.wire.limits import MAX_BLOCK_BYTES
from swarm.wire.messages.base import Count, LongId, Message


class BlockRequest(Message, frozen=True, kw_only=True):
    """From who needs a block. ``request`` is returned in the answer."""

    NUMBER: ClassVar[int] = 40
    request: Count
    digest: LongId


class BlockReply(Message, frozen=True, kw_only=True):
    """The block; its bytes are the payload."""

    NUMBER: ClassVar[int] = 41
    MAX_PAYLOAD: ClassVar[int] = MAX_BLOCK_BYTES
    YIELDS: ClassVar[bool] = True
    request: Count


class BlockMissing(Message, frozen=True, kw_only=True):
    """The one asked does not have the block, or will not give it."""

    NUMBER: ClassVar[int] = 42
    request: Count
