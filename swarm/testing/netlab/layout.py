"""Where everything of a lab is: names of namespaces, names of interfaces, addresses.

::

    host  eth0 ---- p1  site (bridge "lan", router)  wan ---- s1  core  (forwards between all sites)
                                                                   |
                                                              tun "wan" to the forwarder, and back

Every site with public addresses owns 26.N.0.0/16, with N its number from 1: programs take them for
addresses on the internet, and since no route leads out of the lab, nobody meets their real owner. Behind NAT
everybody has 192.168.1.0/24, as homes do: two peers in two homes may well have the same address.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from swarm.testing.netlab.schema import Lab, Nat, Site

CORE_ADDRESS: Final = "26.0.0.1"
"""The internet's own address, next hop of every site."""
HOST_INTERFACE: Final = "eth0"
"""A host's only interface beside lo."""
LAN: Final = "lan"
"""The bridge of a site."""
WAN: Final = "wan"
"""A site's interface to the internet; in the core, that to the forwarder."""
PREFIX: Final = "netlab-"
"""What the names of all namespaces and cgroups of labs begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """One host's place."""

    name: str
    namespace: str
    port: str
    """Its interface in the site's namespace."""
    address: str
    """Its own address, private behind NAT."""
    public: str
    """The address that other sites see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlace:
    """One site's place."""

    site: Site
    number: int
    namespace: str
    port: str
    """Its interface in the core."""
    network: str
    """All public addresses of the site."""
    public: str
    """The router's own public address."""
    gateway: str
    """The router's address towards its hosts."""
    hosts: tuple[HostPlace, ...]
    delayed: bool
    """Whether what is sent to this site goes through the forwarder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All places of a lab that runs under a name."""

    name: str
    core: str
    sites: Mapping[str, SitePlace]
    hosts: Mapping[str, HostPlace]

    @property
    def namespaces(self) -> list[str]:
        """Every namespace of the lab."""
        return [
            self.core,
            *(site.namespace for site in self.sites.values()),
            *(host.namespace for host in self.hosts.values()),
        ]

    @property
    def is_delayed(self) -> bool:
        """Whether the lab needs the forwarder."""
        return any(site.delayed for site in self.sites.values())

    def address(self, host: str, *, seen_from: str | None = None) -> str:
        """The address of ``host`` as another host sees it; its public one where nobody in particular asks."""
        for site in self.sites.values():
            names = {place.name for place in site.hosts}
            if host in names and seen_from in names:
                return self.hosts[host].address
        return self.hosts[host].public


def prefix_of(name: str) -> str:
    """What the namespaces of the lab of that name begin with, and those of no other lab."""
    return f"{PREFIX}{name}."


def make_layout(lab: Lab, *, name: str) -> Layout:
    """The places of ``lab`` when it runs under ``name``."""
    delayed = {site for path in lab.paths if path.is_delayed for site in path.between}
    sites = {
        site.name: _site(lab, site, number=number, prefix=prefix_of(name), delayed=site.name in delayed)
        for number, site in enumerate(lab.sites, start=1)
    }
    hosts = {host.name: host for place in sites.values() for host in place.hosts}
    return Layout(name=name, core=f"{prefix_of(name)}core", sites=sites, hosts=hosts)


def _site(lab: Lab, site: Site, *, number: int, prefix: str, delayed: bool) -> SitePlace:
    public = f"26.{number}.0.1"
    translated = site.nat is not Nat.NONE
    subnet = "192.168.1" if translated else f"26.{number}.1"
    hosts = []
    for index, host in enumerate(lab.hosts_of(site.name), start=1):
        address = f"{subnet}.{9 + index}"
        hosts.append(
            HostPlace(
                name=host.name,
                namespace=f"{prefix}h.{host.name}",
                port=f"p{index}",
                address=address,
                public=public if translated else address,
            )
        )
    return SitePlace(
        site=site,
        number=number,
        namespace=f"{prefix}s.{site.name}",
        port=f"s{number}",
        network=f"26.{number}.0.0/16",
        public=public,
        gateway=f"{subnet}.1",
        hosts=tuple(hosts),
        delayed=delayed,
    )
