"""What can happen to a lab while it runs: cuts, partitions, other rates."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

from msgspec.structs import replace

from swarm.errors import MisuseError
from swarm.testing.netlab import shaping
from swarm.testing.netlab.layout import HOST_INTERFACE, WAN, Layout
from swarm.testing.netlab.schema import Host, Lab, Site
from swarm.testing.netlab.tools import inside, run

_DISABLED, _FORWARDING = 0, 3
"""States of a bridge's port."""


def find(lab: Lab, name: str) -> Host | Site:
    """The host or site ``name``; ``host:NAME`` or ``site:NAME`` where both have it. Raises MisuseError."""
    kind, colon, plain = name.rpartition(":")
    kinds = {"": (Host, Site), "host": (Host,), "site": (Site,)}.get(kind, ())
    everything: list[Host | Site] = [*lab.hosts, *lab.sites]
    match [part for part in everything if part.name == plain and isinstance(part, kinds)]:
        case [one]:
            return one
        case [_, _]:
            raise MisuseError(f"{name} is a host and a site: write host:{name} or site:{name}")
        case _:
            known = ", ".join(part.name for part in everything)
            raise MisuseError(
                f"{lab.name} has no {'host or site' if not colon else kind} {plain!r}: it has {known}"
            )


def set_link(layout: Layout, part: Host | Site, *, cut: bool) -> None:
    """Cut or heal the link of a host to its site, or of a site to the internet."""
    match part:
        case Host():
            site, place = layout.sites[part.site], layout.hosts[part.name]
            state = _DISABLED if cut else _FORWARDING
            run(
                ["bridge", "-n", site.namespace, "link", "set", "dev", place.port, "state", str(state)],
                doing=f"cannot change the link of {part.name}",
            )
        case Site():
            _change_set(layout, "sites", [layout.sites[part.name].network], cut=cut)


def set_paths(layout: Layout, pairs: Iterable[tuple[str, str]], *, cut: bool) -> None:
    """Cut or heal the paths between these pairs of sites, both ways."""
    networks = [(layout.sites[one].network, layout.sites[other].network) for one, other in pairs]
    ways = [way for one, other in networks for way in (f"{one} . {other}", f"{other} . {one}")]
    if ways:
        _change_set(layout, "paths", ways, cut=cut)


def across(lab: Lab, groups: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """The pairs of sites that a partition into these groups separates; sites in none are a last group."""
    named = [site for group in groups for site in group]
    if len(named) != len(set(named)):
        raise MisuseError("a site can be in one group of a partition only")
    for site in named:
        lab.site(site)
    rest = [site.name for site in lab.sites if site.name not in named]
    parts = [*map(list, groups), *([rest] if rest else [])]
    if len(parts) < 2:
        raise MisuseError("a partition takes at least two groups of sites")
    return [(a, b) for one, other in combinations(parts, 2) for a in one for b in other]


def heal_all(lab: Lab, layout: Layout) -> None:
    """Undo all cuts."""
    for host in lab.hosts:
        set_link(layout, host, cut=False)
    _nft(layout, "flush set ip cuts sites\nflush set ip cuts paths\n")


def with_rates(lab: Lab, name: str, *, uplink: float | None, downlink: float | None) -> Lab:
    """``lab`` with other rates of a host or site; None leaves one as it is, infinite takes the limit away."""
    part = find(lab, name)
    rates = {"uplink": uplink, "downlink": downlink}
    changes = {field: _limit_of(rate) for field, rate in rates.items() if rate is not None}
    match part:
        case Host():
            hosts = tuple(replace(host, **changes) if host is part else host for host in lab.hosts)
            return replace(lab, hosts=hosts)
        case Site():
            sites = tuple(replace(site, **changes) if site is part else site for site in lab.sites)
            return replace(lab, sites=sites)


def with_path_rate(lab: Lab, one: str, other: str, rate: float) -> Lab:
    """``lab`` with another rate of the path between two sites."""
    old = lab.path(lab.site(one).name, lab.site(other).name)
    changed = replace(old, rate=_limit_of(rate))
    return replace(lab, paths=(*(path for path in lab.paths if path is not old), changed))


def apply_rates(old: Lab, new: Lab, layout: Layout) -> None:
    """Bring the rates of a lab that runs as ``old`` to what ``new`` says."""
    for before, host in zip(old.hosts, new.hosts, strict=True):
        place = layout.hosts[host.name]
        if host.uplink != before.uplink:
            _limit(place.namespace, HOST_INTERFACE, host.uplink, new.queue)
        if host.downlink != before.downlink:
            _limit(layout.sites[host.site].namespace, place.port, host.downlink, new.queue)
    for site_before, site in zip(old.sites, new.sites, strict=True):
        if site.uplink != site_before.uplink:
            _limit(layout.sites[site.name].namespace, WAN, site.uplink, new.queue)
    commands = []
    for name in layout.sites:
        fresh = shaping.core_classes(new, layout, name) + shaping.core_queues(new, layout, name)
        if fresh != shaping.core_classes(old, layout, name) + shaping.core_queues(old, layout, name):
            commands += fresh
    _tc(layout.core, commands)


def _limit(namespace: str, device: str, rate: float | None, queue: float) -> None:
    commands = shaping.limit_command(device, rate, queue=queue)
    _tc(namespace, commands or [f"qdisc delete dev {device} root"])


def _tc(namespace: str, commands: list[str]) -> None:
    text = "".join(f"{command}\n" for command in commands)
    run(["tc", "-n", namespace, "-batch", "-"], given=text, doing="cannot change a rate")


def _change_set(layout: Layout, name: str, elements: Sequence[str], *, cut: bool) -> None:
    listed = ", ".join(elements)
    # Adding what is there is allowed, deleting what is not there is not.
    text = f"add element ip cuts {name} {{ {listed} }}\n"
    _nft(layout, text if cut else text + f"delete element ip cuts {name} {{ {listed} }}\n")


def _nft(layout: Layout, text: str) -> None:
    run(inside(layout.core, ["nft", "-f", "-"]), given=text, doing="cannot cut or heal")


def _limit_of(rate: float) -> float | None:
    return None if math.isinf(rate) else rate
