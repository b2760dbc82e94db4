"""The datagram protocol of one node: seals and opens, makes askers prove themselves, passes on.

Everything a datagram causes happens at once, in the callback that brings it: no task is started for it,
nothing is raised from it, and one that is not a member's gets no answer at all.
"""

from collections import Counter
from collections.abc import Callable

from swarm.clock import Clock
from swarm.dht.addresses import Address, Family
from swarm.dht.calls import Calls
from swarm.dht.contacts import Contacts
from swarm.dht.endpoint import Endpoint
from swarm.dht.messages import (
    Answer,
    Challenge,
    Datagram,
    Knock,
    Question,
    Reply,
    Request,
    decode_body,
    encode_body,
)
from swarm.dht.proof import (
    Cookies,
    Proof,
    answering_statement,
    asking_statement,
    is_proof,
    make_proof,
    node_id,
)
from swarm.dht.rates import Rates
from swarm.dht.reachability import Reachability
from swarm.dht.seal import Envelope, Opened, Refused, Sealer
from swarm.dht.table import Contact, Table
from swarm.errors import RemoteProtocolError
from swarm.identity.keys import PrivateKey
from swarm.ids import PeerId
from swarm.log import get_log

_log = get_log(__name__)


class Protocol:
    """One node's exchange of datagrams; ``calls`` asks, ``answer`` gives proven contacts their answers.

    ``answer`` raises RemoteProtocolError where a question deserves none; ``invite_of`` says by which invite a
    peer is a member, where that is known. While ``endpoint`` is None, nothing is sent.
    """

    def __init__(
        self,
        key: PrivateKey,
        *,
        clock: Clock,
        table: Table,
        reachability: Reachability,
        answer: Callable[[Question, Contact], Answer],
        invite_of: Callable[[PeerId], str | None] = lambda _: None,
    ) -> None:
        self.node = node_id(key.public)
        self.sealer = Sealer(self.node, clock=clock)
        self.contacts = Contacts(table, clock=clock, invite_of=invite_of)
        self.calls = Calls(
            key,
            sealer=self.sealer,
            contacts=self.contacts,
            clock=clock,
            reachability=reachability,
            transmit=self._transmit,
        )
        self.counts: Counter[str] = Counter()
        self.endpoint: Endpoint | None = None
        self._key = key
        self._reachability = reachability
        self._answer = answer
        self._cookies = Cookies(clock)
        self._rates = Rates(clock)

    @property
    def families(self) -> frozenset[Family]:
        """The address families that can be reached from here."""
        return self.endpoint.families if self.endpoint is not None else frozenset()

    def on_datagram(self, data: bytes, address: Address) -> None:
        """Take one datagram from ``address``. Never raises, whatever the bytes."""
        opened = self.sealer.open(data)
        if isinstance(opened, Refused):
            self.counts[f"refused_{opened}"] += 1
            return
        self.counts["received"] += 1
        try:
            self._take(opened, address)
        except RemoteProtocolError as error:
            self.counts["refused_content"] += 1
            _log.debug("datagram refused", address=address, reason=error)

    def _take(self, opened: Opened, address: Address) -> None:
        datagram = decode_body(opened.body)
        if opened.sender == self.node:
            if isinstance(datagram, Request):
                self.calls.on_own(datagram)
            return
        self._reachability.heard(address)
        match datagram:
            case Request():
                self._on_request(datagram, opened, address)
            case Reply():
                self.calls.on_reply(datagram, opened, address)
            case Challenge():
                self.calls.on_challenge(datagram, opened, address)
            case Knock():
                pass

    def _on_request(self, request: Request, opened: Opened, address: Address) -> None:
        if not self._rates.take(address):
            self.counts["refused_rate"] += 1
            return
        contact = self.contacts.recognise(opened, address)
        if contact is not None:
            self.contacts.note(contact, opened, storing=request.storing)
        elif self._is_proven(request, opened, address):
            contact = self.contacts.admit(opened, address, storing=request.storing)
        else:
            self._challenge(request, opened, address)
            return
        answer = self._answer(request.question, contact)
        proof = self._proof(request, opened) if request.prove else None
        storing = self._reachability.stores_for(address)
        reply = Reply(message=request.message, storing=storing, proof=proof, answer=answer)
        self._transmit(reply, opened.envelope, address)

    def _is_proven(self, request: Request, opened: Opened, address: Address) -> bool:
        """Whether the request echoes a cookie of ours under the asker's signature."""
        if request.proof is None:
            return False
        if not self._cookies.check(request.cookie, address, opened.sender, opened.boot):
            return False
        statement = asking_statement(
            asking=opened.sender, boot=opened.boot, answering=self.node, cookie=request.cookie
        )
        if not is_proof(request.proof, opened.sender, statement):
            raise RemoteProtocolError("a node's proof of its id does not hold")
        return True

    def _challenge(self, request: Request, opened: Opened, address: Address) -> None:
        challenge = Challenge(
            message=request.message,
            storing=self._reachability.stores_for(address),
            cookie=self._cookies.make(address, opened.sender, opened.boot),
            proof=self._proof(request, opened),
        )
        if len(encode_body(challenge)) > len(opened.body):
            raise RemoteProtocolError("a request is smaller than the challenge that answers it")
        self._transmit(challenge, opened.envelope, address)

    def _proof(self, request: Request, opened: Opened) -> Proof:
        statement = answering_statement(
            answering=self.node, boot=self.sealer.boot, asking=opened.sender, message=request.message
        )
        return make_proof(self._key, statement)

    def _transmit(self, datagram: Datagram, envelope: Envelope, address: Address) -> bool:
        """Whether there is a way from here to ``address``; the datagram may be lost on it all the same."""
        if self.endpoint is None:
            return False
        self.counts["sent"] += 1
        self._reachability.sent(address)
        return self.endpoint.send(self.sealer.seal(encode_body(datagram), envelope), address)

    def sealed(self, datagram: Datagram, heard: Envelope | None) -> bytes:
        """``datagram`` for another port, sealed as one reads it that was ``heard`` like that."""
        return self.sealer.seal(encode_body(datagram), self.sealer.best(heard))

    def close(self) -> None:
        """Stop sending, and end the calls under way as if unanswered."""
        self.endpoint = None
        self.calls.close()
