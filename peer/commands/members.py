"""``swarm members``: the organiser's list of invites, and who came by them as far as this machine knows.

Nobody knows all members for certain: peers join while the organiser is away. What is shown is what the nodes
on this machine have met, each with where that is known from.
"""

from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bootstrap.output import print_json
from bootstrap.running import run
from peer.config import MembersOptions
from peer.tables import make_table
from peer.wording import shown_date, shown_peer
from swarm.errors import FailureError
from swarm.identity.authority import Authority
from swarm.identity.issued import IssuedInvite
from swarm.identity.membership import Identity
from swarm.services.home import Home, Running, authority_folder, node_names, running_nodes
from swarm.services.members import load_members
from swarm.services.status.client import StatusClient
from swarm.services.status.document import StatusDocument


@dataclass(slots=True, kw_only=True)
class _Known:
    """One member, and where it is known from."""

    peer: str
    invite: str
    label: str
    role: str = ""
    linked: bool = False
    met_by: list[str] = field(default_factory=list)
    """Nodes on this machine, running or not, that were linked with it."""
    home: str = ""
    """Its own home, where it is on this machine."""

    @property
    def known_from(self) -> str:
        """Why it is believed to be a member."""
        sources = [f"met by {', '.join(self.met_by)}"] if self.met_by else []
        return "; ".join([*sources, *([f"home {self.home} on this machine"] if self.home else [])])


def members(options: MembersOptions) -> None:
    """Show the invites and the members."""
    authority = Authority.load(authority_folder(options.base, options.swarm))
    known: dict[str, _Known] = {}
    for node, document in run(lambda: _ask(running_nodes(options.base))):
        if document.swarm.id == authority.swarm:
            _learn_from_node(known, node, document)
    for name in node_names(options.base):
        _learn_from_home(known, Home(options.base, name), authority)
    found = sorted(known.values(), key=lambda member: (member.label, member.peer))
    if options.json:
        print_json(_document(authority, found))
    else:
        _show(authority, found)


async def _ask(nodes: list[Running]) -> list[tuple[Running, StatusDocument]]:
    """The status of every node here that answers; one that is just ending is no failure."""
    answers: list[tuple[Running, StatusDocument]] = []
    for node in nodes:
        if not node.status_url:
            continue
        try:
            async with StatusClient(node.status_url, token=node.control) as client:
                document, _ = await client.fetch()
        except FailureError:
            continue
        answers.append((node, document))
    return answers


def _learn_from_node(known: dict[str, _Known], node: Running, document: StatusDocument) -> None:
    for member in document.members:
        entry = known.setdefault(
            member.id, _Known(peer=member.id, invite=member.invite, label=member.label, role=member.role)
        )
        entry.role = member.role
        entry.linked = entry.linked or member.linked
        if member.id != document.peer.id and node.name not in entry.met_by:
            entry.met_by.append(node.name)


def _learn_from_home(known: dict[str, _Known], home: Home, authority: Authority) -> None:
    try:
        identity = Identity.load(home.folder)
    except FailureError:
        return
    own = identity.member
    if own.swarm != authority.swarm:
        return
    known.setdefault(own.peer, _Known(peer=own.peer, invite=own.invite, label=own.label)).home = home.name
    for met in load_members(home.folder):
        entry = known.setdefault(
            met.peer, _Known(peer=met.peer, invite=met.invite, label=met.label, role=met.role)
        )
        if home.name not in entry.met_by:
            entry.met_by.append(home.name)


def _document(authority: Authority, found: list[_Known]) -> dict[str, Any]:
    return {
        "swarm": authority.swarm,
        "name": authority.name,
        "invites": [
            {
                "id": invite.id,
                "label": invite.label,
                "uses": invite.uses,
                "join_by": invite.join_by,
                "rights": invite.may,
                "public": invite.public,
                "issued": invite.wall,
                "peers": [member.peer for member in found if member.invite == invite.id],
            }
            for invite in authority.issued
        ],
        "members": [
            {
                "peer": member.peer,
                "invite": member.invite,
                "label": member.label,
                "role": member.role,
                "linked": member.linked,
                "known_from": member.known_from,
            }
            for member in found
        ],
    }


def _show(authority: Authority, found: list[_Known]) -> None:
    console = Console()
    console.print(
        Text(f"invites to swarm {authority.name} ({shown_peer(authority.swarm)}), by its own list:")
    )
    console.print(_invites(authority.issued, found))
    if not found:
        console.print(Text("no member is known: no node of this swarm runs, or has run, in this home"))
        return
    console.print(Text("\nmembers, as far as the nodes on this machine know:"))
    rows = [
        (
            shown_peer(member.peer),
            member.label,
            shown_peer(member.invite),
            member.role,
            "linked" if member.linked else "",
            member.known_from,
        )
        for member in found
    ]
    heads = ("peer", "invited as", "by invite", "role", "", "known from")
    console.print(make_table(heads, rows, folded=("invited as", "known from")))


def _invites(issued: tuple[IssuedInvite, ...], found: list[_Known]) -> Table:
    rows = [
        (
            shown_peer(invite.id),
            invite.label or ("anybody" if invite.public else "-"),
            ", ".join(invite.may),
            str(invite.uses) if invite.uses else "any",
            shown_date(invite.join_by) if invite.join_by else "for ever",
            str(sum(member.invite == invite.id for member in found)),
        )
        for invite in issued
    ]
    heads = ("invite", "for", "may", "uses", "joins until", "members")
    return make_table(heads, rows, folded=("for", "may"))
