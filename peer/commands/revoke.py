"""``swarm revoke``: the organiser signs a revocation list, and a node on this machine tells the swarm.

The list is on disk before anybody is told, and every node that starts on this machine later takes it from
there; so nothing is lost where no node can be reached.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from bootstrap.hosting import Hosted, run_node
from bootstrap.node import NOTHING
from bootstrap.options import DEFAULT_DISK, NodeOptions
from bootstrap.output import print_json, say
from bootstrap.running import run
from peer.config import RevokeOptions
from peer.known_members import KnownMember, known_members
from peer.wording import shown_peer
from swarm.clock import SystemClock, wall
from swarm.errors import FailureError, MisuseError, SwarmError
from swarm.identity.authority import Authority
from swarm.identity.issued import IssuedInvite
from swarm.identity.membership import Identity
from swarm.identity.revocations import Revocations
from swarm.identity.terms import InviteId
from swarm.ids import PeerId
from swarm.net.address import Address
from swarm.services.home import Home, Running, authority_folder, node_names, running_nodes
from swarm.services.node import Node, NodeConfig
from swarm.services.status.client import StatusClient
from swarm.services.status.document import StatusDocument
from swarm.services.status.source import RevocationReport

MIN_PREFIX: Final = 4
"""Characters of an id that must be given: a slip of the finger must not revoke anybody."""
SPREAD_SECONDS: Final = 2.0
"""How long a node that was started for this stays, so that the news leaves it on every link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """What is revoked. ``falls`` are the known members who are out then."""

    peers: tuple[PeerId, ...]
    invites: tuple[InviteId, ...]
    falls: tuple[KnownMember, ...]


def revoke(options: RevokeOptions) -> None:
    """Sign, keep and spread a new revocation list."""
    authority = Authority.load(authority_folder(options.base, options.swarm))
    target = _find(options, authority)
    nodes = _tell_nodes(options, authority)
    news = authority.revoke(peers=target.peers, invites=target.invites, now=wall())
    told = _tell_nodes(options, authority) if nodes else _tell_by_own_node(options, authority)
    if options.json:
        print_json(
            {
                "swarm": authority.swarm,
                "number": authority.revocations.number,
                "peers": target.peers,
                "invites": target.invites,
                "members": [member.peer for member in target.falls],
                "news": news,
                "told": told,
            }
        )
    else:
        _show(authority, target, news=news)
    if not told:
        raise FailureError(
            "the revocation is signed and kept, but no other peer could be told yet: "
            f"start a node of swarm {authority.name} on this machine, and it will tell the others"
        )


def _show(authority: Authority, target: _Target, *, news: bool) -> None:
    names = [f"invite {shown_peer(invite)}" for invite in target.invites]
    names += [f"peer {shown_peer(peer)}" for peer in target.peers]
    state = "revoked" if news else "had been revoked already"
    say(f"{' and '.join(names)} {state}: list {authority.revocations.number} of swarm {authority.name}")
    for member in target.falls:
        if member.peer not in target.peers:
            say(f"with it peer {shown_peer(member.peer)}{f' ({member.label})' if member.label else ''}")


def _find(options: RevokeOptions, authority: Authority) -> _Target:
    """Raises MisuseError where the id fits none, or several, or would put this machine's own nodes out."""
    prefix = options.id.strip().lower()
    if len(prefix) < MIN_PREFIX:
        raise MisuseError(f"give at least {MIN_PREFIX} characters of the id")
    known = known_members(options.base, authority)
    members = [member for member in known if member.peer.startswith(prefix)]
    invites = [invite for invite in authority.issued if invite.id.startswith(prefix)]
    if len(members) + len(invites) > 1:
        raise MisuseError(f"{len(members) + len(invites)} peers and invites begin with {prefix!r}: give more")
    if invites:
        return _target((), (invites[0].id,), known)
    if members:
        return _target_of(members[0], known, authority, peer_only=options.peer_only)
    raise MisuseError(
        f"no peer or invite of swarm {authority.name} that is known here begins with {prefix!r}: "
        f"swarm members {authority.name} lists them"
    )


