"""How each namespace of a lab is set up, as scripts for ``sh`` that run inside it.

They are text, so that a person who wonders what a lab does can read it (``show --scripts``).
"""

from typing import Final

from swarm.testing.netlab import shaping
from swarm.testing.netlab.layout import CORE_ADDRESS, HOST_INTERFACE, LAN, WAN, HostPlace, Layout, SitePlace
from swarm.testing.netlab.nat import MAPPING_SECONDS, router_rules
from swarm.testing.netlab.schema import Lab

TUN_QUEUE: Final = 1000
"""Packets that wait for the forwarder; where it does not keep up, more are dropped and counted."""
RETURN_TABLE: Final = 100
"""Routing table of the core for what comes back from the forwarder."""

_SETTINGS: Final = """\
for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do
  case $file in */all/*|*/lo/*|*'*'*) ;; *) echo 1 > "$file" ;; esac
done
echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save
"""
"""Only IPv4 leaves a host, and no connection learns from the one before it."""

_ROUTER_SETTINGS: Final = (
    _SETTINGS
    + """\
echo 1 > /proc/sys/net/ipv4/ip_forward
for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > "$file"; done
file=/proc/sys/net/bridge/bridge-nf-call-iptables; if [ -e $file ]; then echo 0 > $file; fi
"""
)
"""It routes, whatever way packets came, and rules for routed packets leave bridged ones alone."""

_PATIENCE: Final = f"""\
for file in /proc/sys/net/netfilter/nf_conntrack_udp_timeout*; do
  if [ -e "$file" ]; then echo {MAPPING_SECONDS} > "$file"; fi
done
"""
"""Left alone, the kernel forgets flows of datagrams after 30 seconds, which RFC 4787 forbids."""


def creation(layout: Layout) -> str:
    """Commands for ``ip -batch``, outside: all namespaces, and the links between them.

    Both ends of each link are made where they belong: not one interface ever appears outside the lab.
    """
    lines = [f"netns add {namespace}" for namespace in layout.namespaces]
    for site in layout.sites.values():
        lines.append(_pair(WAN, site.namespace, site.port, layout.core))
        lines += [_pair(HOST_INTERFACE, host.namespace, host.port, site.namespace) for host in site.hosts]
    return "\n".join(lines) + "\n"


def host_script(lab: Lab, site: SitePlace, place: HostPlace) -> str:
    """A host: one interface, one address, one default route."""
    host = lab.host(place.name)
    links = [
        "link set lo up",
        f"addr add {place.address}/24 dev {HOST_INTERFACE}",
        f"link set {HOST_INTERFACE} up",
        f"route add default via {site.gateway}",
    ]
    return (
        _SETTINGS
        + _batch("ip", links)
        + _batch("tc", shaping.limit_command(HOST_INTERFACE, host.uplink, queue=lab.queue))
    )


def site_script(lab: Lab, place: SitePlace) -> str:
    """A site: a bridge for its hosts, and a router between that and the internet."""
    links = ["link set lo up", f"link add {LAN} type bridge forward_delay 0 mcast_snooping 0"]
    limits = shaping.limit_command(WAN, place.site.uplink, queue=lab.queue)
    for host in place.hosts:
        links += [f"link set {host.port} master {LAN}", f"link set {host.port} up"]
        limits += shaping.limit_command(host.port, lab.host(host.name).downlink, queue=lab.queue)
    links += [
        f"addr add {place.gateway}/24 dev {LAN}",
        f"link set {LAN} up",
        # One packet at a time from here on: rates and losses in the core are of packets, not of bundles.
        f"link set {WAN} gso_max_segs 1",
        f"addr add {place.public}/32 dev {WAN}",
        f"link set {WAN} up",
        f"route add default via {CORE_ADDRESS} dev {WAN} onlink",
    ]
    rules = router_rules(place, lab.hosts_of(place.site.name))
    return _ROUTER_SETTINGS + _batch("ip", links) + _batch("tc", limits) + _rules(rules) + _PATIENCE


def core_script(lab: Lab, layout: Layout) -> str:
    """The internet: routes between sites, straight or by the forwarder, with the rates of all paths."""
    links = ["link set lo up", f"addr add {CORE_ADDRESS}/32 dev lo"]
    if layout.is_delayed:
        links += [
            f"tuntap add dev {WAN} mode tun",
            f"link set {WAN} txqueuelen {TUN_QUEUE}",
            f"link set {WAN} up",
            f"rule add iif {WAN} lookup {RETURN_TABLE}",
        ]
    for site in layout.sites.values():
        straight = f"{site.network} via {site.public} dev {site.port} onlink"
        links.append(f"link set {site.port} up")
        if site.delayed:
            links.append(f"route add {site.network} dev {WAN}")
        else:
            links.append(f"route add {straight}")
        if layout.is_delayed:
            links.append(f"route add {straight} table {RETURN_TABLE}")
    limits = shaping.core_roots(layout)
    for name in layout.sites:
        limits += shaping.core_classes(lab, layout, name)
        limits += shaping.core_queues(lab, layout, name)
        limits += shaping.core_filters(layout, name)
    return _ROUTER_SETTINGS + _batch("ip", links) + _batch("tc", limits) + _rules(CUTS)


CUTS: Final = """\
table ip cuts {
  set sites { type ipv4_addr; flags interval; }
  set paths { type ipv4_addr . ipv4_addr; flags interval; }
  chain cut {
    type filter hook forward priority filter;
    ip saddr @sites drop
    ip daddr @sites drop
    ip saddr . ip daddr @paths drop
  }
}
"""
"""What is cut at the moment: whole sites, and paths one way each. Nobody hears of a cut: packets vanish."""


def _pair(one: str, inside: str, other: str, outside: str) -> str:
    return f"link add {one} netns {inside} type veth peer name {other} netns {outside}"


def _batch(tool: str, commands: list[str]) -> str:
    return (
        f"{tool} -batch - <<'END'\n" + "".join(f"{line}\n" for line in commands) + "END\n" if commands else ""
    )


def _rules(rules: str) -> str:
    return f"nft -f - <<'END'\n{rules}END\n" if rules else ""
