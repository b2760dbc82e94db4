"""What a lab is: hosts on sites, sites on an internet, paths between sites. In TOML, or as these structs.

The same description serves three readers: netlab runs it, ``swarm plan --testbed`` plans on it, a simulator
predicts on it. So this module says only what is true of the network, and imports neither of them.

::

    name = "ann-and-bob"

    [[site]]
    name = "ann"
    uplink = "8Mbit"            # of the access link, shared by all hosts of the site
    downlink = "50Mbit"
    nat = "port-restricted"

    [[site]]
    name = "bob"

    [[host]]
    name = "a"
    site = "ann"

    [[host]]
    name = "b"
    site = "bob"

    [[path]]
    between = ["ann", "bob"]
    rtt = "40ms"
    jitter = "2ms"
    loss = "0.5%"

Rates are bits a second with all headers from Ethernet's on, durations seconds, sizes bytes; what is left out
is unlimited, or zero.
"""

import math
import re
from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

from swarm.errors import MisuseError

MAX_SITES: Final = 250
"""Sites of a lab: each has an octet of the addresses."""
MAX_HOSTS_OF_SITE: Final = 200
"""Hosts of a site: they share a /24."""
MIN_RATE: Final = 8e3
"""Bits a second. Below, one packet takes longer than a transport waits for it."""
MAX_RATE: Final = 1e12
MAX_SECONDS: Final = 10.0
"""Of a round trip or a queue."""
WANDER_REACH: Final = math.sqrt(5)
"""How far a delay goes from its mean, in standard deviations (``swarm.testing.netlab.delays``)."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?", re.ASCII)


class Nat(Enum):
    """What a site's router does to addresses, in the words of RFC 3489; in brackets those of RFC 4787."""

    NONE = "none"
    """Hosts have public addresses."""
    FULL_CONE = "full-cone"
    """One mapping for all destinations, open to everybody (endpoint-independent mapping and filtering)."""
    ADDRESS_RESTRICTED = "address-restricted"
    """One mapping, open to hosts that were sent to (address-dependent filtering)."""
    PORT_RESTRICTED = "port-restricted"
    """One mapping, open to the ports that were sent to (address and port-dependent filtering)."""
    SYMMETRIC = "symmetric"
    """A mapping for each destination, open to it alone (address and port-dependent mapping and filtering)."""


class Firewall(Enum):
    """What a site's router does to connections from outside."""

    OPEN = "open"
    DROP_INBOUND = "drop-inbound"
    """Only answers come in, and what ``Host.forward`` lets in."""


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine; netlab makes it a network namespace."""

    name: str
    site: str
    """The site whose network it is on."""
    uplink: float | None = None
    """Bits a second that its own interface sends at most."""
    downlink: float | None = None
    """Bits a second that its own interface receives at most."""
    cpu: float | None = None
    """Share of this machine's processors, in cores. None: whatever is free."""
    memory: int | None = None
    """Bytes that its processes may use together. None: whatever is free."""
    device: str = "cpu"
    """What it computes on. Netlab runs ``cpu``; planning knows more."""
    forward: tuple[int, ...] = ()
    """Ports, TCP and UDP, that the site's router lets in and forwards to it."""
    clock: float | None = None
    """Seconds that its wall clock is ahead. None: that of the machine, and it cannot be moved."""

    def __post_init__(self) -> None:
        where = f"host {self.name!r}"
        _check_name(self.name, where)
        _check_rates(where, uplink=self.uplink, downlink=self.downlink)
        if self.cpu is not None and not 0.01 <= self.cpu <= 4096:
            raise MisuseError(f"{where}: cpu is a number of cores of at least 0.01")
        if self.memory is not None and self.memory < 2**20:
            raise MisuseError(f"{where}: memory of less than 1MiB runs nothing")
        if any(not 0 < port < 65536 for port in self.forward):
            raise MisuseError(f"{where}: forward takes ports of 1 to 65535")
        if self.clock is not None and not abs(self.clock) < 1e9:
            raise MisuseError(f"{where}: clock is a number of seconds below a billion")


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts behind one access link: a home, a cluster, an office."""

    name: str
    uplink: float | None = None
    """Bits a second from all of its hosts together to the internet."""
    downlink: float | None = None
    """Bits a second from the internet to all of its hosts together."""
    nat: Nat = Nat.NONE
    firewall: Firewall = Firewall.OPEN

    def __post_init__(self) -> None:
        where = f"site {self.name!r}"
        _check_name(self.name, where)
        _check_rates(where, uplink=self.uplink, downlink=self.downlink)


class Path(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The internet between two sites; both directions are alike, and do not disturb each other."""

    between: tuple[str, str]
    rtt: float = 0.0
    """Seconds of a round trip, half of it each way."""
    jitter: float = 0.0
    """Standard deviation of the delay of one way, in seconds. Packets stay in order."""
    loss: float = 0.0
    """Probability that a packet is lost on its way, each way, independently of others."""
    rate: float | None = None
    """Bits a second each way, shared by all that crosses this path."""

    def __post_init__(self) -> None:
        where = f"path {self.between[0]}-{self.between[1]}"
        _check_rates(where, rate=self.rate)
        if self.between[0] == self.between[1]:
            raise MisuseError(f"{where}: a path joins two different sites")
        if not (0 <= self.rtt <= MAX_SECONDS and self.jitter >= 0):
            raise MisuseError(f"{where}: rtt and jitter are durations of 0 to {MAX_SECONDS:.0f} s")
        if self.jitter * WANDER_REACH > self.rtt / 2:
            least = 2 * WANDER_REACH * self.jitter * 1e3
            raise MisuseError(
                f"{where}: this jitter needs an rtt of at least {least:.1f}ms, for delays from 0"
            )
        if not 0 <= self.loss < 1:
            raise MisuseError(f"{where}: loss is a share from 0 to below 1")

    @property
    def is_delayed(self) -> bool:
        """Whether it does more to packets than to limit their rate."""
        return bool(self.rtt or self.jitter or self.loss)


