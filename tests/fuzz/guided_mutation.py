"""Mutation of values instead of bytes: MessagePack stays MessagePack, inside of byte strings too."""

import random
from typing import Any

import msgspec

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**53, 2**63 - 1, 2**64 - 1, -(2**63),
    0.0, -0.0, 0.5, 1e300, -1e300, 1e-320, float("inf"), float("-inf"), float("nan"),
    "", "a", "\x00", "\x1b[2J", "\u202e", "\ud7ff", "a" * 32, "a" * 52, "a" * 33, "x" * 1001,
    b"", b"\x00", bytes(32), bytes(64), [], [[]], {}, {"a": 1},
]  # fmt: skip


def mutated(data: bytes, at: int, chance: random.Random) -> bytes | None:
    """``data`` with one thing changed in the MessagePack that begins at ``at``; None where it has none."""
    try:
        value = msgspec.msgpack.decode(data[at:])
        return data[:at] + msgspec.msgpack.encode(_changed(value, chance))
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError, OverflowError):
        return None


def _changed(value: Any, chance: random.Random) -> Any:
    match value:
        case list() if value and chance.random() < 0.95:
            return _list(list(value), chance)
        case bytes() if len(value) > 1 and chance.random() < 0.7:
            return mutated(value, 0, chance) or _bytes(value, chance)
        case str() if value and chance.random() < 0.5:
            at = chance.randrange(len(value))
            return value[:at] + chance.choice(["", "a", "\n", "é", "2", value]) + value[at + 1 :]
        case int() if chance.random() < 0.5:
            return value + chance.choice([-1, 1, 2, -2, 64, value])
        case _:
            return chance.choice(ODD)


def _list(items: list[Any], chance: random.Random) -> list[Any]:
    at = chance.randrange(len(items))
    match chance.randrange(12):
        case 0:
            items.insert(at, items[at])
        case 1:
            del items[at]
        case 2:
            other = chance.randrange(len(items))
            items[at], items[other] = items[other], items[at]
        case 3:
            items[at] = chance.choice(ODD)
        case 4:
            return items * chance.choice([2, 5, 70])
        case _:
            items[at] = _changed(items[at], chance)
    return items


def _bytes(value: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(value))
    return (
        value[:at]
        + chance.choice([b"", b"\x00", b"\xff", value[:4]])
        + value[at + chance.choice([0, 1, 4]) :]
    )
