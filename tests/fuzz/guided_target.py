"""What a guided target is: a parser of bytes that others make, as a function of nothing but those bytes."""

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType

CORPUS = Path(__file__).with_name("corpus")
"""One folder for each target; inputs that once reached something new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``parse`` returns whatever the bytes; anything that it raises is a finding.

    ``packed`` is where MessagePack begins in an input, after bytes that choose among parsers; None where
    there is none. The mutator then changes values, since a change of bytes seldom leaves the syntax whole.
    """

    parse: Callable[[bytes], None]
    packed: int | None = None


def _landmark() -> None:
    pass


LANDMARKS = 4096
landmarks: list[Callable[[], None]] = [
    FunctionType(_landmark.__code__.replace(co_name=f"landmark{number}"), {}) for number in range(LANDMARKS)
]
"""Functions that do nothing, for the fuzzer to see which of them were called."""


def reached(sentence: str) -> None:
    """Let the fuzzer know how far a parser came that is not written in Python: its refusal says it."""
    assert sentence.isprintable(), f"this moves the cursor: {sentence[:200]!r}"
    place = re.sub(r"'[^']*'|[0-9]{4,}", "", sentence)
    landmarks[zlib.crc32(place.encode()) % LANDMARKS]()


@contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """The documented errors are no findings, as long as people can be shown their sentences."""
    try:
        yield
    except errors as error:
        reached(str(error))


def stored(name: str) -> list[bytes]:
    """The corpus of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
