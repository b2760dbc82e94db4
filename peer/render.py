"""A status document on a terminal. All text goes in as rich ``Text``: nobody's label becomes markup."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from peer.tables import make_table
from peer.wording import (
    clean,
    shown_clock,
    shown_number,
    shown_peer,
    shown_rate,
    shown_span,
)
from swarm.ids import short
from swarm.schedule.units import format_bytes
from swarm.services.status.document import (
    AttemptStatus,
    EventStatus,
    JobStatus,
    LinkStatus,
    MemberStatus,
    PeerStatus,
    StageStatus,
    StatusDocument,
    WaitingStatus,
)

LAST_EVENTS: Final = 12
"""Events shown on a terminal: those of the last minutes, without pushing the jobs off the screen."""

_STYLES: Final = {
    "training": "green",
    "done": "green",
    "failed": "red",
    "cancelled": "red",
    "left": "red",
    "revoked": "yellow",
    "trouble": "red",
    "refused": "yellow",
}


def render_status(document: StatusDocument, now: float, *, events: int = LAST_EVENTS) -> Group:
    """Everything in the document; ``now`` is the wall time that ages are counted from."""
    parts: list[RenderableType] = [_headline(document, now)]
    if document.waiting is not None:
        parts.append(render_waiting(document.waiting, now))
    for job in document.jobs:
        parts += [Text(), render_job(job, now)]
    if document.plan is not None:
        parts += [Text(clean(line), style="dim") for line in document.plan.explanation]
    parts += [Text(), _members(document.members)]
    if document.groups:
        rows = [
            (
                str(number),
                ", ".join(map(shown_peer, group.peers)),
                ", ".join(str(stage + 1) for stage in group.stages),
            )
            for number, group in enumerate(document.groups, 1)
        ]
        parts += [Text(), make_table(("group", "peers", "stages"), rows, folded=("peers", "stages"))]
    if document.links:
        parts += [Text(), _links(document.links), Text(), _addresses(document.links)]
    calls = [(link.peer, link.attempts) for link in document.links if _tells_more(link)]
    calls += [(member.id, member.attempts) for member in document.members if member.attempts]
    if calls:
        parts += [Text(), _calls(calls)]
    if document.events:
        parts += [Text(), render_events(document.events[-events:])]
    return Group(*parts)


def _held_out(job: JobStatus) -> tuple[tuple[str, str] | str, ...]:
    """The last loss of held-out samples, and after which step it was measured while training goes on."""
    if job.held_out is not None:
        loss: tuple[tuple[str, str] | str, ...] = (("  held-out ", "dim"), shown_number(job.held_out))
    elif job.validations:
        last = job.validations[-1]
        loss = (("  held-out ", "dim"), shown_number(last.loss), (f" at step {last.step}", "dim"))
    else:
        return ()
    if job.spot_check is not None:
        loss = (*loss, (f" (codecs {job.spot_check.difference:+.2%})", "dim"))
    metric = job.validations[-1].metric if job.validations else None
    return loss if metric is None else (*loss, ("  metric ", "dim"), shown_number(metric))


def render_job(job: JobStatus, now: float) -> Group:
    """One job: where it stands, how far it is, and a line for each stage."""
    head = Text.assemble(
        ("job ", "dim"),
        (clean(job.name), "bold"),
        f" {short(job.id)}  ",
        (job.state, _STYLES.get(job.state, "yellow")),
        (f" ({shown_span(now - job.since)})", "dim"),
        f"  {clean(job.sentence)}" if job.sentence else "",
    )
    facts = Text.assemble(
        f"step {job.step}/{job.steps}  ",
        ("loss ", "dim"),
        shown_number(job.loss),
        *_held_out(job),
        ("  tokens/s ", "dim"),
        shown_number(job.tokens_per_second, 0),
        ("  ETA ", "dim"),
        shown_span(job.eta),
    )
    parts: list[RenderableType] = [head, facts]
    if job.state == "training":
        bar = Table.grid()
        bar.add_row(ProgressBar(total=max(1, job.steps), completed=job.step, width=60))
        parts.append(bar)
    if job.stages:
        parts.append(_stages(job.stages))
    return Group(*parts)


SHOWN_DOORS: Final = 8
"""Lines of a view for addresses that are called on the way into the swarm."""


def render_paused(peer: PeerStatus) -> Text:
    """Whether its user has it paused, and since when."""
    return Text("" if peer.paused is None else f"  paused since {shown_clock(peer.paused)}", "yellow")


def render_waiting(waiting: WaitingStatus, now: float) -> Text:
    """For what, since when, and until when."""
    limit = "" if waiting.until is None else f", gives up in {shown_span(waiting.until - now)}"
    line = f"waiting for {clean(waiting.reason)}: {shown_span(now - waiting.since)}{limit}"
    doors = [
        f"  {clean(door.seed)} ({door.source}{f', {door.family}' if door.family else ''}), "
        f"call {door.calls + 1}: {clean(door.answer)}"
        for door in waiting.doors[:SHOWN_DOORS]
    ]
    return Text("\n".join([line, *doors]), "yellow")


def render_events(events: Iterable[EventStatus]) -> Table:
    """What happened, oldest first."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for event in events:
        style = _STYLES.get(event.kind, "dim")
        table.add_row(
            Text(shown_clock(event.time), "dim"), Text(event.kind, style), Text(clean(event.sentence))
        )
    return table


