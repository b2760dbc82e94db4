"""What an organiser does on their own machine: create a swarm, invite people to it."""

from typing import Any, Final

from bootstrap.output import print_json, print_line, say
from peer.config import CreateOptions, InviteOptions
from swarm.clock import wall
from swarm.identity.authority import Authority
from swarm.identity.invite import Invite, check_addresses
from swarm.identity.rights import ALL_RIGHTS, encode_rights, parse_rights
from swarm.services.doors import remember_doors
from swarm.services.home import authority_folder

ORGANISER_LABEL: Final = "organiser"


def create(options: CreateOptions) -> None:
    """Make the authority and its first invites."""
    folder = authority_folder(options.base, options.swarm)
    addresses = check_addresses(tuple(str(address) for address in options.bootstrap or ()))
    now = wall()
    authority = Authority.create(options.swarm, public=options.public, now=now)
    own = authority.issue(label=ORGANISER_LABEL, rights=ALL_RIGHTS, addresses=addresses, now=now)
    public = authority.issue(label="", addresses=addresses, now=now) if options.public else None
    authority.save(folder)
    if addresses:
        remember_doors(folder, addresses)
    if options.json:
        document: dict[str, Any] = {
            "swarm": authority.swarm,
            "name": authority.name,
            "public": authority.public,
            "folder": str(folder),
            "invite": own.encode(),
        }
        print_json(document | ({"public_invite": public.encode()} if public is not None else {}))
        return
    say(f"swarm {authority.name} is made; who has {folder} is its organiser: keep a copy of it")
    say("the invite for your own machines, with all rights:")
    print_line(own.encode())
    if public is not None:
        say("the invite for strangers, who may contribute:")
        print_line(public.encode())
    if not addresses:
        say("it has no address in it yet: give it to swarm bootstrap, and pass on the invite that prints")


def invite(options: InviteOptions) -> None:
    """Issue one more invite."""
    folder = authority_folder(options.base, options.swarm)
    authority = Authority.load(folder)
    rights = parse_rights(options.may or ())
    now = wall()
    addresses = remember_doors(folder, tuple(str(address) for address in options.bootstrap or ()))
    issued = authority.issue(
        label=options.label,
        uses=options.uses,
        join_by=now + options.expires if options.expires else 0,
        rights=rights,
        addresses=addresses,
        now=now,
    )
    if options.json:
        print_json(_described(issued) | {"invite": issued.encode()})
        return
    if not addresses:
        say(
            "no bootstrap address is known for this swarm, so the invite has none: give --bootstrap HOST:PORT"
        )
    print_line(issued.encode())


def _described(issued: Invite) -> dict[str, Any]:
    return {
        "swarm": issued.swarm,
        "name": issued.name,
        "id": issued.id,
        "label": issued.label,
        "uses": issued.uses,
        "join_by": issued.join_by,
        "rights": encode_rights(issued.rights),
        "addresses": issued.addresses,
    }
