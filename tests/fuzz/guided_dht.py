"""Guided target: what arrives at the DHT's port, as it is, or sealed by a member who has proved its key."""

from guided_target import Target

from swarm.dht.addresses import Address
from swarm.dht.answering import Answering
from swarm.dht.limits import MAX_DATAGRAM_BYTES
from swarm.dht.messages import Ping, Request, encode_body
from swarm.dht.proof import node_id
from swarm.dht.protocol import Protocol
from swarm.dht.reachability import Reachability
from swarm.dht.seal import MAX_BODY_BYTES, Sealer
from swarm.dht.storage import RecordStorage
from swarm.dht.table import Table
from swarm.identity.keys import PrivateKey
from swarm.ids import swarm_id
from swarm.testing.clock import ManualClock
from swarm.testing.proving import proven

KEY = bytes(range(32))
OWN, MEMBER = PrivateKey.from_raw(bytes([1]) * 32), PrivateKey.from_raw(bytes([2]) * 32)
THERE = Address.of("10.0.0.2", 7423)


class Node:
    """A node without a loop or a socket, that keeps what it would send, and a member who talks to it."""

    port = 7423
    is_sound = True
    families = frozenset({"IPv4"})

    def __init__(self) -> None:
        clock = ManualClock()
        self.table = Table(node_id(OWN.public), clock=clock)
        self.storage = RecordStorage(node_id(OWN.public), swarm=swarm_id(bytes(32)))
        reachability = Reachability("always", clock=clock)
        answering = Answering(table=self.table, storage=self.storage, clock=clock, reachability=reachability)
        self.protocol = Protocol(
            OWN, clock=clock, table=self.table, reachability=reachability, answer=answering.answer
        )
        self.protocol.sealer.set_epoch(1, KEY)
        self.protocol.endpoint = self
        self.sent: list[bytes] = []
        self.member = Sealer(node_id(MEMBER.public), clock=clock)
        self.member.set_epoch(1, KEY)
        self._prove()

    def close(self) -> None:
        """Nothing is open."""

    def send(self, data: bytes, address: Address) -> bool:
        """The endpoint of the node."""
        assert address == THERE
        assert len(data) <= MAX_DATAGRAM_BYTES
        self.sent.append(data)
        return True

    def deliver(self, body: bytes) -> None:
        """A datagram of the member."""
        self.protocol.on_datagram(self.member.seal(body, self.member.best(None)), THERE)

    def _prove(self) -> None:
        ask = Request(message=bytes(16), storing=True, prove=True, question=Ping(), cookie=b"", proof=None)
        self.deliver(encode_body(ask))
        own = node_id(OWN.public)
        again = proven(ask, self.sent[-1], key=MEMBER, sealer=self.member, node=own)
        self.deliver(encode_body(again))
        assert len(self.sent) == 2


def parse_datagram(data: bytes) -> None:
    """Never raises, never answers what no member sealed, and never with more than one datagram."""
    if not data:
        return
    node = Node()
    if data[0] & 1:
        node.deliver(data[1:][:MAX_BODY_BYTES])
        assert len(node.sent) <= 3
    else:
        node.protocol.on_datagram(data[1:], THERE)
        assert len(node.sent) == 2
    node.table.check()
    node.storage.check()


TARGETS = {"datagrams": Target(parse=parse_datagram, packed=1)}