def _target_of(
    member: KnownMember, known: list[KnownMember], authority: Authority, *, peer_only: bool
) -> _Target:
    peer, invite = PeerId(member.peer), InviteId(member.invite)
    issued = _issued(authority, invite)
    if peer_only or (issued is not None and issued.public):
        return _target((peer,), (), known)
    own = [other.home for other in known if other.home and other.invite == invite and other.peer != peer]
    if own:
        raise MisuseError(
            f"this machine's own {', '.join(own)} came by the same invite {shown_peer(invite)}: give "
            "--peer-only to revoke this peer alone, which its holder can get round with a new key, "
            "or the invite's id to revoke all of them"
        )
    return _target((peer,), (invite,), known)


def _issued(authority: Authority, invite: InviteId) -> IssuedInvite | None:
    return next((issued for issued in authority.issued if issued.id == invite), None)


def _target(peers: tuple[PeerId, ...], invites: tuple[InviteId, ...], known: list[KnownMember]) -> _Target:
    falls = tuple(member for member in known if member.peer in peers or member.invite in invites)
    return _Target(peers=peers, invites=invites, falls=falls)


def _learn(authority: Authority, report: RevocationReport) -> None:
    """Another copy of the authority may have signed lists: the next one must name theirs too."""
    if authority.revocations.learn_all(report.lists, report.epoch_key):
        authority.save_revocations()


def _tell_nodes(options: RevokeOptions, authority: Authority) -> int:
    """Tell the nodes of the swarm that run here, and hear what they know; to how many nodes that went."""

    async def ask() -> list[RevocationReport]:
        return [report for node in running_nodes(options.base) if (report := await _tell(node, authority))]

    reports = run(ask)
    for report in reports:
        _learn(authority, report)
    return len(reports) + sum(report.told for report in reports)


async def _tell(node: Running, authority: Authority) -> RevocationReport | None:
    if not node.status_url:
        return None
    known = authority.revocations
    try:
        async with StatusClient(node.status_url, token=node.control) as client:
            document, _ = await client.fetch()
            out = document.peer.id in known.peers or _invite_of(document) in known.invites
            if document.swarm.id != authority.swarm or out:
                return None
            return await client.revoke(known.lists, known.epoch_key)
    except FailureError:
        return None


def _invite_of(document: StatusDocument) -> str:
    """By which invite the node with this status came."""
    return next((m.invite for m in document.members if m.id == document.peer.id), "")


def _tell_by_own_node(options: RevokeOptions, authority: Authority) -> int:
    """Tell the swarm by a node of this process, in a home here that is in it; to how many links."""
    home = _home(options, authority)
    if home is None:
        return 0
    node_options = NodeOptions(home=options.base, name=home.name, disk=DEFAULT_DISK)

    async def body(hosted: Hosted[Node]) -> RevocationReport:
        known = authority.revocations
        report = await hosted.node.revoke(known.lists, known.epoch_key)
        await asyncio.sleep(SPREAD_SECONDS)
        return report

    try:
        report = run_node(node_options, _make, body, level="warning")
    except SwarmError:
        return 0
    _learn(authority, report)
    return report.told


def _home(options: RevokeOptions, authority: Authority) -> Home | None:
    """A home here that is in the swarm, is not used now, and was not revoked."""
    for name in node_names(options.base):
        home = Home(options.base, name)
        try:
            identity = Identity.load(home.folder)
        except FailureError:
            continue
        revoked: Revocations = authority.revocations
        if identity.swarm == authority.swarm and not revoked.sentence(identity.member) and not home.running():
            return home
    return None


def _make(home: Home, identity: Identity) -> Node:
    config = NodeConfig(
        folder=home.folder,
        role="author",
        listen=Address("", 0),
        disk=DEFAULT_DISK,
        capabilities=NOTHING,
    )
    return Node(config, identity=identity, clock=SystemClock())
