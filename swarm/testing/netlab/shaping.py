"""Rates, as commands for ``tc``: a token bucket at both ends of a limited link, classes in the core.

What is sent to a site has one class, its downlink; below it each other site has its own, the path from there.
Those share the downlink evenly and none exceeds its path's rate. On a site's own interface in the core the
root is enough; on the interface to the forwarder the classes of all sites hang side by side.
"""

from typing import Final

from swarm.testing.netlab.layout import WAN, Layout, SitePlace
from swarm.testing.netlab.schema import Lab

FRAME: Final = 1514
"""Bytes of a full packet with its Ethernet header."""
UNLIMITED: Final = 100e9
"""Bits a second that stand for no limit."""
UNLIMITED_QUEUE: Final = 1000 * FRAME
"""Bytes that wait before a link without a limit, where the next one is slower than they come."""
_BURST_SECONDS: Final = 0.002
"""How long a link may be idle and catch up later: more than a timer is late, less than anybody sees."""
_FAST: Final = 200e6
"""Bits a second from which on a link on a busy machine would lose much by timers that are late."""
_FAST_BURST_SECONDS: Final = 0.01


def burst(rate: float) -> int:
    """Bytes that may leave at once on a link of ``rate`` bits a second."""
    seconds = _FAST_BURST_SECONDS if rate > _FAST else _BURST_SECONDS
    return max(2 * FRAME, round(rate / 8 * seconds))


def queue_bytes(rate: float, seconds: float) -> int:
    """Bytes that wait before such a link, at most."""
    return max(16 * FRAME, round(rate / 8 * seconds))


def limit_command(device: str, rate: float | None, *, queue: float) -> list[str]:
    """The tc commands that limit what leaves by ``device``; none for a link without a limit."""
    if rate is None:
        return []
    size = burst(rate) + queue_bytes(rate, queue)
    return [f"qdisc replace dev {device} root tbf rate {rate:.0f}bit burst {burst(rate)} limit {size}"]


def core_device(place: SitePlace) -> str:
    """The interface of the core that what goes to this site leaves by, where rates apply."""
    return WAN if place.delayed else place.port


def core_roots(layout: Layout) -> list[str]:
    """The tc commands that make room for the classes of all sites."""
    devices = sorted({core_device(place) for place in layout.sites.values()})
    return [f"qdisc replace dev {device} root handle 1: htb default 0" for device in devices]


def core_classes(lab: Lab, layout: Layout, site: str) -> list[str]:
    """The tc commands for the classes of what goes to ``site``; to be given again when a rate has changed."""
    place = layout.sites[site]
    device, down = core_device(place), lab.site(site).downlink or UNLIMITED
    parent = f"1:{place.number << 8:x}"
    commands = [f"class replace dev {device} parent 1: classid {parent} htb {_htb(down, down)}"]
    others = [other for other in layout.sites.values() if other is not place]
    for other in others:
        ceiling = min(lab.path(site, other.site.name).rate or UNLIMITED, down)
        share = min(down / len(others), ceiling)
        name = _class(place, other)
        commands.append(
            f"class replace dev {device} parent {parent} classid {name} htb {_htb(share, ceiling)}"
        )
    return commands


def core_queues(lab: Lab, layout: Layout, site: str) -> list[str]:
    """The tc commands for the queues of those classes; their sizes follow the rates."""
    place = layout.sites[site]
    device, down = core_device(place), lab.site(site).downlink or UNLIMITED
    commands = []
    for other in layout.sites.values():
        if other is not place:
            rate = min(lab.path(site, other.site.name).rate or UNLIMITED, down)
            size = queue_bytes(rate, lab.queue) if rate < UNLIMITED else UNLIMITED_QUEUE
            commands.append(f"qdisc replace dev {device} parent {_class(place, other)} bfifo limit {size}")
    return commands


def core_filters(layout: Layout, site: str) -> list[str]:
    """The tc commands that send packets to those classes, by their addresses."""
    place = layout.sites[site]
    return [
        f"filter add dev {core_device(place)} parent 1: protocol ip prio 1 u32 "
        f"match ip src {other.network} match ip dst {place.network} flowid {_class(place, other)}"
        for other in layout.sites.values()
        if other is not place
    ]


def _class(receiver: SitePlace, sender: SitePlace) -> str:
    return f"1:{receiver.number << 8 | sender.number:x}"


def _htb(rate: float, ceiling: float) -> str:
    bursts = f"burst {burst(rate)} cburst {burst(ceiling)}"
    return f"rate {rate:.0f}bit ceil {ceiling:.0f}bit {bursts} quantum {2 * FRAME}"
