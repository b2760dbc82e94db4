"""Gives blocks to the peers that ask for them.

What is given away is bounded per link, so that a flood of requests costs the link that it comes from, and no
other.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

from swarm.data.blocks import Blocks
from swarm.errors import FailureError, LinkLostError, RemoteProtocolError, RemoteRefusalError
from swarm.ids import Digest, PeerId, short
from swarm.log import get_log
from swarm.net.link import Link
from swarm.wire.messages.blocks import BlockMissing, BlockReply, BlockRequest

MAX_REQUESTS_WAITING: Final = 64
"""Requests that one link may have waiting here; ours never has more than eight open."""

SERVED_AT_ONCE: Final = 2
"""Blocks per link that are read or being sent at a time: one on the wire while the next is read."""

_log = get_log(__name__)

Start = Callable[[Coroutine[None, None, None], str], None]
"""Starts a task of this name."""

MayHave = Callable[[PeerId, Digest], bool]
"""Whether a peer may be given a block; one that may not is told what one that lacks it would be told."""


class _Serving:
    """What one link has asked of us and has not got yet."""

    def __init__(self) -> None:
        self.requests: deque[BlockRequest] = deque()
        self.busy = 0


class BlockGiving:
    """The giving half of a block exchange."""

    def __init__(self, store: Blocks, start: Start, may_have: MayHave) -> None:
        self._may_have = may_have
        self._store = store
        self._start = start
        self._serving: dict[Link, _Serving] = {}

    def requested(self, link: Link, request: BlockRequest) -> None:
        """Answer a request in its turn; raises RemoteProtocolError where there are too many."""
        serving = self._serving.setdefault(link, _Serving())
        if len(serving.requests) >= MAX_REQUESTS_WAITING:
            raise RemoteProtocolError(f"it asked for more than {MAX_REQUESTS_WAITING} blocks at once")
        serving.requests.append(request)
        if serving.busy < SERVED_AT_ONCE:
            serving.busy += 1
            self._start(self._serve(link, serving), f"give blocks to {short(link.peer)}")

    def on_down(self, link: Link) -> None:
        """A link has ended: forget what it wanted."""
        serving = self._serving.pop(link, None)
        if serving is not None:
            serving.requests.clear()

    def _read(self, name: Digest) -> bytes | None:
        """In the executor. A disk that fails is no reason to give up the node: the block is lacking."""
        try:
            return self._store.get(name)
        except FailureError as error:
            _log.warning("a block cannot be read", block=short(name), cause=str(error))
            return None

    async def _serve(self, link: Link, serving: _Serving) -> None:
        try:
            while serving.requests:
                request = serving.requests.popleft()
                name = Digest(request.digest)
                data = None
                if self._may_have(link.peer, name):
                    data = await asyncio.get_running_loop().run_in_executor(None, self._read, name)
                if data is None:
                    sending = link.post(BlockMissing(request=request.request))
                else:
                    sending = link.post(BlockReply(request=request.request), data)
                with suppress(RemoteRefusalError):  # it has the block from elsewhere by now
                    await sending.wait()
        except LinkLostError:
            serving.requests.clear()
        finally:
            serving.busy -= 1
