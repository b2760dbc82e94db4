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
    Action,
    Answered,
    Deliver,
    Down,
    Ended,
    Event,
    Judge,
    Lost,
    Offered,
    Pass,
    Received,
    Sent,
    Tick,
    Unwanted,
    Up,
    Vain,
    Writable,
    Write,
)
from swarm.wire.messages.base import Message

TURN_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one link moves each way before the others have their turn."""
PIECE_BYTES: Final = 4096
"""What each piece that is received counts for beside its bytes: a few microseconds."""
ERRAND_BYTES: Final = 32 * PIECE_BYTES
"""What an errand counts for beside them: a dear one takes a millisecond."""
_HALF_TURN_BYTES: Final = TURN_BYTES // 2
CAPPED_READ_BYTES: Final = 16 * 1024
"""Bytes that one read takes where receiving is capped: the next has to wait for its turn."""
FLUSH_SECONDS: Final = 2.0
"""How long the last words of a link may take."""

Errand = Judge | Up | Offered | Deliver | Sent | Unwanted | Answered | Vain | Down
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
        self._inbox = session.inbox
        self._elapsed = clock.elapsed
        self._perform = perform
        self._up, self._down = caps.up, caps.down
        self._is_uncapped = caps.up is None
        if caps.up is not None:
            session.limit_frames(caps.up.turn_bytes)
        self._turn_at: float | None = None
        """When the booked turn of the next bulk frame begins; None where none is booked."""
        self._booked = 0
        self._read_at = 0.0
        """When more may be received: what came last has passed by then, at the capped rate."""
        self._held_until = math.inf
        """When a cap or the pace lets go what it held up in this turn."""
        self._written = 0
        """Bytes that turns have given to the channel."""
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._turning = False
        """Whether a turn goes on, or none comes any more."""
        self._spent = 0
        """Bytes received in this slice, and what else counts for some. It may last some iterations of the
        loop, while that is not much."""
        self._ended = False
        self._soon: asyncio.Handle | None = None
        self._next: asyncio.Handle | None = None
        """Begins the next slice; there is one where half of this one is used up."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._unsent_limit = 0
        self._at_once = False
        """Whether a message may be written when it is posted: the first since a turn began, so that those
        which are posted together go together but for it."""
        self._stirred = True
        """Whether more than whole messages came and went since nothing was left to write, or the timer fired.
        Those messages leave nothing to write either, and bring no deadline nearer."""

    async def run(self) -> None:
        """Drive until the session ends; raises what ``perform`` raised. To be called once."""
        self._channel.wake = self._turn
        if self._down is not None:
            self._channel.limit_unread(self._down.queue_bytes)
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

    def pass_on(self, message: Message) -> bool:
        """Send ``message`` now, where nothing is in its way; returns whether it was sent."""
        if self._at_once and self._channel.writable:
            for action in self._session.handle(Pass(message), now=0.0):  # needs no clock
                if type(action) is Write:
                    self._at_once = False
                    self._channel.send(action.head, action.body)
                    return True
        return False

    def _feed(self, event: Event) -> None:
        """Perform what the session answers."""
        self._stirred = True
        for action in self._session.handle(event, now=self._elapsed()):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> bool:
        """Returns whether it was an errand."""
        if type(action) is Write:
            self._written += len(action.head) + len(action.body)
            self._channel.send(action.head, action.body)
            return False
        if type(action) is Ended:
            self._ended = True
            return False
        self._perform(action)
        return True

    def _begin_slice(self) -> None:
        """Another iteration of the loop has begun."""
        was_spent = self._spent >= TURN_BYTES
        self._spent = 0
        self._next = None
        if was_spent:
            self._turn()

    def _turn(self) -> None:
        """Move what can be moved now. The link boundary: what a service raises ends the owner's tasks."""
        if self._turning:
            return
        self._turning = True
        self._at_once = self._is_uncapped
        try:
            self._pull()
            if self._stirred:
                self._answer()
        except Exception as error:  # noqa: BLE001 - the link boundary: `run` raises it
            self._ended = True
            self._over.set_exception(error)
        finally:
            self._turning = self._ended

    def _answer(self) -> None:
        """Do what came, time and services have made necessary, beyond passing messages on."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._timer is None and self._elapsed() >= self._session.deadline:
            self._feed(Tick())
        busy = self._push()
        self._arm()
        if self._ended:
            self._over.set_result(None)
        elif busy:
            self._soon = self._loop.call_soon(self._turn)

    def _pull(self) -> None:
        """Receive what is there, as far as the slice goes."""
        channel, inbox, spent = self._channel, self._inbox, self._spent
        while spent < TURN_BYTES:
            count, room = 0, inbox.reading
            if room:
                down = self._down
                count = channel.receive_into(room) if down is None else self._receive_capped(room, down)
                if not count:
                    if channel.ended is not None and self._held_until == math.inf:
                        self._feed(_lost(channel.ended))
                    break
            spent += count + PIECE_BYTES
            actions = self._session.handle(Received(count), now=self._elapsed())
            if not actions:
                self._stirred = True
            for action in actions:
                if type(action) is Deliver:
                    self._perform(action)
                    spent += ERRAND_BYTES
                else:
                    self._stirred = True
                    spent += ERRAND_BYTES * self._carry_out(action)
            if (inbox.reading and not channel.unread) or self._ended:
                break
        self._spent = spent
        if spent > _HALF_TURN_BYTES and self._next is None:
            self._next = self._loop.call_soon(self._begin_slice)

    def _receive_capped(self, room: memoryview, down: Pace) -> int:
        """Receive a little, where the cap lets it come now."""
        if self._is_held(self._read_at):
            return 0
        count = self._channel.receive_into(room[:CAPPED_READ_BYTES])
        if count:
            self._read_at = down.passed(count, self._elapsed())
        return count

    def _push(self) -> bool:
        """Send while the channel takes more; returns whether more could go at once."""
        channel, session, up = self._channel, self._session, self._up
        begun = self._written
        while session.wants_to_write:
            if not channel.writable:
                break
            if self._written - begun >= TURN_BYTES:
                return True
            if not session.wants_control and self._is_held(session.bulk_at):
                break
            if up is None:
                self._feed(Writable(channel.unsent))
            elif self._may_write(up):
                before = self._written
                self._feed(Writable(channel.unsent))
                self._settle(up, self._written - before)
            else:
                break
        else:
            self._stirred = False
        if self._written > begun and session.unsent_limit != self._unsent_limit:
            self._unsent_limit = session.unsent_limit
            channel.limit_unsent(self._unsent_limit)
        return False

    def _may_write(self, up: Pace) -> bool:
        """Whether the cap lets the next frame go now; books a turn for it where it has to wait."""
        session = self._session
        if session.wants_control:
            return True
        now = self._elapsed()
        if self._turn_at is None:
            self._booked = session.bulk_frame_bytes
            self._turn_at = up.book(self._booked, now)
        return not self._is_held(self._turn_at)

    def _settle(self, up: Pace, written: int) -> None:
        """Count ``written`` bytes against the cap."""
        if self._turn_at is not None and self._turn_at <= self._elapsed():
            up.settle(written - self._booked)
            self._turn_at = None
        else:
            up.settle(written)

    def _is_held(self, until: float) -> bool:
        """Whether something is held up ``until`` then; if so, it is looked at again, however soon."""
        is_held = until > self._elapsed()
        if is_held:
            self._stirred = True
            self._held_until = min(self._held_until, until)
        return is_held

    def _arm(self) -> None:
        """See to it that the next deadline is not missed. The one timer there is may fire early."""
        deadline, self._held_until = min(self._session.deadline, self._held_until), math.inf
        if self._ended or (self._timer is not None and self._timer_due <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = deadline
        self._timer = self._loop.call_later(max(deadline - self._elapsed(), 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._stirred = True
        self._turn()

    def _release(self) -> None:
        """Leave nothing behind, however ``run`` ended."""
        for handle in (self._timer, self._soon, self._next):
            if handle is not None:
                handle.cancel()
        if self._turn_at is not None and self._up is not None:
            self._up.settle(-self._booked)
        self._turning = True
        if not self._over.done():
            self._over.cancel()
        self._channel.abort()
        self._feed(Lost("was dropped"))


def _lost(error: RemoteError) -> Lost:
    return Lost(str(error), error.code) if isinstance(error, RemoteRefusalError) else Lost(str(error))
