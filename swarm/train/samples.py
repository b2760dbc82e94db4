"""The author's dataset as one array for each field of its samples (decision D11).

A swarm reads every item once, keeps it as bytes, and gives the same bytes to everyone who consumes it. So a
dataset must return the same item whenever it is asked for it, and all items must have one shape.
"""

from collections.abc import Mapping, Sequence, Sized
from typing import Any, Final, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset

from swarm.errors import FailureError, MisuseError
from swarm.train.authored import describe_error
from swarm.train.capture.calling import LABELS
from swarm.wire.tensors import ITEM_BYTES

Array = NDArray[Any]
Samples = Dataset[Any] | tuple[Array | torch.Tensor, ...] | Mapping[str, Array | torch.Tensor]
"""What an author may give: a map-style dataset of (input, ..., target), or one array for each field. Samples
and arrays may also come in a mapping, by the names that the model's ``forward`` gives its arguments."""

KINDS: Final = frozenset(ITEM_BYTES) - {"bfloat16"}
"""The types of fields, by the names that numpy and the wire share; numpy has no bfloat16."""

_READ_TWICE: Final = 16
"""Items read a second time, spread over the dataset; the one that is random is rarely the only one."""


def field_names(dataset: Samples, what: str = "dataset") -> tuple[str, ...] | None:
    """The names of the fields of samples that come in a mapping, the target last; None for others.

    The target is ``labels``, or the last field where none has that name.
    """
    sample = dataset if isinstance(dataset, Mapping | tuple | list) else _sample(dataset, 0, what)
    if not isinstance(sample, Mapping):
        return None
    return tuple(sorted(map(str, sample), key=lambda name: name == LABELS))


def sample_count(dataset: object, what: str = "dataset") -> int:
    """The number of samples in ``dataset``; raises MisuseError where it is none that can be prepared."""
    if isinstance(dataset, Mapping):
        return _length_of_arrays(list(dataset.values()), what)
    if isinstance(dataset, tuple | list):
        return _length_of_arrays(dataset, what)
    if isinstance(dataset, IterableDataset):
        raise MisuseError(f"the {what} can only be iterated; give one with __len__ and __getitem__")
    if isinstance(dataset, Sized) and hasattr(dataset, "__getitem__") and not _is_array(dataset):
        return len(dataset)
    kind = type(dataset).__name__
    raise MisuseError(
        f"the {what} is of type {kind}; give a dataset with __len__ and __getitem__, or a tuple of arrays"
    )


def prepare_samples(dataset: Samples, what: str = "dataset") -> list[Array]:
    """All samples of ``dataset``: for each field an array (samples, *item), in the order of the fields.

    Raises MisuseError for items of several shapes or of types that do not travel, and for a dataset whose
    items change between reads; FailureError where reading an item raises.
    """
    count = sample_count(dataset, what)
    if isinstance(dataset, tuple | list | Mapping):
        return [_array(field, what, position) for position, field in enumerate(_in_order(dataset))]
    columns = _read(dataset, count, what)
    for index in np.unique(np.linspace(0, count - 1, min(count, _READ_TWICE)).astype(int)).tolist():
        again = _item(dataset, index, what, field_names(dataset, what))
        if any(a.tobytes() != column[index].tobytes() for a, column in zip(again, columns, strict=False)):
            raise MisuseError(
                f"the {what}'s items change between reads (item {index} did): every peer must see the same "
                "samples, so give it without random transforms"
            )
    return columns


def first_samples(dataset: Samples, count: int, what: str = "dataset") -> list[Array]:
    """The first ``count`` samples, as :func:`prepare_samples` has them, in memory of their own."""
    if isinstance(dataset, tuple | list | Mapping):
        fields = enumerate(_in_order(dataset))
        return [_array(field[:count], what, position).copy() for position, field in fields]
    return _read(dataset, count, what)


