"""All processes of a swarm are killed at once and started again: the job comes to the same bits."""

import asyncio
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from swarm.identity.membership import Identity
from swarm.services.home import Home
from swarm.services.job_files import kept_jobs
from swarm.services.status.client import StatusClient
from swarm.services.status.document import JobStatus
from swarm.services.training.author import prepare_job
from swarm.services.training.verify import lockstep_job
from swarm.testing.shell import Shell, interrupt, read_until
from swarm.testing.tiny_job import write_tiny_job
from swarm.train.job import load_job
from swarm.train.lockstep import run_lockstep

CUTS = int(os.environ.get("SWARM_CUTS", "1"))
"""Moments at which everything is killed; ``make nightly`` has fifty."""
LONGEST_SECONDS = 8.0
"""From the moment that all are up again to the next cut: whatever it meets, joining, loading or training."""
STEPS = 150 + 300 * (CUTS - 1)
QUICK_LINES = """
from swarm.protocol import lines
lines.SNAPSHOT_SECONDS, lines.LEAD_SECONDS, lines.REST = 0.2, 0.2, 0.0
"""
PEERS = ("peer1", "peer2")
FIELDS = f"optimizer=optimizer.AdamW(lr=0.01), steps={STEPS}, validate_every=50"


class Machine:
    """One machine with a bootstrap node and two peers, which a power cut takes all at once."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder)
        self.folder = folder
        self._ports = free_ports(1 + len(PEERS))
        self.invite = str(self.shell.create())
        self._running: list[subprocess.Popen[str]] = []

    def start(self, order: random.Random) -> None:
        """Start all, in any order, and wait until they are up."""
        names = ("bootstrap", *PEERS)
        ports = dict(zip(names, self._ports, strict=True))
        started = {name: self._start(name, ports[name]) for name in order.sample(names, len(names))}
        self._running = list(started.values())
        for name in PEERS:
            read_until(started[name], "status: http://")

    def _start(self, name: str, port: int) -> "subprocess.Popen[str]":
        words = [name] if name == "bootstrap" else ["peer", "--memory", "10000", "--device", "cpu"]
        words += ["--name", name, "--invite", self.invite, "--listen", f"127.0.0.1:{port}"]
        words += [
            "--parent",
            str(os.getpid()),
        ]  # who is ended first hands nothing over to who is next
        process = self.shell.start_patched(QUICK_LINES, *words)
        if name == "bootstrap" and process.stdout is not None:
            self.invite = process.stdout.readline().strip()
        return process

    def cut(self) -> None:
        """Kill all, at once."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.communicate()

    def stop(self) -> None:
        """End all as their users would: what they keep is then on the disk."""
        for process in self._running:
            interrupt(process)
        for process in self._running:
            process.communicate()

    def until(self, holds: Callable[[JobStatus], bool], *, seconds: float = 100.0) -> JobStatus:
        """Where the job is, once its coordinator says that ``holds``."""

        async def watch(name: str) -> JobStatus | None:
            running = Home(self.folder, name).running()
            assert running is not None
            async with StatusClient(running.status_url, token=running.control) as client:
                document, _ = await client.fetch()
            mine = (job for job in document.jobs if job.coordinator == document.peer.id)
            return next(filter(holds, mine), None)

        async def watch_all() -> JobStatus:
            while True:
                for name in PEERS:
                    found = await watch(name)
                    if found is not None:
                        return found
                await asyncio.sleep(0.1)

        return asyncio.run(asyncio.wait_for(watch_all(), seconds))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at: homes keep theirs over restarts."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.shell.close()


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * CUTS)
def test_a_job_whose_processes_are_all_killed_comes_to_the_bits_of_an_undisturbed_run(
    machine: Machine, tmp_path: Path
) -> None:
    moments = random.Random(26)
    job_file = write_tiny_job(tmp_path, FIELDS)
    machine.start(moments)
    machine.shell.json("train", str(job_file), "--invite", machine.invite, "--detach")
    step = moments.randrange(20, 60)
    assert machine.until(lambda job: job.step >= step and (job.kept or 0) > 0).step < STEPS
    machine.cut()
    machine.start(moments)
    for _ in range(CUTS - 1):
        time.sleep(moments.uniform(0.0, LONGEST_SECONDS))  # the moment of the cut, and no wait for anything
        machine.cut()
        machine.start(moments)
    done = machine.until(lambda job: job.state in {"done", "failed", "cancelled"}, seconds=200.0 + 5 * CUTS)
    assert (done.state, done.sentence) == ("done", "the trained weights are in the swarm")

    path = tmp_path / "tiny.safetensors"
    machine.shell.json("export", done.id, "-o", str(path))
    machine.stop()

    prepared = prepare_job(load_job(job_file))
    own = run_lockstep(lockstep_job(prepared, cancelled=lambda: False), torch.device("cpu"))
    coordinator = next(name for name in PEERS if done.coordinator == Identity.load(tmp_path / name).peer)
    [kept] = kept_jobs(tmp_path / coordinator)
    assert kept.losses == own.losses
    assert kept.validations == own.validations
    weights = load_file(path)
    for key, name in prepared.captured.state_dict.items():
        assert weights[key].numpy().tobytes() == own.tensors[name].numpy().tobytes()
