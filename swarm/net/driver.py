"""The driver: moves bytes between a channel and a session, and time into the session.

It works inside the event loop's callbacks, not in a task that they wake: what arrives is decrypted where it
belongs while it is in the processor's cache, nothing piles up, and no task is switched for each read.

A link gets one slice of each iteration of the loop, in bytes and in work, whatever wakes it: some loops
read a socket many times in one iteration, and a small message may cost far more than its bytes. What is left
waits in the channel, which stops reading the socket where that is much.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from swarm.clock import Clock
from swarm.errors import RemoteError, RemoteRefusalError
from swarm.net.channel import ByteChannel
from swarm.net.pacing import Caps, Pace
from swarm.protocol.session import Session
from swarm.protocol.session_events import (
    Answered,
    Deliver,
    Down,
    Ended,
    Event,
    Judge,
    Lost,
    Offered,
    Received,
    Sent,
    Tick,
    Unwanted,
    Up,
    Writable,
    Write,
)

TURN_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one link moves each way before the others have their turn."""
TURN_READS: Final = 1024
"""Pieces that one link receives before the others have their turn: a few microseconds each."""
READS_PER_ERRAND: Final = 32
"""What an errand counts for beside them: a dear one takes a millisecond."""
CAPPED_READ_BYTES: Final = 16 * 1024
"""Bytes that one read takes where receiving is capped: the next has to wait for its turn."""
FLUSH_SECONDS: Final = 2.0
"""How long the last words of a link may take."""

Errand = Judge | Up | Offered | Deliver | Sent | Unwanted | Answered | Down
"""The actions that are not the driver's own."""


