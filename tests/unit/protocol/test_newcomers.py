"""From which part of the network strangers come, and how many."""

import pytest

from swarm.protocol.newcomers import MAX_PREFIXES, NEWCOMER_SECONDS, NEWCOMERS_AT_ONCE, Newcomers, prefix_of


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("192.0.2.77:7423", "192.0.2.0/24"),
        ("[::ffff:192.0.2.77]:7423", "192.0.2.0/24"),
        ("[2001:db8:1:2fe::1]:7423", "2001:db8:1:200::/56"),
        ("[fe80::1%eth0]:7423", "fe80::/56"),
        ("relay.example.org:7423", "relay.example.org"),
        ("", ""),
    ],
)
def test_the_prefix_of_an_address(address: str, prefix: str) -> None:
    assert prefix_of(address) == prefix


def test_all_of_a_prefix_share_one_measure_and_another_has_its_own() -> None:
    newcomers = Newcomers()
    waits = [newcomers.enter(f"[2001:db8::{n:x}]:1", now=0.0) for n in range(NEWCOMERS_AT_ONCE + 1)]
    assert waits == [0.0] * NEWCOMERS_AT_ONCE + [NEWCOMER_SECONDS]
    assert newcomers.enter("[2001:db8:0:100::1]:1", now=0.0) == 0.0
    assert newcomers.enter("[2001:db8::1]:1", now=NEWCOMER_SECONDS) == 0.0
    assert newcomers.enter("[2001:db8::1]:1", now=NEWCOMER_SECONDS) == NEWCOMER_SECONDS


def test_prefixes_without_end_take_bounded_memory() -> None:
    newcomers = Newcomers()
    for number in range(3 * MAX_PREFIXES):
        newcomers.enter(f"10.{number // 256}.{number % 256}.1:1", now=0.0)
    assert len(newcomers) == MAX_PREFIXES
