"""The demo itself: create a swarm, start its processes, train, export, compare, tell."""

import asyncio
import contextlib
import dataclasses
import math
import tempfile
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bootstrap.commandline import INTERRUPTED, InterruptedRunError
from bootstrap.hosting import Hosted, host_node
from bootstrap.options import NodeOptions
from bootstrap.output import print_json, print_line, say
from bootstrap.running import run
from peer.commands.train import ended, make_author, wait_for
from peer.demo.options import DemoOptions
from peer.demo.processes import Child, Children
from peer.demo.result import Comparison, DemoResult, PeerResult
from peer.training_part import example_file, require_training_part, writable_file
from peer.view import follow
from swarm.clock import elapsed, wall
from swarm.errors import FailureError, MisuseError
from swarm.identity.authority import Authority
from swarm.identity.rights import ALL_RIGHTS
from swarm.log import configure
from swarm.net.address import Address
from swarm.schedule.units import format_bytes
from swarm.services.home import Home
from swarm.services.job import Job
from swarm.services.status.client import StatusClient
from swarm.services.status.document import StatusDocument

if TYPE_CHECKING:
    from swarm.services.training.author import PreparedJob
    from swarm.services.training.node import TrainingNode

PATIENCE_SECONDS: Final = 120.0
"""How long the job waits for its peers: they are on this machine, but importing torch can be slow."""
AUTHOR_DISK: Final = 2**32
LOCAL: Final = Address("127.0.0.1", 0)
"""Nothing of the demo can be reached from elsewhere, and no firewall asks."""


class _BootstrapDocument(msgspec.Struct):
    """What the demo needs of ``bootstrap --json``."""

    invite: str
    status_url: str


def demo(options: DemoOptions) -> int:
    """Run the demo and return the exit status."""
    require_training_part()
    if options.verify and options.compile:
        raise MisuseError("--verify compares bits, which --compile may change: leave out one of them")
    configure("debug" if options.debug else "info")
    began = elapsed()
    _weights_file(options)
    prepared, whole = _prepare(options)
    memory = _memory_of_each(prepared, options.peers)
    with tempfile.TemporaryDirectory(prefix="swarm-demo-", ignore_cleanup_errors=True) as folder:
        try:
            result = run(lambda: _run(options, prepared, memory, Path(folder), whole=whole, began=began))
        except InterruptedRunError:
            say("interrupted: every process of the demo has ended")
            return INTERRUPTED
    return _tell(options, result)


def _prepare(options: DemoOptions) -> "tuple[PreparedJob, bool]":
    """The captured example, and whether all of its steps are asked for."""
    from swarm.services.training.author import prepare_job  # noqa: PLC0415 - imports torch
    from swarm.train.job import load_job  # noqa: PLC0415

    job = load_job(example_file(options.model))
    whole = options.steps is None or options.steps >= job.steps
    if options.steps is not None:
        job = dataclasses.replace(job, steps=options.steps)
    say(f"capturing the {options.model} of examples/{options.model}.py")
    return prepare_job(job), whole


def _memory_of_each(prepared: "PreparedJob", peers: int) -> int:
    """Bytes that each of ``peers`` offers: enough together, and too little with one of them missing.

    The most that is: with the least (``memory_for_peers``) early stages, with more micro-batches in flight,
    hold so little that the last one takes most of the compute.
    """
    from swarm.schedule.capacity import memory_for_peers  # noqa: PLC0415 - numpy
    from swarm.schedule.workload import Workload  # noqa: PLC0415

    job, captured = prepared.job, prepared.captured
    workload = Workload(
        graph=captured.train,
        evaluation=captured.evaluate,
        optimizer=job.optimizer_spec(),
        micro_batches=job.micro_batches,
    )
    least, alone = memory_for_peers(workload, peers), memory_for_peers(workload, 1)
    fewer = memory_for_peers(workload, peers - 1) if peers > 1 else least
    memory = max(least, fewer - 1)
    say(f"training it takes {format_bytes(alone)} on one peer; each of {peers} offers {format_bytes(memory)}")
    if memory < fewer:
        say(f"so all {peers} are needed: with {peers - 1}, each would have to offer {format_bytes(fewer)}")
    return memory


