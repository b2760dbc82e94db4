"""Asking: requests under way, matched to their answers, repeated once, and given up in time."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from swarm.clock import Clock
from swarm.dht.addresses import Address
from swarm.dht.contacts import Contacts
from swarm.dht.limits import FRESH_SECONDS, MAX_LATE, TRANSMISSIONS
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
    messages: list[bytes] = field(default_factory=list)
    transmissions: int = 0
    cookie: bytes = b""
    proof: Proof | None = None
    timer: asyncio.TimerHandle | None = None
    doubt_timer: asyncio.TimerHandle | None = None
    doubted: bool = False

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """One datagram of a call, by its message id, which is its own: so an answer says how long it took.

    ``call`` is None once that has ended.
    """

    target: Target
    when: float
    call: _Call | None

    def matches(self, sender: bytes, address: Address) -> bool:
        """Whether an answer to it comes from the one that was asked."""
        return address == self.target.address and self.target.node in {None, sender}


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
        self._sent: dict[bytes, _Sent] = {}
        self._late: OrderedDict[bytes, _Sent] = OrderedDict()
        """The last that was sent for calls that have ended: an answer still shows that its node lives."""
        self._round_trip = RoundTrip()
        self.made = self.repeated = self.unanswered = 0

    def __len__(self) -> int:
        """Datagrams whose answers are waited for."""
        return len(self._sent)

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
        self.made += 1
        try:
            self._request(call)
            outcome = await call.outcome
        finally:
            call.settle(_Ending.SILENCE)
            self._end(call)
        match outcome:
            case Answered():
                return outcome
            case _Ending.ITSELF:
                raise ItselfError(f"{target.address} is this node itself")
            case _Ending.NO_ROUTE:
                raise NoRouteError(f"there is no {target.address.family} from here to {target.address}")
            case _Ending.SILENCE:
                raise RemoteTimeoutError(f"{target.address} does not answer")

    def _end(self, call: _Call) -> None:
        """Wait for no answer any more; those that come all the same will be known as such for a while."""
        for message in call.messages:
            sent = self._sent.pop(message, None)
            if sent is not None:
                self._late[message] = replace(sent, call=None)
        while len(self._late) > MAX_LATE:
            self._late.popitem(last=False)

    def _request(self, call: _Call) -> None:
        """Send the request, sealed as the other is known to read it, and start the wait."""
        contact = call.contact
        heard = contact.envelope if contact is not None else None
        envelope = self._sealer.best(heard) if not call.transmissions else self._sealer.compatible(heard)
        message = secrets.token_bytes(MESSAGE_ID_BYTES)
        request = Request(
            message=message,
            storing=self._reachability.stores_for(call.target.address),
            prove=contact is None,
            cookie=call.cookie,
            proof=call.proof,
            question=call.question,
        )
        call.transmissions += 1
        call.messages.append(message)
        self._sent[message] = _Sent(target=call.target, when=self._clock.elapsed(), call=call)
        if self._transmit(request, envelope, call.target.address):
            self._wait(call)
        else:
            call.settle(_Ending.NO_ROUTE)

    def _wait(self, call: _Call) -> None:
        measured = self._round_trips(call.contact)
        timeout = max(one.timeout for one in measured)
        patience = max(one.patience for one in measured)
        loop = asyncio.get_running_loop()
        call.stop_timers()
        call.timer = loop.call_later(timeout, self._on_silence, call)
        if patience < timeout and not call.doubted:
            call.doubt_timer = loop.call_later(patience, call.doubt)

    def _round_trips(self, contact: Contact | None) -> tuple[RoundTrip, ...]:
        """What says how long an answer may take: everybody's, too, where the contact's are old."""
        if contact is None or contact.round_trip.smoothed is None:
            return (self._round_trip,)
        if self._clock.elapsed() - contact.answered < FRESH_SECONDS:
            return (contact.round_trip,)
        return contact.round_trip, self._round_trip

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
        sent = self._sent.get(request.message)
        if sent is not None and sent.call is not None:
            sent.call.settle(_Ending.ITSELF)

    def on_reply(self, reply: Reply, opened: Opened, address: Address) -> None:
        """Take an answer; raises RemoteProtocolError where nobody asked, or the proof is missing or bad.

        One that comes too late for its call still says that the node is there, and how long it takes.
        """
        sent = self._match(reply.message, opened, address)
        contact = self._contacts.recognise(opened, address)
        if contact is None:
            if reply.proof is None:
                raise RemoteProtocolError("a node answers without the proof it was asked for")
            self._check(reply.proof, opened, reply.message)
            contact = self._contacts.admit(opened, address, storing=reply.storing)
        else:
            self._contacts.note(contact, opened, storing=reply.storing)
        self._measure(reply.message, sent, contact)
        if sent.call is not None:
            sent.call.settle(Answered(contact=contact, answer=reply.answer))

    def on_challenge(self, challenge: Challenge, opened: Opened, address: Address) -> None:
        """Ask again with our proof over the cookie; raises RemoteProtocolError as :meth:`on_reply` does."""
        sent = self._match(challenge.message, opened, address)
        call = sent.call
        if call is not None and call.proof is not None:
            raise RemoteProtocolError("a node challenges twice")
        self._check(challenge.proof, opened, challenge.message)
        contact = self._contacts.recognise(opened, address)
        if contact is None:
            contact = self._contacts.admit(opened, address, storing=challenge.storing)
        else:
            self._contacts.note(contact, opened, storing=challenge.storing)
        self._measure(challenge.message, sent, contact)
        if call is None:
            return
        statement = asking_statement(
            asking=self._node, boot=self._sealer.boot, answering=opened.sender, cookie=challenge.cookie
        )
        call.contact = contact
        call.cookie = challenge.cookie
        call.proof = make_proof(self._key, statement)
        call.transmissions = 0
        self._request(call)

    def _match(self, message: bytes, opened: Opened, address: Address) -> _Sent:
        sent = self._sent.get(message) or self._late.get(message)
        if sent is None or not sent.matches(opened.sender, address):
            raise RemoteProtocolError("an answer to nothing that was asked there")
        return sent

    def _measure(self, message: bytes, sent: _Sent, contact: Contact) -> None:
        """Count the round trip of one datagram, once."""
        self._sent.pop(message, None)
        self._late.pop(message, None)
        contact.answered = self._clock.elapsed()
        for round_trip in (contact.round_trip, self._round_trip):
            round_trip.sample(contact.answered - sent.when)

    def _check(self, proof: Proof, opened: Opened, message: bytes) -> None:
        statement = answering_statement(
            answering=opened.sender, boot=opened.boot, asking=self._node, message=message
        )
        if not is_proof(proof, opened.sender, statement):
            raise RemoteProtocolError("a node's proof of its id does not hold")

    def close(self) -> None:
        """End all calls as if unanswered."""
        for sent in self._sent.values():
            if sent.call is not None:
                sent.call.settle(_Ending.SILENCE)
