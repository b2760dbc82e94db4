"""Writing trained tensors as a safetensors file."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

from safetensors import SafetensorError
from safetensors.torch import save_file

from swarm.data.tensors import Array
from swarm.errors import FailureError
from swarm.services.training.arrays import from_array
from swarm.wire.tensors import DType


def write_weights(
    path: Path, state: Iterable[tuple[str, str]], arrays: Mapping[str, tuple[Array, DType]]
) -> int:
    """Write ``arrays`` (by tensor name) under the keys of ``state`` (key, tensor name); returns the bytes.

    Tied parameters are written under each of their keys, as ``load_state_dict(strict=True)`` wants them. The
    file appears whole or not at all. Raises FailureError with the system's cause.
    """
    tensors = {}
    for key, name in state:
        array, dtype = arrays[name]
        tensors[key] = from_array(array, dtype).clone()
    unfinished = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        save_file(tensors, unfinished)
        size = unfinished.stat().st_size
        unfinished.replace(path)
    except (OSError, SafetensorError) as error:
        unfinished.unlink(missing_ok=True)
        raise FailureError(f"cannot write {path}: {error}") from None
    return size
