"""A link: a session on a byte channel (decision D3). Bytes in, feed, perform what came out."""

import asyncio
from typing import Protocol, assert_never

from swarm.clock import Clock
from swarm.errors import LinkLostError, RemoteProtocolError, RemoteRefusalError
from swarm.identity.chain import Member
from swarm.ids import PeerId, short
from swarm.net.address import Address
from swarm.net.channel import ByteChannel
from swarm.net.driver import Driver, Errand
from swarm.net.pacing import Caps
from swarm.protocol.session import Session
from swarm.protocol.session_events import (
    NO_BYTES,
    Abandon,
    Answered,
    Close,
    Deliver,
    Down,
    End,
    Event,
    Judge,
    Offered,
    Post,
    Probe,
    Sent,
    SessionStatistics,
    Unwanted,
    Up,
    Vain,
    Withdraw,
)
from swarm.wire.frames import Buffer, CloseCode
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Accept, Hello


class LinkOwner(Protocol):
    """Who decides about links, and is told of them. Called synchronously, in order.

    RemoteProtocolError out of any of these is about what the other side said: it ends that link, and is
    charged to the peer. Whatever else comes out is a bug of this program.
    """

    def handle_hello(self, link: "Link", hello: Hello) -> None:
        """The other side has introduced itself: feed a Welcome or a Refuse, now or later."""
        ...

    def handle_up(self, link: "Link") -> None:
        """Both sides have accepted."""
        ...

    def handle_answer(self, link: "Link") -> None:
        """The other side has answered a probe."""
        ...

    def handle_strike(self, link: "Link") -> bool:
        """The other side did something in vain: returns whether that was once too often."""
        ...

    def handle_offer(self, link: "Link", message: Message, size: int) -> str:
        """A payload begins: empty to take it, else why it is not wanted."""
        ...

    def handle_down(self, link: "Link", end: End) -> None:
        """It carries nothing any more; it may not even have been up."""
        ...

    def handle_message(self, link: "Link", message: Message, payload: memoryview, /) -> None:
        """A whole message came."""
        ...


class Sending:
    """A message on its way out."""

    __slots__ = ("_error", "_link", "_sent", "_waiter", "key")

    def __init__(self, link: "Link", key: int) -> None:
        self.key = key
        self._link = link
        self._sent = False
        self._error: Exception | None = None
        self._waiter: asyncio.Event | None = None

    @property
    def done(self) -> bool:
        """Whether nothing is left to send, for better or worse."""
        return self._sent or self._error is not None

    def cancel(self) -> None:
        """Stop sending. The receiver never sees the message, unless all of it was sent already."""
        if not self.done:
            self._link.withdraw(self)

    async def wait(self) -> None:
        """Return when the last byte was given to TLS.

        Raises LinkLostError where the link ended before or the sending was cancelled, RemoteRefusalError
        where the receiver does not want it.
        """
        if not self.done:
            self._waiter = self._waiter or asyncio.Event()
            await self._waiter.wait()
        if self._error is not None:
            raise self._error

    def settle(self, error: Exception | None) -> None:
        """It is over; called by the link."""
        self._sent, self._error = error is None, error
        if self._waiter is not None:
            self._waiter.set()


