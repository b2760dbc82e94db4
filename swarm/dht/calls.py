"""Asking: requests under way, matched to their answers, repeated once, and given up in time."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from swarm.clock import Clock
from swarm.dht.addresses import Address
from swarm.dht.contacts import Contacts
from swarm.dht.limits import TRANSMISSIONS
from swarm.dht.messages import MESSAGE_ID_BYTES, Answer, Challenge, Datagram, Question, Reply, Request
from swarm.dht.proof import Proof, answering_statement, asking_statement, is_proof, make_proof, node_id
from swarm.dht.reachability import Reachability
from swarm.dht.roundtrip import RoundTrip
from swarm.dht.seal import Envelope, Opened, Sealer
from swarm.dht.table import Contact
from swarm.errors import RemoteProtocolError, RemoteTimeoutError
from swarm.identity.keys import PrivateKey

Transmit = Callable[[Datagram, Envelope, Address], bool]


class ItselfError(RemoteTimeoutError):
    """The address that was asked is this node's own."""


class NoRouteError(RemoteTimeoutError):
    """There is no way from here to the address that was to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to ask. ``node`` is None where only an address is known, as of a seed."""

    node: bytes | None
    address: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer, and the proven contact that gave it."""

    contact: Contact
    answer: Answer


class _Ending(Enum):
    """How a call ends without an answer."""

    SILENCE = auto()
    ITSELF = auto()
    NO_ROUTE = auto()


@dataclass(slots=True, kw_only=True, eq=False)
class _Call:
    """One request until its outcome. ``transmissions`` counts the datagrams since the last sign of life."""

    target: Target
    question: Question
    on_doubt: Callable[[], None] | None
    outcome: asyncio.Future[Answered | _Ending]
    started: float
    contact: Contact | None
    message: bytes = field(default_factory=lambda: secrets.token_bytes(MESSAGE_ID_BYTES))
    transmissions: int = 0
    sent: float = 0.0
    cookie: bytes = b""
    proof: Proof | None = None
    timer: asyncio.TimerHandle | None = None
    doubt_timer: asyncio.TimerHandle | None = None
    doubted: bool = False

    def matches(self, sender: bytes, address: Address) -> bool:
        """Whether a datagram with this message id comes from the one that was asked."""
        return address == self.target.address and self.target.node in {None, sender}

    def doubt(self) -> None:
        """The answer is late; the caller hears so once."""
        if not self.doubted and self.on_doubt is not None:
            self.on_doubt()
        self.doubted = True

    def stop_timers(self) -> None:
        """Wait for nothing any more."""
        for timer in (self.timer, self.doubt_timer):
            if timer is not None:
                timer.cancel()

    def settle(self, outcome: Answered | _Ending) -> None:
        """End the wait. The first outcome counts; a caller that was cancelled hears none."""
        self.stop_timers()
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Calls:
    """The asking side of a node, which says of itself whether it is storing for whom it asks.

    ``transmit`` sends one datagram at once, never blocks, and says whether there is a way to the address.
    """

    def __init__(
        self,
        key: PrivateKey,
        *,
        sealer: Sealer,
        contacts: Contacts,
        clock: Clock,
        reachability: Reachability,
        transmit: Transmit,
    ) -> None:
        self._key = key
        self._reachability = reachability
        self._node = node_id(key.public)
        self._sealer = sealer
        self._contacts = contacts
        self._clock = clock
        self._transmit = transmit
        self._calls: dict[bytes, _Call] = {}
        self._round_trip = RoundTrip()
        self.made = self.repeated = self.unanswered = 0

    def __len__(self) -> int:
        return len(self._calls)

    async def call(
        self, target: Target, question: Question, *, on_doubt: Callable[[], None] | None = None
    ) -> Answered:
        """The answer of ``target`` to ``question``, once it has proved its id.

        ``on_doubt`` is called when the answer is late, at the first timeout or before. Raises
        RemoteTimeoutError after the last wait, 0.6 to 3 seconds from the start (twice that where it first
        wanted a proof); at once NoRouteError where it cannot be reached from here, and ItselfError where
        the address is our own.
        """
        call = _Call(
            target=target,
            question=question,
            on_doubt=on_doubt,
            outcome=asyncio.get_running_loop().create_future(),
            started=self._clock.elapsed(),
            contact=self._contacts.find(target.node, target.address) if target.node else None,
        )
        self._calls[call.message] = call
        self.made += 1
        try:
            self._request(call)
            outcome = await call.outcome
        finally:
            call.settle(_Ending.SILENCE)
            del self._calls[call.message]
        match outcome:
            case Answered():
                return outcome
            case _Ending.ITSELF:
                raise ItselfError(f"{target.address} is this node itself")
            case _Ending.NO_ROUTE:
                raise NoRouteError(f"there is no {target.address.family} from here to {target.address}")
            case _Ending.SILENCE:
                raise RemoteTimeoutError(f"{target.address} does not answer")

    def _request(self, call: _Call) -> None:
        """Send the request, sealed as the other is known to read it, and start the wait."""
        contact = call.contact
        heard = contact.envelope if contact is not None else None
        envelope = self._sealer.best(heard) if not call.transmissions else self._sealer.compatible(heard)
        request = Request(
            message=call.message,
            storing=self._reachability.stores_for(call.target.address),
            prove=contact is None,
            cookie=call.cookie,
            proof=call.proof,
            question=call.question,
        )
        call.transmissions += 1
        call.sent = self._clock.elapsed()
        if self._transmit(request, envelope, call.target.address):
            self._wait(call)
        else:
            call.settle(_Ending.NO_ROUTE)

    def _wait(self, call: _Call) -> None:
        known = call.contact is not None and call.contact.round_trip.smoothed is not None
        measured = call.contact.round_trip if call.contact is not None and known else self._round_trip
        loop = asyncio.get_running_loop()
        call.stop_timers()
        call.timer = loop.call_later(measured.timeout, self._on_silence, call)
        call.doubt_timer = loop.call_later(measured.patience, call.doubt)

    def _on_silence(self, call: _Call) -> None:
        call.doubt()
        if call.transmissions < TRANSMISSIONS:
            self.repeated += 1
            self._request(call)
            return
        self.unanswered += 1
        self._contacts.silent(call.target.node, call.target.address, since=call.started)
        call.settle(_Ending.SILENCE)

    def on_own(self, request: Request) -> None:
        """A request of our own came back to us: the address that it went to is ours."""
        call = self._calls.get(request.message)
        if call is not None:
            call.settle(_Ending.ITSELF)

    def on_reply(self, reply: Reply, opened: Opened, address: Address) -> None:
        """Take an answer; raises RemoteProtocolError where nobody asked, or the proof is missing or bad."""
        call = self._match(reply.message, opened, address)
        contact = self._contacts.recognise(opened, address)
        if contact is None:
            if reply.proof is None:
                raise RemoteProtocolError("a node answers without the proof it was asked for")
            self._check(reply.proof, opened, reply.message)
            contact = self._contacts.admit(opened, address, storing=reply.storing)
        else:
            self._contacts.note(contact, opened, storing=reply.storing)
        if call.transmissions == 1:
            seconds = self._clock.elapsed() - call.sent
            contact.round_trip.sample(seconds)
            self._round_trip.sample(seconds)
        call.settle(Answered(contact=contact, answer=reply.answer))

    def on_challenge(self, challenge: Challenge, opened: Opened, address: Address) -> None:
        """Ask again with our proof over the cookie; raises RemoteProtocolError as :meth:`on_reply` does."""
        call = self._match(challenge.message, opened, address)
        if call.proof is not None:
            raise RemoteProtocolError("a node challenges twice")
        self._check(challenge.proof, opened, challenge.message)
        contact = self._contacts.recognise(opened, address)
        if contact is None:
            contact = self._contacts.admit(opened, address, storing=challenge.storing)
        else:
            self._contacts.note(contact, opened, storing=challenge.storing)
        statement = asking_statement(
            asking=self._node, boot=self._sealer.boot, answering=opened.sender, cookie=challenge.cookie
        )
        call.contact = contact
        call.cookie = challenge.cookie
        call.proof = make_proof(self._key, statement)
        call.transmissions = 0
        self._request(call)

    def _match(self, message: bytes, opened: Opened, address: Address) -> _Call:
        call = self._calls.get(message)
        if call is None or not call.matches(opened.sender, address):
            raise RemoteProtocolError("an answer to nothing that was asked there")
        return call

    def _check(self, proof: Proof, opened: Opened, message: bytes) -> None:
        statement = answering_statement(
            answering=opened.sender, boot=opened.boot, asking=self._node, message=message
        )
        if not is_proof(proof, opened.sender, statement):
            raise RemoteProtocolError("a node's proof of its id does not hold")

    def close(self) -> None:
        """End all calls as if unanswered."""
        for call in self._calls.values():
            call.settle(_Ending.SILENCE)
