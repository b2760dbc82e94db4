"""Addresses, sizes and durations: what people write, and nothing else."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.values import (
    MAX_BYTES,
    MAX_SECONDS,
    parse_address,
    parse_duration,
    parse_rate,
    parse_reachable,
    parse_size,
)
from swarm.errors import MisuseError
from swarm.net.address import Address


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1500", 1500),
        ("12B", 12),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("500MB", 500_000_000),
        ("6GiB", 6 * 2**30),
        ("6 gib", 6 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("0.1kB", 100),
        ("2TiB", 2**41),
        ("1PiB", 2**50),
        (" 7 ", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "x", "6G", "6Gi", "-1", "1e9", "nan", "6GiBs", "6 Gi B", "1,5GiB", "GiB", "٣", "0x10", "1025PiB"],
)
def test_what_is_no_size_is_misuse(text: str) -> None:
    with pytest.raises(MisuseError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("30m", 1800),
        ("12h", 43200),
        ("7d", 604800),
        ("2w", 1209600),
        ("1d12h", 129600),
        ("1D 12H", 129600),
        ("0s", 0),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "d", "7 days", "-1d", "1.5d", "7d!", "1y", "101w1000000000d", "٣d"]
)
def test_what_is_no_duration_is_misuse(text: str) -> None:
    with pytest.raises(MisuseError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example.org:80", "example.org", 80),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("[::1]:7423", "::1", 7423),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        (":7423", "", 7423),
        ("example.org", "example.org", 7423),
        ("[::1]", "::1", 7423),
        ("my_host-1.local.:1", "my_host-1.local.", 1),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "::1",
        "::1:80",
        "a:b",
        "a:65536",
        "a:-1",
        "a:",
        "256.1.1.1:1",
        "1.2.3:1",
        "[1.2.3.4]:1",
        "[::1:1",
        "a b:1",
        "-a:1",
        "a-:1",
        "a..b:1",
        "ä:1",
        "http://a:1",
        "a:1:1",
        "a:٣",
        "[]:1",
        "x" * 64 + ":1",
        "a:" + "9" * 5000,
    ],
)
def test_what_is_no_address_is_misuse(text: str) -> None:
    with pytest.raises(MisuseError):
        parse_address(text)


def test_a_port_can_be_required() -> None:
    with pytest.raises(MisuseError):
        parse_address("example.org", default_port=None)


@pytest.mark.parametrize("text", [":7423", "example.org:0", ""])
def test_an_address_to_dial_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(MisuseError):
        parse_reachable(text)


def outcome(parse: Callable[[str], int], text: str) -> int | str:
    """The value of ``text``, or why it has none."""
    try:
        return parse(text)
    except MisuseError as error:
        return str(error)


@pytest.mark.parametrize(
    ("parse", "largest"),
    [(parse_size, MAX_BYTES), (parse_duration, MAX_SECONDS), (lambda text: parse_address(text).port, 65535)],
)
@given(text=st.text(max_size=40))
def test_any_text_is_a_value_within_limits_or_misuse_in_one_line(
    parse: Callable[[str], int], largest: int, text: str
) -> None:
    result = outcome(parse, text)
    if isinstance(result, str):
        assert len(result.splitlines()) == 1
    else:
        assert 0 <= result <= largest


@given(st.integers(0, 2**40), st.sampled_from([("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)]))
def test_binary_units_are_powers_of_1024(count: int, unit: tuple[str, int]) -> None:
    name, shift = unit
    text = f"{count}{name}"
    if count << shift > MAX_BYTES:
        with pytest.raises(MisuseError):
            parse_size(text)
    else:
        assert parse_size(text) == count << shift


@given(st.ip_addresses(), st.integers(0, 65535))
def test_what_is_shown_reads_back(ip: object, port: int) -> None:
    address = Address(str(ip), port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("20Mbit", 2_500_000),
        ("20 Mbit/s", 2_500_000),
        ("20Mbps", 2_500_000),
        ("2.5MB/s", 2_500_000),
        ("2MiB", 2 * 1024 * 1024),
        ("100kbit", 12_500),
        ("9000B/s", 9_000),
        ("0", 0),
    ],
)
def test_rates_are_bytes_a_second(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "7", "20", "20M", "20mb", "5Mb", "-1Mbit", "nanMbit", "1e9Mbit", "1Mbit/h"]
)
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(MisuseError, match=r"20Mbit or 2\.5MB/s"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["1kbit", "7999B", "0B", "0Mbit"])
def test_a_rate_that_no_link_lives_on_is_refused(text: str) -> None:
    with pytest.raises(MisuseError, match="at least 64kbit"):
        parse_rate(text)