class Link:
    """One link to another peer. Made and owned by a pool; given to services once it is up.

    ``dialed`` says whether this peer made the call, ``address`` is where the other one was called or called
    from, ``path`` how it is reached. ``member`` is the other peer as its certificates prove, ``hello`` and
    ``accept`` are what it sent; they are there once the link is up.
    """

    path: str = "direct"
    member: Member
    hello: Hello
    accept: Accept

    def __init__(
        self,
        channel: ByteChannel,
        session: Session,
        *,
        owner: LinkOwner,
        clock: Clock,
        address: str,
        caps: Caps,
    ) -> None:
        self.address = address
        self.dialed = channel.dialed
        self._channel = channel
        self._session = session
        self._owner = owner
        self._driver = Driver(channel, session, clock=clock, perform=self._perform, caps=caps)
        self._sendings: dict[int, Sending] = {}
        self._last_key = 0
        self._sent = Sending(self, 0)
        """What was sent when it was posted: nothing about it changes any more."""
        self._sent.settle(None)
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Not an event: that takes a kilobyte of each link."""

    @property
    def peer(self) -> PeerId:
        """The other peer."""
        return self.member.peer

    @property
    def remote(self) -> Address:
        """The numeric address that the other side has, or shows."""
        return self._channel.remote

    @property
    def certificate(self) -> bytes:
        """The certificate (DER) whose key the other side has proved to hold."""
        return self._channel.certificate

    @property
    def end(self) -> End | None:
        """Why the link has ended or is about to; None while it lives."""
        return self._session.end

    def post(self, message: Message, payload: Buffer = NO_BYTES) -> Sending:
        """Send ``message`` with ``payload``, whose bytes must not change until that is done. Never blocks.

        What waits to be sent is bounded by what callers keep in flight. Messages without a payload arrive in
        the order of their posting and overtake payloads; payloads share the link in turns. Raises
        LinkLostError when the link has ended, LocalError for a message that no receiver takes.
        """
        if payload is NO_BYTES and self._driver.pass_on(message):
            return self._sent
        self._last_key = key = self._last_key + 1
        self.feed(Post(key, message, _flat(payload)))
        self._sendings[key] = sending = Sending(self, key)
        return sending

    def withdraw(self, sending: Sending) -> None:
        """Stop a sending; see :meth:`Sending.cancel`."""
        if self._sendings.pop(sending.key, None) is not None:
            self.feed(Withdraw(sending.key))
            sending.settle(LinkLostError("the sending was cancelled"))

    def charge(self, what: str) -> None:
        """The other side did ``what`` in vain. Raises RemoteProtocolError where it has done so too often."""
        if self._owner.handle_strike(self):
            raise RemoteProtocolError(f"once too often, {what}")

    def probe(self) -> None:
        """Ask the other side for a sign of life."""
        self.feed(Probe())

    async def aclose(self, reason: str, code: CloseCode = CloseCode.LEAVING) -> None:
        """Say goodbye, and return when that has arrived or two seconds have passed."""
        self.feed(Close(code, reason))
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Return when the link has ended, last words included."""
        await asyncio.wait([self._closed])

    def statistics(self) -> SessionStatistics:
        """Bytes, rates, times; see SessionStatistics for the units."""
        return self._session.statistics()

    def __str__(self) -> str:
        peer = short(self.member.peer) if hasattr(self, "member") else "somebody"
        return f"link with {peer} at {self.address}: {self._session}"

    def feed(self, event: Event) -> None:
        """Give the session an event, and perform what it answers. Errors of services pass through."""
        self._driver.feed(event)

    async def run(self) -> None:
        """Carry the link until it ends; raises what a service raised. Called once, by the owner's task."""
        try:
            await self._driver.run()
        finally:
            self._closed.set_result(None)

    def _perform(self, action: Errand) -> None:
        try:
            if type(action) is Deliver:
                self._owner.handle_message(self, action.message, action.payload)
            elif type(action) is Sent:
                self._settle(action.key, None)
            elif type(action) is Unwanted:
                self._settle(action.key, RemoteRefusalError("unwanted", action.sentence))
            else:
                self._consult(action)
        except RemoteProtocolError as error:
            self.feed(Close(CloseCode.PROTOCOL, str(error)))

    def _consult(self, action: Judge | Up | Offered | Answered | Vain | Down) -> None:
        match action:
            case Judge():
                self._owner.handle_hello(self, action.hello)
            case Up():
                self.accept = action.accept
                self._owner.handle_up(self)
            case Offered():
                sentence = self._owner.handle_offer(self, action.message, action.size)
                if sentence:
                    self.feed(Abandon(action.stream, sentence))
            case Answered():
                self._owner.handle_answer(self)
            case Vain():
                self.charge(action.what)
            case Down():
                self._fail_sendings(action.end)
                self._owner.handle_down(self, action.end)
            case _:
                assert_never(action)

    def _settle(self, key: int, error: Exception | None) -> None:
        sending = self._sendings.pop(key, None)
        if sending is not None:
            sending.settle(error)

    def _fail_sendings(self, end: End) -> None:
        sendings, self._sendings = self._sendings, {}
        for sending in sendings.values():
            sending.settle(LinkLostError(str(end)))


def _flat(payload: Buffer) -> memoryview:
    """The bytes of ``payload``, whatever shape its view has."""
    view = memoryview(payload)
    return view.cast("B") if view.nbytes else NO_BYTES
