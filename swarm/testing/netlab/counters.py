"""What interfaces say that they carried."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swarm.testing.netlab.layout import HOST_INTERFACE, WAN, Layout
from swarm.testing.netlab.tools import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Bytes on one link since the lab began, with Ethernet headers, seen from the end that ``name`` is."""

    name: str
    """Of a host, or of a site with its access link."""
    kind: str
    """``host`` or ``site``."""
    sent: int
    received: int

    def since(self, earlier: "Carried") -> "Carried":
        """What was carried after ``earlier``."""
        return Carried(
            name=self.name,
            kind=self.kind,
            sent=self.sent - earlier.sent,
            received=self.received - earlier.received,
        )


def read_links(layout: Layout) -> list[Carried]:
    """What each link of the lab has carried: hosts first, then sites."""
    hosts = [
        _carried(name, "host", _statistics(place.namespace, HOST_INTERFACE))
        for name, place in layout.hosts.items()
    ]
    return hosts + [
        _carried(name, "site", _statistics(place.namespace, WAN)) for name, place in layout.sites.items()
    ]


def since(now: Sequence[Carried], earlier: Sequence[Carried]) -> list[Carried]:
    """What each link carried between two readings."""
    return [link.since(before) for link, before in zip(now, earlier, strict=True)]


def read_forwarder_drops(layout: Layout) -> int:
    """Packets that the forwarder was too slow to fetch."""
    return int(_statistics(layout.core, WAN)["tx"]["dropped"]) if layout.is_delayed else 0


def _carried(name: str, kind: str, statistics: dict[str, Any]) -> Carried:
    return Carried(name=name, kind=kind, sent=statistics["tx"]["bytes"], received=statistics["rx"]["bytes"])


def _statistics(namespace: str, device: str) -> dict[str, Any]:
    text = run(
        ["ip", "-n", namespace, "-j", "-s", "link", "show", "dev", device], doing="cannot read an interface"
    )
    found: dict[str, Any] = json.loads(text)[0]["stats64"]
    return found
