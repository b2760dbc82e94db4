from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import MisuseError
from swarm.identity.rights import ALL_RIGHTS, CONTRIBUTE_ONLY, Right
from swarm.identity.terms import (
    MAX_JOIN_BY,
    MAX_LABEL_LENGTH,
    MAX_USES,
    InviteTerms,
    check_terms,
    decode_terms,
    door_digest,
    encode_terms,
)

DEFAULTS: dict[str, Any] = {
    "label": "alice",
    "uses": 1,
    "join_by": 0,
    "rights": CONTRIBUTE_ONLY,
    "public": False,
    "door": b"\7" * 32,
}


def terms(**changes: Any) -> InviteTerms:
    return InviteTerms(**DEFAULTS | changes)


@given(
    label=st.text(st.characters(exclude_categories=["C", "Z"]), max_size=MAX_LABEL_LENGTH),
    uses=st.integers(0, MAX_USES),
    join_by=st.integers(0, MAX_JOIN_BY),
    rights=st.sets(st.sampled_from(sorted(Right))),
    door=st.binary(min_size=32, max_size=32),
)
def test_terms_come_back_as_they_went(
    label: str, uses: int, join_by: int, rights: set[Right], door: bytes
) -> None:
    all_rights = CONTRIBUTE_ONLY | rights
    before = terms(label=label, uses=uses, join_by=join_by, rights=all_rights, door=door)
    assert decode_terms(encode_terms(check_terms(before))) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"label": "x" * (MAX_LABEL_LENGTH + 1)},
        {"label": "two\nlines"},
        {"label": "turns \u202e around"},
        {"uses": -1},
        {"uses": MAX_USES + 1},
        {"join_by": -1},
        {"join_by": MAX_JOIN_BY + 1},
        {"public": True, "rights": ALL_RIGHTS},
    ],
)
def test_terms_that_no_invite_may_have_are_refused_when_made_and_when_read(changes: dict[str, Any]) -> None:
    with pytest.raises(MisuseError):
        check_terms(terms(**changes))
    with pytest.raises(ValueError, match="its terms"):
        decode_terms(encode_terms(terms(**changes)))


def test_largest_terms_are_allowed() -> None:
    largest = terms(label="\u00fc" * MAX_LABEL_LENGTH, uses=MAX_USES, join_by=MAX_JOIN_BY, rights=ALL_RIGHTS)
    assert decode_terms(encode_terms(check_terms(largest))) == largest


def encoded(**changes: Any) -> bytes:
    fields = msgspec.msgpack.decode(encode_terms(terms()))
    names = ["format", "label", "uses", "join_by", "rights", "public", "door"]
    for name, value in changes.items():
        fields[names.index(name)] = value
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        encode_terms(terms()) + b"\0",
        encode_terms(terms())[:-1],
        encoded(format=2),
        encoded(rights=[]),
        encoded(rights=["train"]),
        encoded(rights=["x" * 33]),
        encoded(public=1),
        encoded(door=b"short"),
        encoded(uses=1.5),
        msgspec.msgpack.encode([*msgspec.msgpack.decode(encode_terms(terms())), "more"]),
    ],
)
def test_bytes_that_are_no_terms_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="its terms"):
        decode_terms(data)


def test_rights_of_a_newer_version_do_not_spoil_the_terms() -> None:
    assert decode_terms(encoded(rights=["contribute", "fly"])) == terms()


def test_door_digest_tells_door_keys_apart_and_hides_them() -> None:
    assert door_digest(b"a" * 32) != door_digest(b"b" * 32)
    assert len(door_digest(b"a" * 32)) == 32
