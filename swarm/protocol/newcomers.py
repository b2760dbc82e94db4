"""Newcomers: how fast strangers may join a public swarm from one part of the network (decision D1).

An invite for strangers makes any number of members, and each may take a link, room in the DHT and a lot in
draws. What is scarce is addresses, so an admitter lets in so many at a stretch from one prefix (IPv4: /24,
IPv6: /56, what one customer of a provider has), and then one each few minutes.
"""

import ipaddress
from typing import Final

from swarm.protocol.bucket import Bucket

NEWCOMERS_AT_ONCE: Final = 16
"""Strangers of one prefix at a stretch: a class room may join together."""
NEWCOMER_SECONDS: Final = 300.0
"""Seconds for each one after that: some three hundred a day."""
MAX_PREFIXES: Final = 4096
"""Prefixes that are remembered; the one from which nobody came for longest makes room."""
IPV4_PREFIX: Final = 24
IPV6_PREFIX: Final = 56


class Newcomers:
    """Counts, for each prefix, the strangers that were let in lately."""

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}

    def __len__(self) -> int:
        """How many prefixes are remembered."""
        return len(self._buckets)

    def enter(self, address: str, *, now: float) -> float:
        """Let in one from ``address`` (``host:port``): 0.0, or seconds to wait where there were too many."""
        prefix = prefix_of(address)
        bucket = self._buckets.pop(prefix, None)
        if bucket is None:
            bucket = Bucket(most=NEWCOMERS_AT_ONCE, a_second=1 / NEWCOMER_SECONDS, now=now)
        self._buckets[prefix] = bucket
        if len(self._buckets) > MAX_PREFIXES:
            del self._buckets[next(iter(self._buckets))]
        return bucket.wait(now=now) if bucket.add(now=now) else 0.0


def prefix_of(address: str) -> str:
    """The prefix that ``address`` (``host:port``, ``[host]:port``) is in; its host if that is no number."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(number, ipaddress.IPv6Address) and number.ipv4_mapped is not None:
        number = number.ipv4_mapped
    length = IPV4_PREFIX if isinstance(number, ipaddress.IPv4Address) else IPV6_PREFIX
    return str(ipaddress.ip_network((number, length), strict=False))
