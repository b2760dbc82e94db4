"""Answering: what this node tells proven contacts, from its table and its storage."""

from collections.abc import Callable
from typing import assert_never

from swarm.clock import Clock
from swarm.dht.limits import K
from swarm.dht.messages import (
    KNOWN_BYTES,
    SEQUENCE_BYTES,
    Answer,
    AskKnock,
    FindNodes,
    FindRecords,
    NodeAddress,
    Nodes,
    Ping,
    Pong,
    Question,
    Records,
    Store,
    Stored,
    fill,
    record_tag,
)
from swarm.dht.reachability import Reachability
from swarm.dht.storage import Held, RecordStorage
from swarm.dht.table import Contact, Table
from swarm.errors import RemoteProtocolError


class Answering:
    """The answering side of a node. It takes no records for those whom it is not ``storing`` for.

    ``on_ask_knock`` hears who wants to be knocked at.
    """

    def __init__(
        self, *, table: Table, storage: RecordStorage, clock: Clock, reachability: Reachability
    ) -> None:
        self._table = table
        self._storage = storage
        self._clock = clock
        self._reachability = reachability
        self.on_ask_knock: Callable[[Contact], None] | None = None

    def answer(self, question: Question, asker: Contact) -> Answer:
        """The answer to ``question``; raises RemoteProtocolError for a record that nobody should send."""
        match question:
            case Ping():
                return Pong()
            case AskKnock():
                if self.on_ask_knock is not None:
                    self.on_ask_knock(asker)
                return Pong()
            case FindNodes():
                return self._nodes(question, asker)
            case FindRecords():
                return self._records(question)
            case Store():
                return self._stored(question, asker)
            case _:
                assert_never(question)

    def _nodes(self, question: FindNodes, asker: Contact) -> Nodes:
        reachable = {"IPv4": question.ipv4, "IPv6": question.ipv6}

        def is_of_use(contact: Contact) -> bool:
            return (
                not contact.silences
                and contact.id != asker.id
                and reachable[contact.family]
                and contact.nameable
                and (asker.loopback or not contact.loopback)
            )

        named = self._table.closest(question.target, K, of=is_of_use)
        return Nodes(tuple(NodeAddress(contact.id, contact.packed) for contact in named))

    def _records(self, question: FindRecords) -> Records:
        tags = question.known
        known = {tags[i : i + KNOWN_BYTES] for i in range(0, len(tags), KNOWN_BYTES)}
        wanted = [
            held
            for held in self._storage.read(question.key, now=self._clock.wall())
            if question.publisher in {b"", held.publisher}
            and _cursor(held) > question.cursor
            and record_tag(held.publisher, held.record.sequence) not in known
        ]
        page = fill(held.data for held in wanted)
        cursor = _cursor(wanted[len(page) - 1]) if len(page) < len(wanted) else b""
        return Records(tuple(page), cursor)

    def _stored(self, question: Store, asker: Contact) -> Stored:
        if not self._reachability.stores_for(asker.address):
            return Stored((0,) * len(question.records))
        source = asker.address.neighbourhood
        return Stored(tuple(self._offer(question.key, record, source) for record in question.records))

    def _offer(self, key: bytes, record: bytes, source: str) -> int:
        try:
            return self._storage.offer(key, record, now=self._clock.wall(), source=source)
        except RemoteProtocolError:
            # The others in this datagram may be good: a publisher's clock is not the sender's fault.
            return 0


def _cursor(held: Held) -> bytes:
    """Sorts as bytes the way records are sent, the newest first."""
    rank = (1 << 8 * SEQUENCE_BYTES) - 1 - held.record.sequence
    return rank.to_bytes(SEQUENCE_BYTES, "big") + held.publisher
