"""Bodies of datagrams: requests, and what may come back.

::

    A -> B   Request              with ``proof`` where B is known to want one
    B -> A   Challenge            where B has not seen A's proof: here is a cookie, and my own proof
    A -> B   Request              once more, now with A's proof over the cookie
    B -> A   Reply                with ``proof`` where A asked for it
    B -> A   Knock                where A has asked for one, from another port of B's

A request is never smaller than a challenge (it is padded), and a reply larger than its request goes only to
an address that has echoed a cookie. Requests change nothing when repeated, so they may be sent again: each
time with a message id of its own, so that the answer says which one it is to.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from swarm.dht.limits import MAX_KNOWN, MAX_PAGE_RECORDS, K
from swarm.dht.proof import COOKIE_BYTES, Proof
from swarm.dht.seal import MAX_BODY_BYTES
from swarm.errors import RemoteProtocolError
from swarm.ids import SHORT_ID_BYTES
from swarm.wire.limits import MAX_RECORD_BYTES

MESSAGE_ID_BYTES: Final = 16
LEAST_REQUEST_BYTES: Final = 176
"""Bytes that a request is padded to; a challenge has about 140."""

KNOWN_BYTES: Final = 8
"""Bytes of a record's tag in :attr:`FindRecords.known`."""

SEQUENCE_BYTES: Final = 8
CURSOR_BYTES: Final = SEQUENCE_BYTES + SHORT_ID_BYTES
"""Bytes of a cursor: sequence and publisher of the last record sent."""

Id = Annotated[bytes, Meta(min_length=SHORT_ID_BYTES, max_length=SHORT_ID_BYTES)]
MessageId = Annotated[bytes, Meta(min_length=MESSAGE_ID_BYTES, max_length=MESSAGE_ID_BYTES)]
Cookie = Annotated[bytes, Meta(max_length=COOKIE_BYTES)]
Record = Annotated[bytes, Meta(max_length=MAX_RECORD_BYTES)]
Sequence = Annotated[int, Meta(ge=0, lt=2**53)]


class _Body(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True):
    pass


class Ping(_Body, frozen=True, tag=1):
    """Are you there?"""


class FindNodes(_Body, frozen=True, tag=2):
    """Which nodes do you know closest to ``target``, at addresses of the families that I can reach?"""

    target: Id
    ipv4: bool
    ipv6: bool


class FindRecords(_Body, frozen=True, tag=3):
    """Which records do you hold under ``key``, the newest first?

    Left out are those whose tags (:func:`record_tag`) are in ``known``, and those that do not come after
    ``cursor`` (a reply's, or empty). With ``publisher``, only that one's record is meant.
    """

    key: Id
    known: Annotated[bytes, Meta(max_length=KNOWN_BYTES * MAX_KNOWN)] = b""
    cursor: Annotated[bytes, Meta(max_length=CURSOR_BYTES)] = b""
    publisher: Annotated[bytes, Meta(max_length=SHORT_ID_BYTES)] = b""


class Store(_Body, frozen=True, tag=4):
    """Keep these records under ``key``."""

    key: Id
    records: Annotated[tuple[Record, ...], Meta(min_length=1, max_length=MAX_PAGE_RECORDS)]


class Pong(_Body, frozen=True, tag=5):
    """I am here."""


