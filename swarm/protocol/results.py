"""The trained tensors of a job's stages: part of the coordination machine."""

from swarm.errors import RemoteProtocolError
from swarm.wire.records.blobs import TensorBlob


class Results:
    """What holders returned after the last step; a stage may be done sooner than the job."""

    def __init__(self) -> None:
        self.expected: tuple[tuple[TensorBlob, ...], ...] = ()
        """By stage, the tensors that it owns, as they were at first."""
        self._found: dict[int, tuple[TensorBlob, ...]] = {}

    def __contains__(self, stage: int) -> bool:
        return stage in self._found

    def clear(self) -> None:
        """The job goes back."""
        self._found.clear()

    def take(self, stage: int, tensors: tuple[TensorBlob, ...]) -> bool:
        """Those of a stage; whether they are news. Raises RemoteProtocolError for others than it owns."""
        if stage in self._found:
            return False
        if sorted(map(_facts, tensors)) != sorted(map(_facts, self.expected[stage])):
            raise RemoteProtocolError(f"the result of stage {stage + 1} has not the stage's tensors")
        self._found[stage] = tensors
        return True

    def all(self) -> tuple[TensorBlob, ...] | None:
        """Those of all stages; None before all are there."""
        if len(self._found) < len(self.expected):
            return None
        return tuple(tensor for stage in sorted(self._found) for tensor in self._found[stage])


def _facts(tensor: TensorBlob) -> tuple[str, str, tuple[int, ...], int, int]:
    """All of a tensor but its elements: what training does not change."""
    return tensor.name, tensor.dtype, tensor.shape, tensor.blob.size, len(tensor.blob.blocks)
