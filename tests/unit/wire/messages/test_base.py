"""What all messages have in common: identifiers are exactly that, and patterns end where the text ends."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from swarm.ids import DIGEST_LENGTH, SHORT_ID_LENGTH
from swarm.wire.messages.base import LongId, ShortId
from swarm.wire.messages.hello import LongIdOrNone
from swarm.wire.messages.registry import MESSAGES


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        (ShortId, "a" * SHORT_ID_LENGTH),
        (LongId, "7" * DIGEST_LENGTH),
        (LongIdOrNone, "b" * DIGEST_LENGTH),
        (LongIdOrNone, ""),
    ],
)
def test_an_identifier_has_no_line_end(kind: Any, good: str) -> None:
    assert msgspec.convert(good, kind) == good
    for bad in (good[:-1] + "\n", good + "\n", "\n" + good[1:], good[:-1] + "A"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, kind)


def patterns(kind: Any) -> Iterator[str]:
    """The patterns of all text in ``kind``."""
    match kind:
        case msgspec.inspect.StrType():
            if kind.pattern is not None:
                yield kind.pattern
        case msgspec.inspect.StructType():
            for field in kind.fields:
                yield from patterns(field.type)
        case msgspec.inspect.UnionType():
            for one in kind.types:
                yield from patterns(one)
        case msgspec.inspect.TupleType():
            for one in kind.item_types:
                yield from patterns(one)
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            yield from patterns(kind.item_type)


@pytest.mark.parametrize("message", MESSAGES.values(), ids=lambda message: message.__name__)
def test_every_pattern_ends_where_the_text_ends(message: type) -> None:
    assert [p for p in patterns(msgspec.inspect.type_info(message)) if not p.endswith(r"\Z")] == []
