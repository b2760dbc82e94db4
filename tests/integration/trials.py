"""Jobs that are disturbed, and what they come to where nobody disturbs them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from swarm.services.job import Job
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.node import TrainingNode
from swarm.services.training.verify import lockstep_job
from swarm.testing.cluster import Cluster
from swarm.train.job import TrainingJob
from swarm.train.lockstep import LockstepRun, run_lockstep


@dataclass(frozen=True)
class Trial:
    """A job, and what it comes to where nobody disturbs it: as one stage, in one process."""

    prepared: PreparedJob
    undisturbed: LockstepRun


def trial_of(job: TrainingJob) -> Trial:
    """``job``, trained."""
    prepared = prepare_job(job)
    alone = lockstep_job(prepared, cancelled=lambda: False)
    return Trial(prepared, run_lockstep(alone, torch.device("cpu")))


async def came_to(cluster: Cluster, trial: Trial, job: Job, by: TrainingNode, folder: Path) -> None:
    """The end of the job: losses, validations and weights are those of the undisturbed run, bit for bit."""
    await cluster.until(lambda: job.ended)
    assert (job.state, job.sentence) == ("done", "the trained weights are in the swarm")
    assert tuple(job.losses) == trial.undisturbed.losses
    assert tuple(job.validations) == trial.undisturbed.validations
    path = folder / "weights.safetensors"
    await by.export(job.id, path)
    weights = load_file(path)
    for key, name in trial.prepared.captured.state_dict.items():
        assert weights[key].numpy().tobytes() == trial.undisturbed.tensors[name].numpy().tobytes()
