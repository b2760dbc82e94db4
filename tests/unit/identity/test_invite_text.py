import base64
import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import MisuseError
from swarm.identity.invite import Invite
from swarm.identity.invite_text import (
    MAX_INVITE_BYTES,
    MAX_TEXT_LENGTH,
    looks_like_invite,
    read_text,
    write_text,
)
from swarm.ids import base32

LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


@pytest.fixture
def text(invite: Invite) -> str:
    return invite.encode()


@given(st.binary(max_size=2000))
def test_bytes_come_back_as_they_went(data: bytes) -> None:
    text = write_text(data)
    assert text.isalnum()
    assert text == text.lower()
    assert read_text(text) == data


def test_invite_fits_one_line_of_a_terminal(text: str) -> None:
    assert len(text) < 1024
    assert text.startswith("swarm1")


@pytest.mark.parametrize(
    "paste",
    [
        "{}",
        "  {}\n",
        '"{}"',
        "'{}'",
        "\u201c{}\u201d",
        "<{}>",
        "`{}`",
        "\ufeff{}\r\n",
        "\u200b{}\u200b",
        "({}).",
    ],
)
def test_marks_around_a_pasted_invite_do_not_matter(invite: Invite, paste: str) -> None:
    assert Invite.decode(paste.format(invite.encode())) == invite


@pytest.mark.parametrize("mark", ["\n", "\r\n    ", "\n> ", "=\n", "\\\n", " ", "\u200b", "\u00ad"])
def test_marks_of_line_wrapping_do_not_matter(invite: Invite, text: str, mark: str) -> None:
    wrapped = mark.join(text[i : i + 76] for i in range(0, len(text), 76))
    assert Invite.decode(wrapped) == invite


def test_capitals_do_not_matter(invite: Invite, text: str) -> None:
    assert Invite.decode(text.upper()) == invite


def test_every_cut_off_invite_is_called_so(text: str) -> None:
    for length in range(len("swarm1"), len(text)):
        with pytest.raises(MisuseError, match="cut off"):
            read_text(text[:length])


@pytest.mark.parametrize("length", range(4))
def test_cut_off_in_the_length_itself_guesses_no_number(text: str, length: int) -> None:
    with pytest.raises(MisuseError, match=r"^the invite is cut off: copy all of it$"):
        read_text(text[: len("swarm1") + length])


def test_cut_off_invite_is_told_how_much_there_should_be(text: str) -> None:
    with pytest.raises(MisuseError, match=f"has {len(text) - 1} of {len(text)} characters"):
        read_text(text[:-1])


def test_every_wrong_character_is_noticed(text: str) -> None:
    for index in range(len("swarm1"), len(text)):
        other = LETTERS[(LETTERS.index(text[index]) + 1) % 32]
        # The first characters are the length: with a larger one, characters seem to be missing.
        sentence = "mistyped" if index < len("swarm1") + 4 else r"mistyped \(its checksum"
        with pytest.raises(MisuseError, match=sentence):
            read_text(text[:index] + other + text[index + 1 :])


@pytest.mark.parametrize("size", range(5))
def test_last_character_is_noticed_even_where_it_holds_unused_bits(size: int) -> None:
    text = write_text(bytes(range(size)))
    for letter in LETTERS.replace(text[-1], ""):
        with pytest.raises(MisuseError, match="checksum"):
            read_text(text[:-1] + letter)


def test_swapped_missing_and_doubled_characters_are_noticed(text: str) -> None:
    for index in range(len("swarm1"), len(text) - 1, 7):
        swapped = text[:index] + text[index + 1] + text[index] + text[index + 2 :]
        changed = [text[:index] + text[index + 1 :], text[:index] + text[index] + text[index:]]
        for wrong in changed if swapped == text else [*changed, swapped]:
            with pytest.raises(MisuseError, match=r"mistyped|cut off|behind the invite"):
                read_text(wrong)


@pytest.mark.parametrize("letter", ["0", "1", "8", "9", "é"])
def test_character_that_no_invite_has_is_named_with_its_place(text: str, letter: str) -> None:
    with pytest.raises(MisuseError, match=f"character 100 \\('{letter}'\\)"):
        read_text(text[:99] + letter + text[100:])


def test_text_behind_the_invite_is_noticed(text: str) -> None:
    with pytest.raises(MisuseError, match=r"text behind the invite \(4 characters\)"):
        read_text(text + " moon")
    with pytest.raises(MisuseError, match=r"is in none"):
        read_text(text + "\n" + text)
    wrong = text[:-5] + ("a" if text[-5] != "a" else "b") + text[-4:]
    with pytest.raises(MisuseError, match="checksum"):
        read_text(wrong + " moon")


@pytest.mark.parametrize(
    "garbage", ["", "hello", "swarm", "swarm create lab", "sworm1abc", "a" * 900, "\0", "é"]
)
def test_what_is_no_invite_is_called_so(garbage: str) -> None:
    assert not looks_like_invite(garbage)
    with pytest.raises(MisuseError, match="not an invite: one begins with swarm1"):
        read_text(garbage)


def test_text_of_absurd_length_is_not_looked_at(text: str) -> None:
    with pytest.raises(MisuseError, match="not an invite"):
        read_text(text + "a" * MAX_TEXT_LENGTH)


def test_invite_of_a_newer_version_says_to_upgrade(text: str) -> None:
    for version in "23456789":
        with pytest.raises(MisuseError, match="newer version: pip install -U"):
            read_text(f"swarm{version}{text[6:]}")
    with pytest.raises(MisuseError, match="mistyped in its first characters"):
        read_text(f"swarm0{text[6:]}")


def armoured(packed: bytes) -> str:
    return "swarm1" + base32(len(packed).to_bytes(2, "big") + hashlib.sha256(packed).digest()[:6] + packed)


def deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def test_form_is_as_documented(text: str) -> None:
    body = base64.b32decode(text[6:].upper() + "=" * (-len(text[6:]) % 8))
    packed = body[8:]
    assert body[:2] == len(packed).to_bytes(2, "big")
    assert armoured(packed) == text
    assert read_text(armoured(deflated(b"any deflate stream"))) == b"any deflate stream"


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xff\xff",
        deflated(b"x")[:-1],
        deflated(b"x") + b"more",
        deflated(b"\0" * (MAX_INVITE_BYTES + 1)),
        deflated(b"\0" * 5_000_000),
    ],
    ids=["empty", "no stream", "cut", "more behind", "too large", "bomb"],
)
def test_damage_under_a_right_checksum_is_refused(packed: bytes) -> None:
    with pytest.raises(MisuseError, match="damaged"):
        read_text(armoured(packed))