def _in_order(sample: Any) -> Sequence[Any]:
    """The fields of a sample, or of all in one array each, with the target last."""
    names = field_names(sample)
    return list(sample) if names is None else [sample[name] for name in names]


def _read(dataset: Any, count: int, what: str) -> list[Array]:
    names = field_names(dataset, what)
    first = _item(dataset, 0, what, names)
    columns = [np.empty((count, *field.shape), field.dtype) for field in first]
    for index in range(count):
        _store(columns, index, first if index == 0 else _item(dataset, index, what, names), what)
    return columns


def _length_of_arrays(fields: Sequence[object], what: str) -> int:
    if not fields or not all(_is_array(field) for field in fields):
        raise MisuseError(f"the {what} is not made of arrays or tensors alone; give one array for each field")
    lengths = [len(field) if field.ndim else 0 for field in fields if _is_array(field)]
    if len(set(lengths)) > 1:
        shown = ", ".join(str(length) for length in lengths)
        raise MisuseError(f"the {what}'s fields have {shown} items; each needs one for every sample")
    return lengths[0]


def _is_array(value: object) -> TypeGuard[Array | torch.Tensor]:
    return isinstance(value, np.ndarray | torch.Tensor)


def _item(dataset: Any, index: int, what: str, names: tuple[str, ...] | None) -> list[Array]:
    """The fields of one sample, in the order of ``names`` where they have some."""
    sample = _sample(dataset, index, what)
    if names is not None:
        if not isinstance(sample, Mapping) or set(map(str, sample)) != set(names):
            raise MisuseError(f"the {what}'s item {index} has other fields than item 0: {', '.join(names)}")
        sample = tuple(sample[name] for name in names)
    fields = sample if isinstance(sample, tuple | list) else (sample,)
    return [_array(field, f"{what}'s item {index}", position) for position, field in enumerate(fields)]


def _sample(dataset: Any, index: int, what: str) -> Any:
    try:
        return dataset[index]
    except Exception as error:
        raise FailureError(f"reading item {index} of the {what} raised {describe_error(error)}") from error


def _array(value: object, what: str, position: int) -> Array:
    """One field as numpy has it: Python's numbers as torch would (int64, float32)."""
    match value:
        case torch.Tensor() if value.dtype is not torch.bfloat16 and not value.is_sparse:
            array = value.detach().cpu().numpy()
        case np.ndarray() | np.generic():
            array = np.asarray(value)
        case bool() | int():
            array = np.asarray(value)
        case float():
            array = np.asarray(value, dtype=np.float32)
        case list() if _is_numbers(value):
            array = torch.tensor(value).numpy()
        case _:
            array = np.asarray(None)
    native = array.dtype.newbyteorder("=")
    if native.name not in KINDS:
        kind = f"an array of {value.dtype}" if _is_array(value) else f"of type {type(value).__name__}"
        raise MisuseError(
            f"field {position} of the {what} is {kind}; give numbers, arrays or tensors of "
            f"{', '.join(sorted(KINDS))}"
        )
    return np.ascontiguousarray(array, dtype=native).reshape(array.shape)


def _is_numbers(values: list[Any]) -> bool:
    """Whether ``values`` is a list of plain numbers, as libraries of datasets keep a text's tokens."""
    return bool(values) and all(isinstance(value, bool | int | float) for value in values)


def _store(columns: Sequence[Array], index: int, item: Sequence[Array], what: str) -> None:
    if len(item) != len(columns):
        raise MisuseError(f"the {what}'s item {index} has {len(item)} fields, and item 0 has {len(columns)}")
    for position, (column, field) in enumerate(zip(columns, item, strict=True)):
        if field.shape != column.shape[1:] or field.dtype != column.dtype:
            raise MisuseError(
                f"field {position} of the {what}'s item {index} is {field.dtype}{list(field.shape)}, and "
                f"that of item 0 is {column.dtype}{list(column.shape[1:])}; pad or cut all items to one shape"
            )
        column[index] = field
