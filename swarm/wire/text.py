"""Text from other peers ends up on people's screens: what it may be, and how ours is made fit."""

from typing import Annotated, Final

from msgspec import Meta

from swarm.wire.limits import MAX_SENTENCE_LENGTH

PLAIN: Final = r"\A[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*\Z"
"""No control characters, line ends, zero-width or direction marks: nothing that moves a cursor or hides."""

MAX_NAME_LENGTH: Final = 1000
"""Characters in the name of a tensor or an operator."""

Sentence = Annotated[str, Meta(max_length=MAX_SENTENCE_LENGTH, pattern=PLAIN)]
"""One line for people."""
ShortText = Annotated[str, Meta(max_length=100, pattern=PLAIN)]
"""A name or a version."""
Place = Annotated[str, Meta(max_length=1000, pattern=PLAIN)]
"""A module path or a line of the author's code; may be empty."""
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=PLAIN)]
"""The name of a tensor or an operator."""


def printable(text: str) -> str:
    """One line of at most MAX_SENTENCE_LENGTH characters that passes as a :data:`Sentence`."""
    return "".join(c if c.isprintable() else " " for c in text[:MAX_SENTENCE_LENGTH])
