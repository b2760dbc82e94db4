"""``swarm bootstrap``, which is ``python -m bootstrap``: run a bootstrap node until its user ends it."""

import asyncio
import contextlib
import ctypes
from pathlib import Path
from typing import Final

from bootstrap.commandline import InterruptedRunError
from bootstrap.hosting import Hosted, run_node
from bootstrap.options import BootstrapOptions
from bootstrap.output import print_json, print_line, say
from swarm.clock import SystemClock
from swarm.errors import MisuseError, UserError
from swarm.identity.authority import Authority
from swarm.identity.invite import MAX_ADDRESSES, Invite
from swarm.identity.membership import Identity
from swarm.identity.rights import Right
from swarm.services.doors import remember_doors
from swarm.services.home import Home, authority_folder
from swarm.services.node import Node, NodeConfig
from swarm.wire.messages.hello import Capabilities

_M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h; other libraries' ``mallopt`` knows no such number, and does nothing."""

NOTHING = Capabilities(memory=0, device="", torch="", operators="", like="")
"""What a node without torch can do for jobs, beside keeping their blocks."""


def bootstrap(options: BootstrapOptions) -> None:
    """Run a bootstrap node; returns once its user has ended it."""
    _share_one_heap()
    try:
        run_node(
            options,
            lambda home, identity: _make(options, home, identity),
            lambda hosted: _serve(options, hosted),
        )
    except InterruptedRunError:
        say("the bootstrap node has left")


def _share_one_heap() -> None:
    """Let the few threads that hash and write take memory from one heap, where the C library is glibc.

    Each would have its own, and keep what it had once.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _make(options: BootstrapOptions, home: Home, identity: Identity) -> Node:
    if Right.ADMIT not in identity.member.rights:
        raise MisuseError(
            "this invite does not allow admitting newcomers, which a bootstrap node is for: "
            "give the organiser's, or one made with --may admit"
        )
    config = NodeConfig(
        folder=home.folder,
        role="bootstrap",
        listen=options.listen,
        advertise=tuple(str(address) for address in options.advertise or ()),
        disk=options.disk,
        capabilities=NOTHING,
    )
    networks = options.networks(options.listen)
    return Node(config, identity=identity, clock=SystemClock(), networks=networks)


async def _serve(options: BootstrapOptions, hosted: Hosted[Node]) -> None:
    node = hosted.node
    invite = _with_door(node.identity.invite, node.addresses)
    _remember(options.base, node)
    if options.json:
        print_json(
            {
                "swarm": node.identity.swarm,
                "name": node.identity.name,
                "peer": node.identity.peer,
                "addresses": node.addresses,
                "status_url": hosted.status_url,
                "invite": invite.encode(),
            }
        )
    else:
        say(f"bootstrap node of swarm {node.identity.name} at {', '.join(node.addresses)}")
        say(f"status: {hosted.status_url}")
        say("the invite with this address in it, for your own machines:")
        print_line(invite.encode())
    await asyncio.Event().wait()


def _with_door(invite: Invite, addresses: tuple[str, ...]) -> Invite:
    """``invite`` with this node's addresses first, and as many as fit of those it had."""
    return invite.with_addresses(tuple(dict.fromkeys(addresses + invite.addresses))[:MAX_ADDRESSES])


def _remember(base: Path, node: Node) -> None:
    """Where the swarm was created on this machine, later invites have this node's address in them."""
    folder = authority_folder(base, node.identity.name)
    try:
        authority = Authority.load(folder)
    except UserError:
        return
    if authority.swarm == node.identity.swarm:
        remember_doors(folder, node.addresses)
