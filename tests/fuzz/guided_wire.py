"""Guided targets: frames, messages, graphs, records."""

import msgspec
from guided_target import Target, refusing

from swarm.data.blobs import get_graph, put_blob
from swarm.data.blocks import MemoryBlockStore
from swarm.errors import RemoteProtocolError
from swarm.graph.cut import cut
from swarm.graph.dag import decode_graph, encode_graph
from swarm.protocol.session import Session
from swarm.protocol.session_events import Tick, Welcome, Writable
from swarm.services.job_check import check_manifest, check_plan, check_state, check_weights
from swarm.services.job_files import KeptJob
from swarm.testing.hellos import plain_accept, plain_hello
from swarm.testing.manifests import sample_manifest
from swarm.testing.sessions import pour
from swarm.wire import frames
from swarm.wire.messages.registry import MESSAGES, decode_message, encode_message
from swarm.wire.records.manifest import Cancellation, Manifest
from swarm.wire.records.outcome import Outcome
from swarm.wire.records.peer import check_dates, decode_record, parse_record
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import JobSnapshot

NUMBERS = sorted(MESSAGES)
RECORDS = (Manifest, Plan, Outcome, Cancellation, KeptJob, JobSnapshot)
GREETING = frames.message_frame(plain_hello()) + frames.message_frame(plain_accept())
MANIFEST = sample_manifest()


def parse_frames(data: bytes) -> None:
    """A session takes ``data`` in pieces, once it is up where the first byte is odd."""
    if not data:
        return
    session = Session(plain_hello(), dialed=bool(data[0] & 2), now=0.0)
    stream = (GREETING if data[0] & 1 else b"") + data[1:]
    welcomed, now = False, 1.0
    for count, event in enumerate(pour(stream, session, piece=(data[0] >> 2) ** 2 or len(stream))):
        session.handle(event, now=now)
        if session.greeting.peer_hello is not None and session.state == "greeting" and not welcomed:
            welcomed = True
            session.handle(Welcome(plain_accept()), now=now)
        if not count % 16:
            session.check()
    for now in (1.0, 30.0, 60.0, 90.0):
        session.handle(Writable(0), now=now)
        session.handle(Tick(), now=now)
        session.check()


def number_of(first: int) -> int:
    """The number of the message in an input with this first byte; any, where no message has that one."""
    return first if first in MESSAGES else NUMBERS[first % len(NUMBERS)]


def parse_message(data: bytes) -> None:
    """The first byte chooses the number; what is read is written and read again as the same."""
    if data:
        number = number_of(data[0])
        with refusing(RemoteProtocolError):
            message = decode_message(number, data[1:])
            assert decode_message(number, encode_message(message)) == message


def parse_graph(data: bytes) -> None:
    """A graph as it is, or as a block."""
    if not data:
        return
    with refusing(RemoteProtocolError):
        if data[0] & 1:
            store = MemoryBlockStore(1 << 20)
            graph = get_graph(store, put_blob(store, data[1:]))
            assert graph is not None
        else:
            graph = decode_graph(data[1:])
        assert decode_graph(encode_graph(graph)) == graph
        middle = len(graph.operators) // 2
        cut(graph, [0, middle, len(graph.operators)] if middle else [0, len(graph.operators)])


def parse_record_of_any_kind(data: bytes) -> None:
    """The first byte chooses the record; what parses is judged against a manifest."""
    if not data:
        return
    kind = data[0] % (len(RECORDS) + 1)
    with refusing(RemoteProtocolError):
        if kind == len(RECORDS):
            check_dates(parse_record(data[1:]), now=1.75e9)
            decode_record(data[1:])
            return
        try:
            record = msgspec.msgpack.decode(data[1:], type=RECORDS[kind])
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(str(error)) from None
        match record:
            case Manifest():
                check_manifest(record)
            case Plan():
                check_plan(record, MANIFEST)
            case Outcome():
                check_weights(record.weights, MANIFEST)
            case JobSnapshot():
                check_state(record, record.step, MANIFEST)


TARGETS = {
    "frames": Target(parse=parse_frames),
    "messages": Target(parse=parse_message, packed=1),
    "graphs": Target(parse=parse_graph, packed=1),
    "records": Target(parse=parse_record_of_any_kind, packed=1),
}