class Lab(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole network. Sites without a path between them are joined directly."""

    name: str
    sites: tuple[Site, ...] = msgspec.field(name="site")
    hosts: tuple[Host, ...] = msgspec.field(name="host")
    paths: tuple[Path, ...] = msgspec.field(name="path", default=())
    queue: float = 0.1
    """Seconds of traffic at full rate that the buffer before a limited link holds; routers have 0.05 to 1."""

    def __post_init__(self) -> None:
        _check_name(self.name, "name")
        _check_unique("site", (site.name for site in self.sites))
        _check_unique("host", (host.name for host in self.hosts))
        _check_unique("path between", (" and ".join(sorted(path.between)) for path in self.paths))
        if not self.hosts or len(self.sites) > MAX_SITES:
            raise MisuseError(f"a lab has at least one host and at most {MAX_SITES} sites")
        if not 0 < self.queue <= MAX_SECONDS:
            raise MisuseError(f"queue is a duration above 0 and up to {MAX_SECONDS:.0f} s")
        known = {site.name for site in self.sites}
        for site in [name for path in self.paths for name in path.between] + [
            host.site for host in self.hosts
        ]:
            if site not in known:
                raise MisuseError(f"there is no site {site!r}: the sites are {', '.join(sorted(known))}")
        for site in known:
            hosts = self.hosts_of(site)
            if len(hosts) > MAX_HOSTS_OF_SITE:
                raise MisuseError(f"site {site!r} has more than {MAX_HOSTS_OF_SITE} hosts")
            _check_unique(
                f"forward of site {site!r} for port", (str(p) for host in hosts for p in host.forward)
            )

    def host(self, name: str) -> Host:
        """The host of that name. Raises MisuseError where there is none."""
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts)
        raise MisuseError(f"there is no host {name!r} in {self.name}: the hosts are {known}")

    def site(self, name: str) -> Site:
        """The site of that name. Raises MisuseError where there is none."""
        for site in self.sites:
            if site.name == name:
                return site
        known = ", ".join(site.name for site in self.sites)
        raise MisuseError(f"there is no site {name!r} in {self.name}: the sites are {known}")

    def hosts_of(self, site: str) -> tuple[Host, ...]:
        """The hosts on a site, in the order of the description."""
        return tuple(host for host in self.hosts if host.site == site)

    def path(self, one: str, other: str) -> Path:
        """What lies between two sites, whichever comes first; where nothing is said, nothing."""
        for path in self.paths:
            if set(path.between) == {one, other}:
                return path
        return Path(between=(one, other))

    def rate(self, sender: str, receiver: str) -> float:
        """Bits a second from one host to another with nothing else on the way; infinite where unlimited."""
        start, end = self.host(sender), self.host(receiver)
        limits = [start.uplink, end.downlink]
        if start.site != end.site:
            path = self.path(start.site, end.site)
            limits += [self.site(start.site).uplink, path.rate, self.site(end.site).downlink]
        return min((limit for limit in limits if limit is not None), default=math.inf)

    def rtt(self, one: str, other: str) -> float:
        """Seconds of a round trip between two hosts, without queues; 0 within a site."""
        start, end = self.host(one).site, self.host(other).site
        return 0.0 if start == end else self.path(start, end).rtt


def _check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise MisuseError(f"{where}: {name!r} is not a name: up to 24 small letters, digits and inner dashes")


def _check_unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise MisuseError(f"there is more than one {what} {name}")
        seen.add(name)


def _check_rates(where: str, **rates: float | None) -> None:
    for name, rate in rates.items():
        if rate is not None and not MIN_RATE <= rate <= MAX_RATE:
            raise MisuseError(f"{where}: {name} is a rate of 8kbit to 1Tbit, or left out")
