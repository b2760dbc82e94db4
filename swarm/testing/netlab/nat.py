"""What a site's router does to addresses and to strangers, as rules for nftables.

The kernel's own translation is close to a port-restricted cone but for one thing: it keeps a mapping unique
for each destination only, so that two hosts behind one router that use the same port can get the same outside
port for different destinations. RFC 4787 (section 4.1) wants endpoint-independent mappings, which a second
host cannot disturb. So the cone kinds here remember mappings in nftables' own maps: a first packet gets an
outside port at random; if that port belongs to somebody else, the packet is dropped, and its
retransmission tries another; later flows from the same inside address and port find theirs in the map.

Filtering (section 5) is what the kernel tracks, for port-restricted and symmetric; or an entry in the same
maps, for full cone; or an entry and the address having been sent to, for address-restricted. A forwarded port
keeps its number both ways. There is no hairpinning (section 6): a host does not reach its own site's
public address.
"""

from typing import Final

from swarm.testing.netlab.layout import WAN, SitePlace
from swarm.testing.netlab.schema import Firewall, Host, Nat

MAPPING_SECONDS: Final = 300
"""How long a mapping lives after the last packet out of it: what RFC 4787 recommends (REQ-5)."""
OUTSIDE_PORTS: Final = "20000-59999"
"""Where mappings get their outside ports from."""

_CONES: Final = {Nat.FULL_CONE, Nat.ADDRESS_RESTRICTED, Nat.PORT_RESTRICTED}
_PROTOCOLS: Final = ("tcp", "udp")
_INSIDE: Final = "ct original ip saddr . ct original proto-src"


def router_rules(place: SitePlace, hosts: tuple[Host, ...]) -> str:
    """The rules of a site's router, as text for ``nft -f``; none for one that only routes."""
    nat = place.site.nat
    if nat is Nat.NONE and place.site.firewall is Firewall.OPEN:
        return ""
    forwards = [
        (where.address, port) for host, where in zip(hosts, place.hosts, strict=True) for port in host.forward
    ]
    parts = [_gate(place, forwards)]
    if nat in _CONES:
        parts += [_memory(protocol, forwards) for protocol in _PROTOCOLS]
        jumps = [
            f"oifname {WAN} meta l4proto {protocol} ct direction original jump remember_{protocol}"
            for protocol in _PROTOCOLS
        ]
        parts.append(_chain("remember", "type filter hook postrouting priority 150;", jumps))
    if nat is not Nat.NONE:
        parts += [_inward(nat, forwards), _outward(place, forwards)]
    return "table ip router {\n" + "\n".join(parts) + "\n}\n"


def _gate(place: SitePlace, forwards: list[tuple[str, int]]) -> str:
    """Who may come in: answers, forwarded ports, and what a mapping let in where no firewall says no.

    Strangers hear nothing, no refusal either, and the router itself answers nobody.
    """
    rules = ["ct state established,related accept"]
    rules += [
        f"ip daddr {address} meta l4proto {{ tcp, udp }} th dport {port} accept" for address, port in forwards
    ]
    if place.site.firewall is Firewall.OPEN:
        rules.append("ct status dnat accept")
    rules.append("drop")
    return "\n".join(
        [
            _chain("gate", "type filter hook forward priority filter;", [f"iifname {WAN} jump strangers"]),
            _chain("strangers", "", rules),
            _chain(
                "own",
                "type filter hook input priority filter;",
                [f"iifname {WAN} ct state established,related accept", f"iifname {WAN} drop"],
            ),
        ]
    )


def _memory(protocol: str, forwards: list[tuple[str, int]]) -> str:
    """The mappings of one protocol: inside to outside, outside to inside, and who was sent to.

    Forwarded ports are mappings that are always there: they are not remembered, and nobody else gets them.
    """
    of, outside = f"meta l4proto {protocol}", f"{protocol} sport"
    kept = f"flags dynamic,timeout; timeout {MAPPING_SECONDS}s; size 65535;"
    first = []
    if forwards:
        ends = ", ".join(f"{address} . {port}" for address, port in forwards)
        ports = ", ".join(str(port) for _, port in forwards)
        first = [f"{of} {_INSIDE} {{ {ends} }} return", f"{of} {outside} {{ {ports} }} drop"]
    return "\n".join(
        [
            f"  map out_{protocol} {{ type ipv4_addr . inet_service : inet_service; {kept} }}",
            f"  map in_{protocol} {{ type inet_service : ipv4_addr . inet_service; {kept} }}",
            f"  set pairs_{protocol} {{ type ipv4_addr . inet_service . inet_service; {kept} }}",
            f"  set contacts_{protocol} {{ type inet_service . ipv4_addr; {kept} }}",
            _chain(
                f"keep_{protocol}",
                "",
                [
                    f"{of} update @pairs_{protocol} {{ {_INSIDE} . {outside} }}",
                    f"{of} update @out_{protocol} {{ {_INSIDE} : {outside} }}",
                    f"{of} update @in_{protocol} {{ {outside} : {_INSIDE} }}",
                    f"{of} update @contacts_{protocol} {{ {outside} . ip daddr }}",
                ],
            ),
            _chain(
                f"remember_{protocol}",
                "",
                [
                    *first,
                    f"{of} {_INSIDE} . {outside} @pairs_{protocol} goto keep_{protocol}",
                    f"{of} {outside} @in_{protocol} drop",
                    f"goto keep_{protocol}",
                ],
            ),
        ]
    )


def _inward(nat: Nat, forwards: list[tuple[str, int]]) -> str:
    """Translation of what comes from outside and is not an answer: forwarded ports, then open mappings."""
    came = f"iifname {WAN}"
    rules = [
        f"{came} meta l4proto {{ tcp, udp }} th dport {port} dnat to {address}" for address, port in forwards
    ]
    for protocol in _PROTOCOLS:
        if nat is Nat.FULL_CONE:
            rules.append(f"{came} meta l4proto {protocol} dnat to {protocol} dport map @in_{protocol}")
        elif nat is Nat.ADDRESS_RESTRICTED:
            known = f"{protocol} dport . ip saddr @contacts_{protocol}"
            rules.append(f"{came} {known} dnat to {protocol} dport map @in_{protocol}")
    return _chain("inward", "type nat hook prerouting priority dstnat;", rules)


def _outward(place: SitePlace, forwards: list[tuple[str, int]]) -> str:
    """Translation of what goes out."""
    out, public = f"oifname {WAN}", place.public
    rules = []
    if place.site.nat in _CONES:
        rules += [
            f"{out} ip saddr {address} meta l4proto {{ tcp, udp }} th sport {port} snat to {public}:{port}"
            for address, port in forwards
        ]
        rules += [
            f"{out} meta l4proto {protocol} snat to {public}:ip saddr . {protocol} sport map @out_{protocol}"
            for protocol in _PROTOCOLS
        ]
    rules.append(f"{out} meta l4proto {{ tcp, udp }} snat to {public}:{OUTSIDE_PORTS} fully-random")
    rules.append(f"{out} snat to {public}")
    return _chain("outward", "type nat hook postrouting priority srcnat;", rules)


def _chain(name: str, hook: str, rules: list[str]) -> str:
    lines = [
        f"  chain {name} {{",
        *([f"    {hook}"] if hook else []),
        *(f"    {rule}" for rule in rules),
        "  }",
    ]
    return "\n".join(lines)
