import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm.dht.limits import MAX_KNOWN, MAX_PAGE_RECORDS, K
from swarm.dht.messages import (
    CURSOR_BYTES,
    KNOWN_BYTES,
    LEAST_REQUEST_BYTES,
    Challenge,
    Datagram,
    FindNodes,
    FindRecords,
    NodeAddress,
    Nodes,
    Ping,
    Pong,
    Proof,
    Question,
    Records,
    Reply,
    Request,
    Store,
    Stored,
    decode_body,
    encode_body,
    fill,
    record_tag,
)
from swarm.dht.seal import MAX_BODY_BYTES
from swarm.errors import RemoteProtocolError
from swarm.wire.limits import MAX_RECORD_BYTES

ID, MESSAGE, COOKIE = bytes(range(20)), bytes(range(16)), bytes(range(100, 116))
PROOF = Proof(bytes(32), bytes(64))


def request(question: Question, *, proof: Proof | None = PROOF) -> Request:
    cookie = COOKIE if proof else b""
    return Request(message=MESSAGE, storing=True, prove=True, cookie=cookie, proof=proof, question=question)


CHALLENGE = Challenge(message=MESSAGE, storing=True, cookie=COOKIE, proof=PROOF)

LARGEST: list[Datagram] = [
    request(Ping()),
    request(FindNodes(ID, True, True)),
    request(FindRecords(ID, bytes(KNOWN_BYTES * MAX_KNOWN), bytes(CURSOR_BYTES), ID)),
    request(Store(ID, tuple(fill([bytes(MAX_RECORD_BYTES)] * 3)))),
    request(Store(ID, tuple(fill([bytes(60)] * 99)))),
    Reply(message=MESSAGE, storing=True, proof=PROOF, answer=Pong()),
    Reply(message=MESSAGE, storing=True, proof=PROOF, answer=Nodes((NodeAddress(ID, bytes(18)),) * K)),
    Reply(
        message=MESSAGE,
        storing=True,
        proof=PROOF,
        answer=Records(tuple(fill([bytes(60)] * 99)), bytes(CURSOR_BYTES)),
    ),
    Reply(message=MESSAGE, storing=True, proof=PROOF, answer=Stored((2**53 - 1,) * MAX_PAGE_RECORDS)),
    CHALLENGE,
]


@pytest.mark.parametrize("datagram", LARGEST)
def test_the_largest_of_each_kind_fits_into_a_datagram_and_comes_back(datagram: Datagram) -> None:
    body = encode_body(datagram)
    assert len(body) <= MAX_BODY_BYTES
    back = decode_body(body)
    assert type(back) is type(datagram)
    assert encode_body(back) == body


@pytest.mark.parametrize("question", [Ping(), FindNodes(ID, True, True), FindRecords(ID), Store(ID, (b"",))])
@pytest.mark.parametrize("proof", [None, PROOF])
def test_no_request_is_smaller_than_a_challenge(question: Question, proof: Proof | None) -> None:
    assert (
        len(encode_body(CHALLENGE)) <= LEAST_REQUEST_BYTES <= len(encode_body(request(question, proof=proof)))
    )


def test_golden_bytes() -> None:
    """An array of tag and fields; each answer and question the same."""
    assert encode_body(Reply(message=MESSAGE, storing=False, proof=None, answer=Pong())).hex() == (
        "9502c410" + MESSAGE.hex() + "c2c09105"
    )
    assert encode_body(request(FindNodes(ID, True, True))).hex().startswith(
        "9801c410" + MESSAGE.hex() + "c3c3c410" + COOKIE.hex() + "92c420" + "00" * 32 + "c440" + "00" * 64
        + "9402c414" + ID.hex() + "c3c3c4"
    )  # fmt: skip
    assert encode_body(CHALLENGE).hex() == (
        "9503c410" + MESSAGE.hex() + "c3c410" + COOKIE.hex() + "92c420" + "00" * 32 + "c440" + "00" * 64
    )


@given(st.binary(max_size=1200))
def test_any_bytes_decode_or_raise_the_documented_error(body: bytes) -> None:
    try:
        decode_body(body)
    except RemoteProtocolError:
        return


@pytest.mark.parametrize("datagram", LARGEST)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_datagrams_decode_or_raise_the_documented_error(
    datagram: Datagram, data: st.DataObject
) -> None:
    body = bytearray(encode_body(datagram))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_body(bytes(body[: data.draw(st.integers(0, len(body)))]))
    except RemoteProtocolError:
        return


def test_an_oversized_body_is_refused_unparsed() -> None:
    with pytest.raises(RemoteProtocolError, match="over"):
        decode_body(bytes(MAX_BODY_BYTES + 1))


@given(st.lists(st.integers(0, MAX_RECORD_BYTES), max_size=40))
def test_a_page_takes_the_first_that_fit_and_at_least_one(sizes: list[int]) -> None:
    records = [bytes(size) for size in sizes]
    page = fill(records)
    assert page == records[: len(page)]
    assert bool(page) == bool(records)
    reply = Reply(
        message=MESSAGE, storing=True, proof=PROOF, answer=Records(tuple(page), bytes(CURSOR_BYTES))
    )
    assert len(encode_body(reply)) <= MAX_BODY_BYTES


def test_tags_tell_versions_and_publishers_apart() -> None:
    tags = {record_tag(publisher, sequence) for publisher in (ID, bytes(20)) for sequence in (0, 1, 2**52)}
    assert len(tags) == 6
    assert {len(tag) for tag in tags} == {KNOWN_BYTES}