async def _run(
    options: DemoOptions, prepared: "PreparedJob", memory: int, folder: Path, *, whole: bool, began: float
) -> DemoResult:
    invite = _create(folder)
    async with Children(folder) as children:
        first = await children.start("bootstrap", _bootstrap_command(folder, invite))
        document = msgspec.json.decode(await first.first_document(), type=_BootstrapDocument)
        say(f"bootstrap node: process {first.pid}, {document.status_url}")
        invite.write_text(document.invite, encoding="ascii")
        names = [f"peer{number}" for number in range(1, options.peers + 1)]
        for name in names:
            child = await children.start(name, _peer_command(folder, name, memory, compiles=options.compile))
            say(f"{name}: process {child.pid}")
        author = NodeOptions(home=folder, name="author", invite=document.invite, disk=AUTHOR_DISK)
        async with host_node(author, make_author(disk=AUTHOR_DISK, listen=LOCAL)) as hosted:
            say(f"status: {hosted.status_url}")
            job = await _beside(children, _train(hosted, prepared))
            peers = await _peers(folder, names, job)
            weights = _weights_file(options)
            await hosted.node.export(job.id, weights)
            held_out = None if math.isnan(job.held_out) else job.held_out
            seconds = elapsed() - began
            comparison = None
            if options.verify:
                comparison = await _compare(hosted.node, prepared, job, weights)
            [status] = [found for found in hosted.node.status().jobs if found.id == job.id]
            return DemoResult(
                model=options.model,
                whole=whole,
                loss=job.losses,
                held_out=held_out,
                comparison=comparison,
                tokens_per_second=job.mean_tokens_per_second,
                unit="tokens" if job.manifest.tokens_per_sample > 1 else "samples",
                peers=peers,
                stages=status.stages,
                explanation=job.plan.explanation if job.plan is not None else (),
                weights=weights,
                status_url=hosted.status_url,
                seconds=seconds,
            )


def _weights_file(options: DemoOptions) -> Path:
    """Where the weights go; raises MisuseError where they cannot be written there."""
    return writable_file(options.output or Path(f"swarm-demo-{options.model}.safetensors"))


def _create(folder: Path) -> Path:
    """A swarm of its own; returns the file with the organiser's invite."""
    now = wall()
    authority = Authority.create("demo", public=False, now=now)
    invite = authority.issue(label="demo", rights=ALL_RIGHTS, now=now)
    path = folder / "demo.invite"
    path.write_text(invite.encode(), encoding="ascii")
    path.chmod(0o600)
    return path


def _bootstrap_command(folder: Path, invite: Path) -> list[str]:
    return ["bootstrap", "--invite", str(invite), "--listen", str(LOCAL), "--home", str(folder), "--json"]


def _peer_command(folder: Path, name: str, memory: int, *, compiles: bool) -> list[str]:
    place = ["--home", str(folder), "--name", name, "--listen", str(LOCAL)]
    gift = ["--device", "cpu", "--memory", str(memory), *(["--compile"] if compiles else [])]
    return ["peer", "peer", "--invite", str(folder / "demo.invite"), *place, *gift]


async def _train(hosted: "Hosted[TrainingNode]", prepared: "PreparedJob") -> Job:
    node = hosted.node
    async with follow(node, hosted.status_url):
        job = await node.author.publish(prepared, patience=PATIENCE_SECONDS)
        await wait_for(node.jobs, job, ended)
        return job


async def _beside(children: Children, work: Coroutine[Any, Any, Job]) -> Job:
    """The result of ``work``; raises FailureError as soon as a child process ends before that."""
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work, name="train")
        watching: asyncio.Task[Child] = tasks.create_task(children.wait_for_first_end(), name="watch")
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            raise FailureError(watching.result().epitaph())
        watching.cancel()
    return working.result()


async def _peers(folder: Path, names: list[str], job: Job) -> list[PeerResult]:
    """What each peer sent and received over all of its links, as it says itself."""
    found = []
    for name in names:
        node = Home(folder, name).running()
        if node is None:
            raise FailureError(f"{name} ended before it could be asked what it sent")
        async with StatusClient(node.status_url, token=node.control) as client:
            document, _ = await client.fetch()
        found.append(_peer(name, document, job))
    return found


def _peer(name: str, document: StatusDocument, job: Job) -> PeerResult:
    holders = [stage.holder for stage in job.plan.stages] if job.plan is not None else []
    return PeerResult(
        name=name,
        id=document.peer.id,
        stages=[stage for stage, holder in enumerate(holders) if holder == document.peer.id],
        bytes_sent=sum(link.bytes_sent for link in document.links),
        bytes_received=sum(link.bytes_received for link in document.links),
    )


async def _compare(node: "TrainingNode", prepared: "PreparedJob", job: Job, weights: Path) -> Comparison:
    from swarm.services.training.verify import Trained, verify  # noqa: PLC0415 - imports torch

    say("training it again, with PyTorch alone, and with one stage in one process")
    trained = Trained(losses=job.losses, validations=job.validations, weights=weights)
    async with _cancellation() as cancelled:
        found = await node.device.run(verify, prepared, trained, node.gift.device, cancelled=cancelled.is_set)
    return Comparison(
        difference=found.difference,
        worst_step=found.worst_step,
        identical=found.identical,
        good=found.good,
    )


@contextlib.asynccontextmanager
async def _cancellation() -> AsyncIterator[asyncio.Event]:
    """An event that is set when the context is left: the device thread looks at it between micro-batches."""
    event = asyncio.Event()
    try:
        yield event
    finally:
        event.set()


def _tell(options: DemoOptions, result: DemoResult) -> int:
    if options.json:
        print_json(result.document())
    else:
        for line in result.lines():
            print_line(line)
    complaint = result.complaint()
    if complaint:
        say(complaint)
    return 1 if complaint else 0
