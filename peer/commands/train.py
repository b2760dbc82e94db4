"""``swarm train``: capture the job in a file, publish it, and follow it to its end."""

import asyncio
import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bootstrap.commandline import INTERRUPTED, InterruptedRunError
from bootstrap.hosting import Hosted, require_place, run_node
from bootstrap.output import print_json, print_line, say
from peer.commands.jobs import ANY_PORT
from peer.config import TrainOptions
from peer.training_part import require_training_part
from peer.view import follow
from swarm.clock import SystemClock, elapsed
from swarm.errors import FailureError, MisuseError, TrainingError
from swarm.identity.membership import Identity
from swarm.identity.rights import Right
from swarm.ids import short
from swarm.net.address import Address
from swarm.services.home import Home
from swarm.services.job import Job
from swarm.services.jobs import Jobs
from swarm.services.networks import Networks
from swarm.services.node import NodeConfig

if TYPE_CHECKING:
    from swarm.services.training.node import TrainingNode
    from swarm.train.job import TrainingJob


PATIENCE_SECONDS: Final = 120.0
"""How long a job waits for enough peers while its author watches, unless it says otherwise itself."""


def train(options: TrainOptions) -> int:
    """Publish and follow; returns the exit status."""
    require_training_part()
    if not options.file.is_file():
        raise MisuseError(f"{options.file} is not a file: give the Python file with the job")
    require_place(options)
    from swarm.train.job import load_job  # noqa: PLC0415 - imports torch

    job = load_job(options.file)
    if options.steps is not None:
        job = dataclasses.replace(job, steps=options.steps)
    published: list[Job] = []
    try:
        make = make_author(disk=options.disk, networks=options.networks(ANY_PORT))
        run_node(options, make, lambda hosted: _follow(options, job, hosted, published))
    except InterruptedRunError:
        if published:
            say("no longer following: swarm jobs shows whether the job goes on, swarm cancel ends it")
        else:
            say("nothing was published")
        return INTERRUPTED
    return 0


def make_author(
    *, disk: int, listen: Address = ANY_PORT, networks: Networks | None = None
) -> "Callable[[Home, Identity], TrainingNode]":
    """A maker of nodes that publish jobs and hold no stage."""
    from swarm.services.training.node import Gift, TrainingNode, capabilities  # noqa: PLC0415 - imports torch
    from swarm.train.device import find_device  # noqa: PLC0415

    def make(home: Home, identity: Identity) -> TrainingNode:
        if Right.TRAIN not in identity.member.rights:
            raise MisuseError(
                "this invite does not allow publishing jobs: ask the organiser for one made with --may train"
            )
        gift = Gift(device=find_device("cpu"), memory=0)
        config = NodeConfig(
            folder=home.folder, role="author", listen=listen, disk=disk, capabilities=capabilities(gift)
        )
        return TrainingNode(config, gift=gift, identity=identity, clock=SystemClock(), networks=networks)

    return make


async def _follow(
    options: TrainOptions, wanted: "TrainingJob", hosted: "Hosted[TrainingNode]", published: list[Job]
) -> None:
    """Capture the job on the device thread, publish it, and wait for its end; ``published`` gets it."""
    from swarm.services.training.author import prepare_job  # noqa: PLC0415 - imports torch

    node = hosted.node
    began = elapsed()
    say(f"capturing {wanted.name}")
    prepared = await node.device.run(prepare_job, wanted)
    async with follow(node, hosted.status_url):
        patience = wanted.patience or (0.0 if options.detach else PATIENCE_SECONDS)
        job = await node.author.publish(prepared, patience=patience)
        published.append(job)
        await wait_for(node.jobs, job, replicated if options.detach else ended)
    if options.json:
        print_json(
            {
                "job": job.id,
                "loss": job.losses,
                "tokens_per_second": job.mean_tokens_per_second,
                "seconds": elapsed() - began,
                "validations": [dataclasses.asdict(validation) for validation in job.validations],
            }
        )
        return
    if options.detach:
        say(f"job {short(job.id)} goes on without this process: swarm jobs shows how far it is")
        print_line(job.id)
        return
    say(f"job {short(job.id)} is done: {summary(job)}")
    say(f"swarm export {short(job.id)} -o FILE.safetensors writes its weights")


def replicated(job: Job) -> bool:
    """Whether other peers have all that the job needs, so that its author may go."""
    return job.replicas > 0 or job.ended


def ended(job: Job) -> bool:
    """Whether the job will never go on."""
    return job.ended


async def wait_for(jobs: Jobs, job: Job, condition: Callable[[Job], bool]) -> None:
    """Wait until ``condition`` holds; raises TrainingError where the job fails or is cancelled instead."""
    changed = asyncio.Event()

    def on_change(other: Job) -> None:
        if other is job:
            changed.set()

    jobs.on_change.append(on_change)
    try:
        while not condition(job):
            changed.clear()
            await changed.wait()
    finally:
        jobs.on_change.remove(on_change)
    if job.state == "failed":
        raise TrainingError(f"job {short(job.id)} failed: {job.sentence}")
    if job.state == "cancelled":
        raise TrainingError(f"job {short(job.id)} was cancelled: {job.sentence}")


def summary(job: Job) -> str:
    """First and last loss, and the held-out one where there is one."""
    if not job.losses:
        raise FailureError(f"job {short(job.id)} is done, but no step of it was heard of")
    text = f"loss {job.losses[0]:.4f} at the start, {job.losses[-1]:.4f} at the end"
    if math.isnan(job.held_out):
        return text
    metric = job.validations[-1].metric if job.validations else None
    measured = "" if metric is None else f", where the metric is {metric:.4f}"
    return f"{text}, {job.held_out:.4f} on held-out data{measured}"