class NodeAddress(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node and its packed address (4 or 16 bytes of host, 2 of port)."""

    node: Id
    address: Annotated[bytes, Meta(min_length=6, max_length=18)]


class Nodes(_Body, frozen=True, tag=6):
    """The closest nodes that the sender knows, closest first."""

    nodes: Annotated[tuple[NodeAddress, ...], Meta(max_length=K)]


class Records(_Body, frozen=True, tag=7):
    """As many records as fit, the newest first; ``cursor`` is empty after the last one."""

    records: Annotated[tuple[Record, ...], Meta(max_length=MAX_PAGE_RECORDS)]
    cursor: Annotated[bytes, Meta(max_length=CURSOR_BYTES)]


class Stored(_Body, frozen=True, tag=8):
    """For each record of the request, the sequence now held for its publisher; 0 where none is."""

    held: Annotated[tuple[Sequence, ...], Meta(max_length=MAX_PAGE_RECORDS)]


class AskKnock(_Body, frozen=True, tag=9):
    """Send a :class:`Knock` to where this comes from, out of a port that nobody sends to."""


Question = Ping | FindNodes | FindRecords | Store | AskKnock
Answer = Pong | Nodes | Records | Stored


class _Datagram(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag=True):
    message: MessageId
    storing: bool
    """Whether the sender holds records for others; one that does not enters no routing table."""


class Request(_Datagram, frozen=True, kw_only=True, tag=1):
    """A question. ``prove`` asks for the receiver's proof in the reply."""

    prove: bool
    cookie: Cookie
    """The receiver's, with ``proof``; else empty."""
    proof: Proof | None
    question: Question
    padding: Annotated[bytes, Meta(max_length=LEAST_REQUEST_BYTES)] = b""


class Reply(_Datagram, frozen=True, kw_only=True, tag=2):
    """The answer to the request with this message id."""

    proof: Proof | None
    answer: Answer


class Challenge(_Datagram, frozen=True, kw_only=True, tag=3):
    """Ask again with a proof over this cookie."""

    cookie: Cookie
    proof: Proof


class Knock(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """Says only that it came. It gets no answer: that would open the way that it is to show open."""


Datagram = Request | Reply | Challenge | Knock

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Datagram)


def encode_body(datagram: Datagram) -> bytes:
    """The body to seal; a request is padded to ``LEAST_REQUEST_BYTES``."""
    body = _ENCODER.encode(datagram)
    if isinstance(datagram, Request) and len(body) < LEAST_REQUEST_BYTES:
        padding = bytes(LEAST_REQUEST_BYTES - len(body))
        body = _ENCODER.encode(msgspec.structs.replace(datagram, padding=padding))
    return body


def decode_body(body: bytes) -> Datagram:
    """The datagram in an opened body; raises RemoteProtocolError for anything else."""
    if len(body) > MAX_BODY_BYTES:
        raise RemoteProtocolError(f"a datagram's body has {len(body)} bytes, over {MAX_BODY_BYTES}")
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a datagram does not parse: {error}") from None


def record_tag(publisher: bytes, sequence: int) -> bytes:
    """The short name of one version of one publisher's record, for :attr:`FindRecords.known`."""
    return hashlib.sha256(publisher + sequence.to_bytes(SEQUENCE_BYTES, "big")).digest()[:KNOWN_BYTES]


def fill(records: Iterable[bytes]) -> list[bytes]:
    """The first of ``records`` that fit together into one datagram, request or reply; at least one does."""
    taken: list[bytes] = []
    room = _ROOM_BYTES
    for record in records:
        room -= len(record) + _RECORD_OVERHEAD_BYTES
        if room < 0 or len(taken) == MAX_PAGE_RECORDS:
            break
        taken.append(record)
    return taken


_FULL_PROOF: Final = Proof(bytes(32), bytes(64))
_RECORD_OVERHEAD_BYTES: Final = 3
_ROOM_BYTES: Final = MAX_BODY_BYTES - max(
    len(
        _ENCODER.encode(
            Reply(
                message=bytes(MESSAGE_ID_BYTES),
                storing=True,
                proof=_FULL_PROOF,
                answer=Records((b"",) * MAX_PAGE_RECORDS, bytes(CURSOR_BYTES)),
            )
        )
    ),
    len(
        _ENCODER.encode(
            Request(
                message=bytes(MESSAGE_ID_BYTES),
                storing=True,
                prove=True,
                cookie=bytes(COOKIE_BYTES),
                proof=_FULL_PROOF,
                question=Store(bytes(SHORT_ID_BYTES), (b"",) * MAX_PAGE_RECORDS),
            )
        )
    ),
)
