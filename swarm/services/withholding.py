"""Trained weights that are not for every member: whom this node gives which blocks (``Manifest.export_to``).

Names of blocks are no secret: how a job ended, and what its weights are called, is told to everybody. So
every node that has such weights asks here before it gives a block away.
"""

from collections.abc import Callable, Iterable

from swarm.ids import Digest, JobId, PeerId
from swarm.services.job import Job
from swarm.wire.records.manifest import blobs_of


class Withholding:
    """The blocks of weights that this node has and not everybody may have. ``jobs`` are those it knows."""

    def __init__(self, jobs: Callable[[], Iterable[Job]]) -> None:
        self._jobs = jobs
        self._wards: dict[Digest, dict[JobId, Job]] = {}

    def withhold(self, job: Job, names: Iterable[Digest]) -> None:
        """Give these trained weights of ``job`` only to whom its manifest names, if it names anybody.

        What training has left as it was, every member was given before.
        """
        if not job.manifest.export_to:
            return
        given = {name for blob in blobs_of(job.manifest) for name in blob.blocks}
        for name in names:
            if name not in given:
                self._wards.setdefault(name, {})[job.id] = job

    def forget(self, job: Job) -> tuple[Digest, ...]:
        """``job`` is forgotten; returns the blocks that must not stay here, now that nothing guards them."""
        bare = []
        for name in [name for name, wards in self._wards.items() if job.id in wards]:
            del self._wards[name][job.id]
            if not self._wards[name]:
                del self._wards[name]
                bare.append(name)
        return tuple(bare)

    def may_have(self, peer: PeerId, name: Digest) -> bool:
        """Whether ``peer`` may be given the block."""
        wards = self._wards.get(name)
        return not wards or any(
            job.may_export(peer) or self._was_published_on(job, name) for job in wards.values()
        )

    def _was_published_on(self, job: Job, name: Digest) -> bool:
        """Whether somebody who may have it has made it part of another job, where its members need it."""
        return any(
            job.may_export(other.author) and any(name in blob.blocks for blob in blobs_of(other.manifest))
            for other in self._jobs()
        )