def _headline(document: StatusDocument, now: float) -> Text:
    peer = document.peer
    memory = f"  {format_bytes(peer.memory_used)} of {format_bytes(peer.memory)}" if peer.memory else ""
    return Text.assemble(
        ("swarm ", "dim"),
        (clean(document.swarm.name), "bold"),
        f"  {peer.role}{f' {clean(peer.name)}' if peer.name != peer.role else ''} ({shown_peer(peer.id)})",
        (f"  up {shown_span(now - peer.since)}", "dim"),
        render_paused(peer),
        f"  {clean(peer.device)}{memory}" if peer.device else "",
        (f"  version {clean(document.version)}", "dim"),
    )


def _stages(stages: Sequence[StageStatus]) -> Table:
    rows = [
        (
            str(stage.stage + 1),
            shown_peer(stage.holder),
            str(stage.operators),
            format_bytes(stage.memory),
            f"{stage.predicted_seconds:.3f} s",
            "ready" if stage.ready else "loading",
            _encoding(stage),
            _snapshot(stage),
        )
        for stage in stages
    ]
    heads = ("stage", "holder", "operators", "memory", "per micro-batch", "", "sends", "kept")
    return make_table(heads, rows)


def _snapshot(stage: StageStatus) -> str:
    """The newest copy of a stage: of which step, how large, and where."""
    kept = stage.snapshot
    if kept is None:
        return ""
    return f"step {kept.step}, {format_bytes(kept.bytes)}, on {', '.join(map(shown_peer, kept.peers))}"


def _encoding(stage: StageStatus) -> str:
    """The codec of a stage and, where this node holds it, what that makes of its tensors."""
    ways = []
    for way in stage.encodings:
        lost = f", error {way.relative_error:.1%}" if way.relative_error is not None else ""
        ways.append(f"{way.direction} {format_bytes(way.sent)} for {format_bytes(way.bytes)}{lost}")
    return "; ".join([clean(stage.codec), *ways])


def _reach(member: MemberStatus) -> str:
    if member.linked:
        return "linked"
    return f"waiting {member.waiting}" if member.waiting else "not linked"


def _members(members: Iterable[MemberStatus]) -> Table:
    rows = [
        (
            shown_peer(member.id),
            member.role,
            member.label,
            _reach(member),
            member.device or "-",
            format_bytes(member.memory),
        )
        for member in members
    ]
    return make_table(
        ("member", "role", "invited as", "", "device", "offers"),
        rows,
        folded=("invited as", "device"),
    )


def _links(links: Iterable[LinkStatus]) -> Table:
    rows = [
        (
            shown_peer(link.peer),
            "-" if link.rtt is None else f"{link.rtt * 1000:.1f} ms",
            format_bytes(link.bytes_sent),
            format_bytes(link.bytes_received),
            shown_rate(link.rate_up),
            shown_rate(link.rate_down),
        )
        for link in links
    ]
    return make_table(("link to", "RTT", "sent", "received", "up", "down"), rows)


def _addresses(links: Iterable[LinkStatus]) -> Table:
    """Apart from the numbers: an address may be as long as half a line."""
    rows = [
        (
            shown_peer(link.peer),
            link.address if link.path == "direct" else f"{link.address} ({link.path})",
        )
        for link in links
    ]
    return make_table(("link to", "is at"), rows, folded=("is at",))


def _tells_more(link: LinkStatus) -> bool:
    """Whether other addresses were tried than the one that the link's own row has."""
    return any(attempt.answer for attempt in link.attempts)


def _calls(calls: Iterable[tuple[str, Sequence[AttemptStatus]]]) -> Table:
    """Which addresses were called, in their order, what each answered, and how long that took."""
    rows = [
        (
            shown_peer(peer) if number == 0 else "",
            attempt.address,
            attempt.answer or "answered",
            f"{attempt.seconds:.1f} s",
            shown_clock(attempt.began),
        )
        for peer, attempts in calls
        for number, attempt in enumerate(attempts)
    ]
    return make_table(
        ("called", "address", "what came of it", "took", "at"), rows, folded=("what came of it",)
    )
