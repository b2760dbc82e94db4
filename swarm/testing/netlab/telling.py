"""What the commands print of a lab."""

from collections.abc import Sequence

from swarm.testing.netlab.counters import Carried
from swarm.testing.netlab.processes import processes_in
from swarm.testing.netlab.running import RunningLab
from swarm.testing.netlab.schema import Lab, Path, Site
from swarm.testing.netlab.units import format_rate


def links_lines(links: Sequence[Carried], lab: Lab) -> list[str]:
    """What each link carried, as a table: links of hosts, then access links of sites."""
    rows = [("link", "rate up", "rate down", "bytes sent", "bytes received")]
    for link in links:
        part = lab.host(link.name) if link.kind == "host" else lab.site(link.name)
        rows.append(
            (
                f"{link.kind} {link.name}",
                _rate(part.uplink),
                _rate(part.downlink),
                f"{link.sent:,}",
                f"{link.received:,}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]


def status_lines(running: RunningLab, owner: int) -> list[str]:
    """A lab at a glance: its parts, what they carried, and what whoever measures should know."""
    lab = running.lab
    lines = [f"{running.name}: {len(lab.hosts)} hosts on {len(lab.sites)} sites, owned by process {owner}"]
    for host in lab.hosts:
        place = running.layout.hosts[host.name]
        count = len(processes_in([place.namespace]))
        outside = "" if place.public == place.address else f" (outside {place.public})"
        lines.append(f"  host {host.name} at {host.site}: {place.address}{outside}, {count} processes")
    lines += [f"  site {site.name}: {_router(site)}" for site in lab.sites]
    lines += [f"  path {path.between[0]} - {path.between[1]}: {_path(path)}" for path in lab.paths]
    lines += [f"  {line}" for line in links_lines(running.carried(), lab)]
    if running.layout.is_delayed:
        report, dropped = running.forwarder()
        lines.append(
            f"  forwarder: {report.forwarded} packets, {report.lost} lost as asked for, {dropped} dropped "
            f"because it was too slow, {report.late} late, {report.worst * 1e3:.1f} ms at worst"
        )
    return lines + [f"  note: {note}" for note in running.notes()]


def _router(site: Site) -> str:
    return f"nat {site.nat.value}, firewall {site.firewall.value}"


def _path(path: Path) -> str:
    return (
        f"{_rate(path.rate)}, round trip {path.rtt * 1e3:g} ms, jitter {path.jitter * 1e3:g} ms, "
        f"loss {path.loss * 100:g}%"
    )


def _rate(rate: float | None) -> str:
    return "unlimited" if rate is None else format_rate(rate)
