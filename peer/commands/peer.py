"""``swarm peer``: give this machine's compute to a swarm until its user ends it."""

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap.commandline import InterruptedRunError
from bootstrap.hosting import Hosted, require_place, run_node
from bootstrap.output import say
from bootstrap.running import is_interrupt
from peer.config import PeerOptions
from peer.training_part import require_training_part
from peer.view import follow
from swarm.clock import SystemClock
from swarm.errors import FailureError, MisuseError
from swarm.identity.membership import Identity
from swarm.ids import short
from swarm.schedule.units import format_bytes
from swarm.services.home import Home, node_names

if TYPE_CHECKING:
    from swarm.services.training.node import Gift, TrainingNode

HAND_OVER_SECONDS: Final = 3.0
"""How long a peer that is ended waits for others to take over its stages; it has five in all."""


def peer(options: PeerOptions) -> None:
    """Run a peer; returns once its user has ended it."""
    require_training_part()
    require_place(options)
    gift = _gift(options)
    try:
        run_node(
            options,
            lambda home, identity: _make(options, gift, home, identity),
            lambda hosted: _serve(options, hosted),
        )
    except InterruptedRunError:
        say("the peer has left the swarm")


def _gift(options: PeerOptions) -> "Gift":
    """What the options give; torch is loaded here, before anything is promised to anybody.

    Operators that torch lacks on MPS run on the CPU, if the environment says so when it is loaded.
    """
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    from swarm.services.training.node import Gift  # noqa: PLC0415 - imports torch
    from swarm.train.device import find_device, memory_of  # noqa: PLC0415

    if not re.fullmatch(r"any|mine|[a-z2-7]{2,52}", options.jobs):
        raise MisuseError(f"--jobs {options.jobs} is neither any nor mine nor the beginning of a job's id")
    device = find_device(options.device)
    has = memory_of(device)
    memory = has.available // 2 if options.memory is None else options.memory
    if not memory:
        raise MisuseError("a peer that gives no memory does nothing: give --memory a size, such as 6GiB")
    if memory > has.total:
        raise MisuseError(
            f"--memory {format_bytes(memory)} is more than {device} has ({format_bytes(has.total)})"
        )
    return Gift(
        device=device,
        memory=memory,
        accepts=options.jobs,
        mine=OwnPeers(options.base),
        compiles=options.compile,
    )


class OwnPeers:
    """The peers of all homes under ``base``, looked up when asked: an author may train from here later."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def __contains__(self, peer: object) -> bool:
        for name in node_names(self._base):
            try:
                if Identity.load(self._base / name).peer == peer:
                    return True
            except FailureError:
                continue
        return False


def _make(options: PeerOptions, gift: "Gift", home: Home, identity: Identity) -> "TrainingNode":
    from swarm.services.node import NodeConfig  # noqa: PLC0415 - with torch
    from swarm.services.training.node import TrainingNode, capabilities  # noqa: PLC0415

    config = NodeConfig(
        folder=home.folder,
        role="peer",
        listen=options.listen,
        advertise=tuple(str(address) for address in options.advertise or ()),
        disk=options.disk,
        up=options.up,
        down=options.down,
        capabilities=capabilities(gift),
    )
    networks = options.networks(options.listen)
    return TrainingNode(config, gift=gift, identity=identity, clock=SystemClock(), networks=networks)


async def _serve(options: PeerOptions, hosted: "Hosted[TrainingNode]") -> None:
    node = hosted.node
    say(
        f"peer {short(node.identity.peer)} of swarm {node.identity.name} gives "
        f"{format_bytes(node.gift.memory)} on {node.gift.device}; status: {hosted.status_url}"
    )
    async with follow(node, hosted.status_url):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            # Who starts peers as its children ends all of them together: nobody is left to take over.
            if is_interrupt(error) and options.parent is None:
                await node.hand_over(HAND_OVER_SECONDS)
            raise
