"""Who may read a node's status, and who may command it."""

import base64

import pytest

from swarm.services.status.access import Access, Denial, is_loopback, judge_request

EVERYWHERE = "0.0.0.0"
LOCAL = Access(loopback=True, read="read-token", control="control-token")
OPEN = Access(loopback=False, read="read-token", control="control-token")


def ask(access: Access, path: str = "/status", host: str = "localhost", auth: str = "") -> Denial | None:
    return judge_request(access, path=path, host=host, authorization=auth)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:80", "127.8.8.8", "[::1]:80"],
)
def test_loopback_is_readable_under_its_own_names(host: str) -> None:
    assert ask(LOCAL, host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::2]",
        EVERYWHERE,
        "[",
        "]",
        "10.0.0.1:80",
        "127.0.0.1:80@evil.example",
        "localhost:evil.example",
        "localhost/evil.example",
        "[::1]evil.example",
        "[::1]:80:80",
        "127.0.0.1\n",
    ],
)
def test_a_rebound_name_is_denied_on_loopback(host: str) -> None:
    denial = ask(LOCAL, host=host)
    assert denial is not None
    assert denial.status == 421
    assert ask(LOCAL, path="/control/cancel", host=host, auth="Bearer control-token") is not None


@pytest.mark.parametrize(
    "auth",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer read-toke",
        "Bearer read-token2",
        "read-token",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        basic("read-token", ""),
        basic("", "wrong"),
        "Bearer \udcff\udcfe",
        "Digest read-token",
    ],
)
def test_elsewhere_reading_needs_the_token(auth: str) -> None:
    denial = ask(OPEN, host="node.example", auth=auth)
    assert denial is not None
    assert denial.status == 401
    assert denial.challenge
    assert "read-token" not in denial.sentence


@pytest.mark.parametrize(
    "auth",
    [
        "Bearer read-token",
        "bearer read-token",
        "Bearer control-token",
        basic("me", "read-token"),
        basic("", "read-token"),
    ],
)
def test_elsewhere_the_token_reads_under_any_name(auth: str) -> None:
    assert ask(OPEN, host="node.example", auth=auth) is None


@pytest.mark.parametrize("access", [LOCAL, OPEN])
@pytest.mark.parametrize("auth", ["", "Bearer read-token", basic("", "control-token"), "Bearer control-toke"])
def test_commands_need_the_control_token_as_bearer_everywhere(access: Access, auth: str) -> None:
    denial = ask(access, path="/control/cancel", auth=auth)
    assert denial is not None
    assert denial.status == 401
    assert not denial.challenge
    assert ask(access, path="/control/cancel", auth="Bearer control-token") is None


def test_an_empty_token_opens_nothing() -> None:
    access = Access(loopback=False, read="", control="")
    for auth in ("", "Bearer", "Bearer ", basic("", "")):
        assert ask(access, auth=auth) is not None
        assert ask(access, path="/control/cancel", auth=auth) is not None


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        (EVERYWHERE, False),
        ("", False),
        ("::", False),
        ("192.168.1.5", False),
        ("example.org", False),
    ],
)
def test_what_counts_as_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local
