"""Parsers of messages and graphs accept, or raise their documented error, whatever the bytes."""

import contextlib
import unicodedata

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.errors import RemoteProtocolError
from swarm.graph.dag import decode_graph
from swarm.wire.messages.coordination import StageFailed
from swarm.wire.messages.registry import MESSAGES, decode_message, encode_message
from swarm.wire.tensors import TensorHeader, check_header
from swarm.wire.text import printable

NUMBERS = sorted(MESSAGES)

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=60)
    | st.binary(max_size=60),
    lambda inner: st.lists(inner, max_size=12),
    max_leaves=40,
)
"""Anything that MessagePack can say: what passes its syntax and fails by meaning."""


@pytest.mark.parametrize("number", NUMBERS)
@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=200) | plain.map(msgspec.msgpack.encode))
def test_messages(number: int, body: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert isinstance(decode_message(number, body), MESSAGES[number])


@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=300) | plain.map(msgspec.msgpack.encode))
def test_graphs(body: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_graph(body)


sizes = st.lists(st.integers(0, 2**48) | st.integers(0, 8), max_size=6).map(tuple)


@settings(max_examples=500, deadline=None)
@given(
    dtype=st.sampled_from(["float32", "bfloat16", "bool", "int64"]),
    shape=sizes,
    strides=sizes,
    offset=st.integers(0, 63),
)
def test_a_tensor_header_that_passes_fits_its_limits(
    dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    header = TensorHeader(dtype, shape, strides, offset)  # type: ignore[arg-type]
    with contextlib.suppress(RemoteProtocolError):
        check_header(header)
        assert header.payload_bytes <= 2**30
        assert header.extent * 1 <= 4 * 2**30 + 64


def test_an_unknown_number_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="no message number 9999"):
        decode_message(9999, b"")


hostile = st.text(alphabet=st.characters(categories=["Cc", "Cf", "Zl", "Zp", "L"]), max_size=40)


@settings(max_examples=300, deadline=None)
@given(text=hostile)
def test_what_is_made_printable_passes_and_what_would_move_a_cursor_does_not(text: str) -> None:
    number = StageFailed.NUMBER
    fit = StageFailed(job="a" * 52, generation=1, stage=0, sentence=printable(text))
    assert decode_message(number, encode_message(fit)) == fit
    if any(unicodedata.category(c) in {"Cc", "Zl", "Zp"} for c in text):
        unfit = StageFailed(job="a" * 52, generation=1, stage=0, sentence=text)
        with pytest.raises(RemoteProtocolError):
            decode_message(number, encode_message(unfit))