class Driver:
    """Runs one session on one channel; ``perform`` carries out every action but Write and Ended."""

    def __init__(
        self,
        channel: ByteChannel,
        session: Session,
        *,
        clock: Clock,
        perform: Callable[[Errand], None],
        caps: Caps,
    ) -> None:
        self._channel = channel
        self._session = session
        self._clock = clock
        self._perform = perform
        self._caps = caps
        if caps.up is not None:
            session.limit_frames(caps.up.turn_bytes)
        self._turn_at: float | None = None
        """When the booked turn of the next bulk frame begins; None where none is booked."""
        self._booked = 0
        self._read_at = 0.0
        """When more may be received: what came last has passed by then, at the capped rate."""
        self._held_until = math.inf
        """When a cap lets go what it held up in this turn."""
        self._written = 0
        """Bytes given to the channel."""
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._turning = False
        self._received = 0
        """Bytes received in this slice. It may last some iterations of the loop, while that is not much."""
        self._reads = 0
        """Pieces that they came in, and what their errands count for."""
        self._ended = False
        self._soon: asyncio.Handle | None = None
        self._next: asyncio.Handle | None = None
        """Begins the next slice; there is one where half of this one is used up."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._unsent_limit = 0

    async def run(self) -> None:
        """Drive until the session ends; raises what ``perform`` raised. To be called once."""
        self._channel.wake = self._turn
        if self._caps.down is not None:
            self._channel.limit_unread(self._caps.down.queue_bytes)
        self._turn()
        try:
            await self._over
            end = self._session.end
            await self._channel.aclose(FLUSH_SECONDS if end is not None and end.by == "us" else 0.0)
        finally:
            self._release()

    def feed(self, event: Event) -> None:
        """Give the session an event from elsewhere, and perform what it answers."""
        self._feed(event)
        if not self._turning and self._soon is None:
            self._soon = self._loop.call_soon(self._turn)

    def _feed(self, event: Event) -> int:
        """Perform what the session answers; returns how many errands that were."""
        errands = 0
        for action in self._session.handle(event, now=self._clock.elapsed()):
            if type(action) is Write:
                self._written += len(action.head) + len(action.body)
                self._channel.send(action.head, action.body)
            elif type(action) is Ended:
                self._ended = True
            else:
                errands += 1
                self._perform(action)
        return errands

    def _begin_slice(self) -> None:
        """Another iteration of the loop has begun."""
        was_spent = self._received >= TURN_BYTES or self._reads >= TURN_READS
        self._received = self._reads = 0
        self._next = None
        if was_spent:
            self._turn()

    def _turn(self) -> None:
        """Move what can be moved now. The link boundary: what a service raises ends the owner's tasks."""
        if self._turning or self._over.done():
            return
        self._turning = True
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._held_until = math.inf
        try:
            self._pull()
            if self._timer is None and self._clock.elapsed() >= self._session.deadline:
                self._feed(Tick())
            busy = self._push()
            self._arm()
        except Exception as error:  # noqa: BLE001 - the link boundary: `run` raises it
            self._over.set_exception(error)
            return
        finally:
            self._turning = False
        if self._ended:
            self._over.set_result(None)
        elif busy:
            self._soon = self._loop.call_soon(self._turn)

    def _pull(self) -> None:
        """Receive what is there, as far as the slice goes."""
        channel, session, down = self._channel, self._session, self._caps.down
        while self._received < TURN_BYTES and self._reads < TURN_READS and not self._ended:
            count = 0
            if not session.has_more:
                room = session.reading
                if down is not None:
                    if self._is_held(self._read_at):
                        return
                    room = room[:CAPPED_READ_BYTES]
                count = channel.receive_into(room)
                if not count:
                    if channel.ended is not None:
                        self._feed(_lost(channel.ended))
                    return
                if down is not None:
                    self._read_at = down.passed(count, self._clock.elapsed())
                self._received += count
            self._reads += 1 + READS_PER_ERRAND * self._feed(Received(count))
            if self._next is None and (2 * self._received > TURN_BYTES or 2 * self._reads > TURN_READS):
                self._next = self._loop.call_soon(self._begin_slice)

    def _push(self) -> bool:
        """Send while the channel takes more; returns whether more could go at once."""
        channel, session, up = self._channel, self._session, self._caps.up
        begun = self._written
        while session.wants_to_write and channel.writable:
            if self._written - begun >= TURN_BYTES:
                return True
            if up is None:
                self._feed(Writable(channel.unsent))
            elif self._may_write(up):
                before = self._written
                self._feed(Writable(channel.unsent))
                self._settle(up, self._written - before)
            else:
                break
        if self._written > begun and session.unsent_limit != self._unsent_limit:
            self._unsent_limit = session.unsent_limit
            channel.limit_unsent(self._unsent_limit)
        return False

    def _may_write(self, up: Pace) -> bool:
        """Whether the cap lets the next frame go now; books a turn for it where it has to wait."""
        session = self._session
        if session.wants_control:
            return True
        now = self._clock.elapsed()
        if self._turn_at is None:
            self._booked = session.bulk_frame_bytes
            self._turn_at = up.book(self._booked, now)
        return not self._is_held(self._turn_at)

    def _settle(self, up: Pace, written: int) -> None:
        """Count ``written`` bytes against the cap."""
        if self._turn_at is not None and self._turn_at <= self._clock.elapsed():
            up.settle(written - self._booked)
            self._turn_at = None
        else:
            up.settle(written)

    def _is_held(self, until: float) -> bool:
        """Whether a cap holds something up ``until`` then; if so, it is looked at again, however soon."""
        is_held = until > self._clock.elapsed()
        if is_held:
            self._held_until = min(self._held_until, until)
        return is_held

    def _arm(self) -> None:
        """See to it that the next deadline is not missed. The one timer there is may fire early."""
        deadline = min(self._session.deadline, self._held_until)
        if self._ended or (self._timer is not None and self._timer_due <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = deadline
        self._timer = self._loop.call_later(max(deadline - self._clock.elapsed(), 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._turn()

    def _release(self) -> None:
        """Leave nothing behind, however ``run`` ended."""
        for handle in (self._timer, self._soon, self._next):
            if handle is not None:
                handle.cancel()
        if self._turn_at is not None and self._caps.up is not None:
            self._caps.up.settle(-self._booked)
        if not self._over.done():
            self._over.cancel()
        self._channel.abort()
        self._feed(Lost("was dropped"))


def _lost(error: RemoteError) -> Lost:
    return Lost(str(error), error.code) if isinstance(error, RemoteRefusalError) else Lost(str(error))
