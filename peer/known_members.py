"""Who is in a swarm that was created here, as far as the nodes and homes on this machine know."""

from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.running import run
from swarm.errors import FailureError
from swarm.identity.authority import Authority
from swarm.identity.membership import Identity
from swarm.services.home import Home, Running, node_names, running_nodes
from swarm.services.members import load_members
from swarm.services.status.client import StatusClient
from swarm.services.status.document import StatusDocument


@dataclass(slots=True, kw_only=True)
class KnownMember:
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


def known_members(base: Path, authority: Authority) -> list[KnownMember]:
    """Everybody known to be in the swarm of ``authority`` to the nodes of the home ``base``."""
    known: dict[str, KnownMember] = {}
    for node, document in run(lambda: _ask(running_nodes(base))):
        if document.swarm.id == authority.swarm:
            _learn_from_node(known, node, document)
    for name in node_names(base):
        _learn_from_home(known, Home(base, name), authority)
    return sorted(known.values(), key=lambda member: (member.label, member.peer))


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


def _learn_from_node(known: dict[str, KnownMember], node: Running, document: StatusDocument) -> None:
    for member in document.members:
        entry = known.setdefault(
            member.id, KnownMember(peer=member.id, invite=member.invite, label=member.label, role=member.role)
        )
        entry.role = member.role
        entry.linked = entry.linked or member.linked
        if member.id != document.peer.id and node.name not in entry.met_by:
            entry.met_by.append(node.name)


def _learn_from_home(known: dict[str, KnownMember], home: Home, authority: Authority) -> None:
    try:
        identity = Identity.load(home.folder)
    except FailureError:
        return
    own = identity.member
    if own.swarm != authority.swarm:
        return
    known.setdefault(
        own.peer, KnownMember(peer=own.peer, invite=own.invite, label=own.label)
    ).home = home.name
    for met in load_members(home.folder):
        entry = known.setdefault(
            met.peer, KnownMember(peer=met.peer, invite=met.invite, label=met.label, role=met.role)
        )
        if home.name not in entry.met_by:
            entry.met_by.append(home.name)
