"""Whatever the bytes, identity's parsers accept them or raise their documented error, and nothing else."""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import MisuseError, RemoteProtocolError, RemoteRefusalError
from swarm.identity.admission import admit, check_admission
from swarm.identity.authority import Authority
from swarm.identity.chain import check_chain
from swarm.identity.envelope import ADMISSION, MANIFEST, open_envelope, seal
from swarm.identity.invite import Invite, check_addresses
from swarm.identity.invite_text import PREFIX, VERSION, read_text, write_text
from swarm.identity.keys import PrivateKey, verify
from swarm.identity.membership import Identity
from swarm.identity.profile import read_authority, read_delegate, read_leaf
from swarm.identity.rights import ALL_RIGHTS
from swarm.identity.terms import decode_terms, encode_terms
from swarm.identity.uses import UseLedger
from swarm.ids import base32

NOW = 1_800_000_000.0


@cache
def member() -> Identity:
    authority = Authority.create("lab", public=False, now=NOW)
    invite = authority.issue(
        label="a", uses=3, join_by=NOW + 9, rights=ALL_RIGHTS, addresses=("192.0.2.1:7423",), now=NOW
    )
    return Identity.join(invite, key=PrivateKey.generate(), now=NOW)


@st.composite
def damaged(draw: st.DrawFn, good: Callable[[], bytes]) -> bytes:
    """Good bytes after some cuts, insertions and replacements."""
    data = good()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.one_of(st.integers(0, 4), st.integers(0, 400)))
        data = data[:start] + draw(st.binary(max_size=8)) + data[start + length :]
    return data


def bytes_like(good: Callable[[], bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=600), damaged(good))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
"""What MessagePack can hold."""


def accepts_or_raises(error: type[Exception], parse: Callable[..., object], *args: Any, **named: Any) -> None:
    """Any other exception fails the test by itself; people see the message, so it has to be one line."""
    sentence = ""
    try:
        parse(*args, **named)
    except error as caught:
        sentence = str(caught)
    assert "\n" not in sentence


@given(st.text(max_size=2000))
def test_any_text_as_an_invite(text: str) -> None:
    accepts_or_raises(MisuseError, Invite.decode, text)
    accepts_or_raises(MisuseError, Invite.decode, PREFIX + VERSION + text)
    accepts_or_raises(MisuseError, check_addresses, (text,))


@given(damaged(lambda: member().invite.encode().encode()))
def test_damaged_invite_text(data: bytes) -> None:
    accepts_or_raises(MisuseError, Invite.decode, data.decode("utf-8", errors="replace"))


@given(st.binary(max_size=600))
def test_any_bytes_in_the_armour_of_an_invite(data: bytes) -> None:
    accepts_or_raises(MisuseError, Invite.decode, PREFIX + VERSION + base32(data))


@given(st.one_of(bytes_like(lambda: read_text(member().invite.encode())), VALUES.map(msgspec.msgpack.encode)))
def test_any_bytes_as_the_content_of_an_invite(data: bytes) -> None:
    accepts_or_raises(MisuseError, Invite.decode, write_text(data))


@given(st.lists(st.one_of(VALUES, bytes_like(lambda: member().leaf)), min_size=5, max_size=5))
def test_any_parts_of_an_invite(parts: list[object]) -> None:
    accepts_or_raises(MisuseError, Invite.decode, write_text(msgspec.msgpack.encode(parts)))


@given(
    bytes_like(lambda: member().authority),
    bytes_like(lambda: member().invite.delegate),
    bytes_like(lambda: member().leaf),
)
def test_any_bytes_as_certificates(authority: bytes, delegate: bytes, leaf: bytes) -> None:
    accepts_or_raises(RemoteRefusalError, read_authority, authority)
    accepts_or_raises(RemoteRefusalError, read_delegate, delegate)
    accepts_or_raises(RemoteRefusalError, read_leaf, leaf)
    for chain in ((delegate, leaf), (member().invite.delegate, leaf), (delegate, member().leaf)):
        accepts_or_raises(RemoteRefusalError, check_chain, chain, member().authority, now=NOW)


@given(st.one_of(bytes_like(lambda: seal(member(), MANIFEST, b"x")), VALUES.map(msgspec.msgpack.encode)))
def test_any_bytes_as_an_envelope(data: bytes) -> None:
    accepts_or_raises(
        RemoteProtocolError, open_envelope, data, domain=MANIFEST, authority=member().authority, now=NOW
    )


@given(
    st.one_of(
        bytes_like(lambda: admit(member(), member().member, now=NOW)), VALUES.map(msgspec.msgpack.encode)
    )
)
def test_any_bytes_as_an_admission(data: bytes) -> None:
    named = {"authority": member().authority, "member": member().member, "now": NOW}
    accepts_or_raises(RemoteProtocolError, check_admission, data, **named)
    accepts_or_raises(RemoteProtocolError, check_admission, seal(member(), ADMISSION, data), **named)


@given(st.one_of(bytes_like(lambda: encode_terms(member().invite.terms)), VALUES.map(msgspec.msgpack.encode)))
def test_any_bytes_as_terms(data: bytes) -> None:
    accepts_or_raises(ValueError, decode_terms, data)


@given(bytes_like(lambda: b'{"format":1,"invites":{"a":["b"]}}'))
def test_any_bytes_as_a_ledger(data: bytes) -> None:
    accepts_or_raises(ValueError, UseLedger.decode, data)


@given(st.binary(max_size=40), st.binary(max_size=80), st.binary(max_size=80))
def test_any_bytes_as_a_signature(public: bytes, signature: bytes, data: bytes) -> None:
    assert not verify(public, signature, data)
