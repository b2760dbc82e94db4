"""``swarm members``: the organiser's list of invites, and who came by them as far as this machine knows.

Nobody knows all members for certain: peers join while the organiser is away. What is shown is what the nodes
on this machine have met, each with where that is known from.
"""

from typing import Any

from rich.table import Table
from rich.text import Text

from bootstrap.output import print_json
from peer.config import MembersOptions
from peer.known_members import KnownMember, known_members
from peer.tables import make_console, make_table
from peer.wording import shown_date, shown_peer
from swarm.identity.authority import Authority
from swarm.identity.issued import IssuedInvite
from swarm.identity.rights import ALL_RIGHTS
from swarm.services.home import authority_folder


def members(options: MembersOptions) -> None:
    """Show the invites and the members."""
    authority = Authority.load(authority_folder(options.base, options.swarm))
    found = known_members(options.base, authority)
    if options.json:
        print_json(_document(authority, found))
    else:
        _show(authority, found)


def _document(authority: Authority, found: list[KnownMember]) -> dict[str, Any]:
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
                "revoked": invite.id in authority.revocations.invites,
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
                "revoked": _revoked(authority, member),
            }
            for member in found
        ],
    }


def _show(authority: Authority, found: list[KnownMember]) -> None:
    console = make_console()
    console.print(
        Text(f"invites to swarm {authority.name} ({shown_peer(authority.swarm)}), by its own list:")
    )
    console.print(_invites(authority, found))
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
            "revoked" if _revoked(authority, member) else "linked" if member.linked else "",
            member.known_from,
        )
        for member in found
    ]
    heads = ("peer", "invited as", "by invite", "role", "", "known from")
    console.print(make_table(heads, rows, folded=("invited as", "known from")))


def _invites(authority: Authority, found: list[KnownMember]) -> Table:
    rows = [
        (
            shown_peer(invite.id),
            invite.label or ("anybody" if invite.public else "-"),
            _may(invite),
            str(invite.uses) if invite.uses else "any",
            _joins_until(authority, invite),
            str(sum(member.invite == invite.id for member in found)),
        )
        for invite in authority.issued
    ]
    heads = ("invite", "for", "may", "uses", "joins until (UTC)", "members")
    return make_table(heads, rows, folded=("for", "may"))


def _may(invite: IssuedInvite) -> str:
    return "all" if set(invite.may) == ALL_RIGHTS else ", ".join(invite.may)


def _joins_until(authority: Authority, invite: IssuedInvite) -> str:
    if invite.id in authority.revocations.invites:
        return "revoked"
    return shown_date(invite.join_by).removesuffix(" UTC") if invite.join_by else "for ever"


def _revoked(authority: Authority, member: KnownMember) -> bool:
    known = authority.revocations
    return member.peer in known.peers or member.invite in known.invites
