"""How much memory peers have to give, so that a job needs so many of them."""

from swarm.schedule.capacity import memory_for_peers
from swarm.schedule.workload import Workload
from swarm.services.training.author import PreparedJob


def workload_of(prepared: PreparedJob) -> Workload:
    """What is planned for a job."""
    return Workload(
        graph=prepared.captured.train,
        evaluation=prepared.captured.evaluate,
        optimizer=prepared.job.optimizer_spec(),
        micro_batches=prepared.job.micro_batches,
    )


def memory_of(prepared: PreparedJob, peers: int) -> int:
    """What each of ``peers`` has to give, so that all of them are needed."""
    return memory_for_peers(workload_of(prepared), peers)
