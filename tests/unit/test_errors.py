"""What an error says that another peer caused: it may hold that peer's own words."""

import pytest

from swarm.errors import (
    LONGEST_REMOTE_TEXT,
    LinkLostError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusalError,
    RemoteTimeoutError,
)


@pytest.mark.parametrize("kind", [RemoteError, RemoteProtocolError, LinkLostError, RemoteTimeoutError])
def test_another_peers_words_in_an_error_move_no_cursor_and_fill_no_screen(kind: type[RemoteError]) -> None:
    assert str(kind("no value '\x1b[2J\n\u202e'")) == "no value ' [2J  '"
    assert len(str(kind("a" * 10**6))) == LONGEST_REMOTE_TEXT


def test_a_refusal_keeps_its_code_beside_its_words() -> None:
    error = RemoteRefusalError("busy", "later\r")
    assert (error.code, str(error)) == ("busy", "later ")
