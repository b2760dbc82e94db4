"""Calls of every allowed operator with hostile arguments of the right types, in a process that may die of it.

    python tests/fuzz/operator_calls.py SEED CALLS BEGIN

runs call number BEGIN up to but without CALLS of the sequence that SEED stands for, each judged and made as
an executor does, and prints a line before each and one for each that went wrong. With ``slicing ROUNDS`` for
arguments it prints the operators whose gradient is a part of their output's. What must never happen: a
signal, a call that takes seconds, memory that nobody planned, and outputs with memory that nobody wrote.
"""

import contextlib
import faulthandler
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from swarm.graph.operators import ALLOWED
from swarm.train.contracts import named
from swarm.train.contracts_values import value_check
from swarm.train.device import configure_device
from swarm.train.inference import infer, tensors_of, without_data
from swarm.train.program_arguments import resolve

sys.path.insert(0, str(Path(__file__).parent))
from operator_examples import examples

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

CPU = torch.device("cpu")
LONGEST = 100_000
"""Characters of a line."""
SECONDS = 8
"""A call that takes longer hangs."""
PLANNED_BYTES = 2**26
"""Outputs of more bytes than this would not be given to this peer."""
MOST_BYTES = 2**29
"""Memory that a call may take beside its outputs."""

SHAPES = [(), (1,), (4,), (2, 4), (4, 4), (4, 3), (3, 4), (2, 4, 4), (1, 4, 4), (2, 4, 4, 4), (1, 2, 4, 4, 4)]
ODD_SHAPES = [
    (0,),
    (0, 4),
    (4, 0),
    (3,),
    (5,),
    (7,),
    (1, 1),
    (2, 0, 4),
    (1, 1, 1, 1),
    (2, 4, 0, 4),
    (1,) * 9,
    (64,),
]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
EXTREME = [
    -1,
    -2,
    5,
    8,
    100,
    10**6,
    2**20,
    2**31 - 1,
    2**31,
    2**40,
    -(2**31),
    -(2**40),
    2**62,
    2**63 - 1,
    -(2**63),
]
NUMBERS = [0.0, -1.0, 0.5, 2.0, 1e-30, 1e30, -1e30, 1e300, float("inf"), -float("inf"), float("nan")]
WORDS = {
    "rounding_mode": ["floor", "trunc"],
    "reduce": ["sum", "prod", "mean", "amax", "amin", "add", "multiply"],
    "mode": ["constant", "reflect", "replicate", "circular"],
    "approximate": ["none", "tanh"],
    "padding": ["same", "valid"],
    "indexing": ["ij", "xy"],
    "interpolation": ["linear", "lower", "nearest"],
    "driver": ["gesvd"],
    "equation": ["ij,jk->ik", "...ij,...jk->...ik", "ii->i", "i,j,k,l->", "ij->ji", "i" * 64, "...,->", ""],
    "ord": ["fro", "nuc"],
}


class Chance:
    """Draws arguments; ``hostile`` of them in a hundred are."""

    def __init__(self, seed: str, hostile: int) -> None:
        self.random = random.Random(seed)
        self.hostile = hostile
        self.generator = torch.Generator().manual_seed(self.random.randrange(2**31))
        self.shape = self.pick(SHAPES)
        self.dtype = self.pick([torch.float32] * 8 + [torch.float64, torch.int64, torch.bfloat16, torch.bool])

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)

    def evil(self) -> bool:
        return self.random.randrange(100) < self.hostile

    def tensor(self, name: str) -> torch.Tensor:
        whole = name in {"index", "indices", "offsets", "target", "batch1_offs", "offs", "sorter", "lengths"}
        dtype = torch.int64 if whole else self.dtype
        shape = self.shape
        if self.evil():
            dtype = self.pick(FLOATS + INTEGERS)
        if self.evil():
            shape = self.pick(SHAPES + ODD_SHAPES)
        elif self.random.random() < 0.1 and shape:
            shape = shape[self.random.randrange(len(shape)) :]
        return self._laid_out(self._values(shape, dtype))

    def _values(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if dtype.is_floating_point:
            made = torch.rand(shape, generator=self.generator).to(dtype)
            extremes = NUMBERS
        else:
            made = torch.randint(0, 3, shape, generator=self.generator).to(dtype)
            extremes = EXTREME
        if self.evil() and made.numel():
            flat = made.view(-1)
            for _ in range(self.random.randrange(1, 4)):
                place = self.random.randrange(len(flat))
                extreme = self.pick(extremes)
                flat[place] = torch.tensor(
                    extreme, dtype=torch.float64 if dtype.is_floating_point else None
                ).to(dtype)
            if self.random.random() < 0.2:
                flat.fill_(flat[place])
        return made

    def _laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        match self.random.randrange(10):
            case 0 if tensor.dim() > 1:
                return tensor.transpose(0, -1).contiguous().transpose(0, -1)
            case 1 if tensor.numel():
                return tensor.reshape(-1)[:1].reshape([1] * tensor.dim()).expand(tensor.shape)
            case 2:
                return torch.cat([tensor.reshape(-1), tensor.reshape(-1)])[tensor.numel() :].view(
                    tensor.shape
                )
            case _:
                return tensor

    def integer(self) -> int:
        return self.pick(EXTREME) if self.evil() else self.pick([0, 1, 1, 2, 2, 3, 4])

    def number(self) -> float | int:
        return self.pick([*NUMBERS, *EXTREME]) if self.evil() else self.pick([0.5, 1, 2, 0.1])

    def integers(self) -> list[int]:
        dims = max(len(self.shape) - self.pick([0, 0, 1, 2]), 1)
        count = self.pick([0, 1, 2, 3, 5, 6]) if self.evil() else dims
        if self.random.random() < 0.4:
            return list(self.shape[-count:]) if count else []
        if self.random.random() < 0.5:
            return [self.integer()] * count
        return [self.integer() for _ in range(count)]

    def argument(self, kind: str, name: str) -> Any:
        if kind.startswith("Optional["):
            if self.random.random() < 0.3:
                return None
            kind = kind.removeprefix("Optional[").removesuffix("]")
        makers: dict[str, Callable[[], Any]] = {
            "Tensor": lambda: self.tensor(name),
            "int": self.integer,
            "bool": lambda: self.random.random() < 0.5,
            "float": lambda: float(self.number()),
            "number": self.number,
            "List[int]": self.integers,
            "List[float]": lambda: [float(self.number()) for _ in range(self.pick([0, 1, 2, 3]))],
            "List[Tensor]": lambda: [self.tensor(name) for _ in range(self.pick([0, 1, 2, 2, 3, 4, 6]))],
            "List[Optional[Tensor]]": lambda: [
                self.argument("Optional[Tensor]", "indices") for _ in range(self.pick([1, 1, 2, 3]))
            ],
            "str": lambda: self.pick(WORDS.get(name, ["none"])),
        }
        return makers.get(kind, lambda: None)()

    def varied(self, target: str, schema: torch.FunctionSchema) -> tuple[list[Any], dict[str, Any]]:
        """A call that works with some of its arguments exchanged, or one that is drawn."""
        _, name, overload = target.split(".")
        known = examples(self._example, self._whole_example, self._truths)
        args = known.get(f"{name}.{overload}", known.get(name))
        if args is None or self.random.random() < 0.2:
            return self.call(schema)
        for place, parameter in enumerate(schema.arguments[: len(args)]):
            if self.evil():
                args[place] = self._exchanged(args[place], str(parameter.type), parameter.name)
        named = [parameter.name for parameter in schema.arguments if parameter.kwarg_only]
        positional = len(schema.arguments) - len(named)
        return args[:positional], dict(zip(named, args[positional:], strict=False))

    def _exchanged(self, value: Any, kind: str, name: str) -> Any:
        match value:
            case list() if value and self.random.random() < 0.7:
                place = self.random.randrange(len(value))
                other = value[place]
                if isinstance(other, torch.Tensor):
                    other = self.tensor(name)
                elif isinstance(other, float):
                    other = float(self.number())
                else:
                    other = self.integer()
                changed = [other if i == place else item for i, item in enumerate(value)]
                return changed if self.random.random() < 0.7 else changed[1:]
            case torch.Tensor() if self.random.random() < 0.5:
                return self._values(tuple(value.shape), value.dtype)
            case torch.Tensor() if value.dim() and self.random.random() < 0.5:
                dim = self.random.randrange(value.dim())
                return value.narrow(dim, 0, self.random.randrange(value.shape[dim] + 1))
            case _:
                return self.argument(kind, name)

    def _example(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator)

    def _whole_example(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, below, shape, generator=self.generator)

    def _truths(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator) > 0.5

    def call(self, schema: torch.FunctionSchema) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = [], {}
        for parameter in schema.arguments:
            kind = str(parameter.type)
            if kind == "Optional[int]" and parameter.name in {"dtype", "layout", "memory_format"}:
                kwargs_only = parameter.name == "dtype" and self.random.random() < 0.2
                value = self.pick([torch.float32, torch.float64, torch.int64]) if kwargs_only else None
            elif parameter.has_default_value() and self.random.random() < 0.5:
                value = parameter.default_value
            else:
                value = self.argument(kind, parameter.name)
            if parameter.kwarg_only:
                if value is not None or not parameter.has_default_value():
                    kwargs[parameter.name] = value
            elif kind == "int" and parameter.name == "dtype":
                args.append(torch.float32)
            else:
                args.append(value)
        return args, kwargs


class RefusedError(Exception):
    """An executor would not make this call."""


def judge(target: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Raise RefusedError where an executor would not make the call."""
    call = resolve(target)
    with without_data():
        empty = tree_map_only(
            torch.Tensor, lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype), (args, kwargs)
        )
        try:
            made = infer(target, call, *empty)
        except Exception as error:
            raise RefusedError(str(error)) from error
    if sum(tensor.nbytes for tensor in made) > PLANNED_BYTES:
        raise RefusedError("too large")


def make(target: str, args: list[Any], kwargs: dict[str, Any], pattern: int) -> list[bytes]:
    """The bytes of what the call makes, forward and backward, with freed memory full of ``pattern``."""
    call, check = resolve(target), value_check(target, CPU)
    args, kwargs = tree_map_only(
        torch.Tensor, lambda t: t.detach().clone(memory_format=torch.preserve_format), (args, kwargs)
    )
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if check is not None:
        check(named(call, args, kwargs))
    torch.manual_seed(1)
    poison([leaf.nbytes for leaf in leaves], pattern)
    made = tensors_of(call(*args, **kwargs))
    poison([tensor.nbytes for tensor in made], pattern)
    made = tensors_of(call(*args, **kwargs))
    found = [contents(tensor) for tensor in made]
    trained = [leaf.requires_grad_() for leaf in leaves if leaf.is_floating_point()]
    with contextlib.suppress(RuntimeError, NotImplementedError):
        roots = [tensor for tensor in tensors_of(call(*args, **kwargs)) if tensor.requires_grad]
        if roots:
            starts = [torch.ones_like(root) for root in roots]
            poison([leaf.nbytes for leaf in leaves], pattern)
            gradients = torch.autograd.grad(roots, trained, starts, allow_unused=True)
            found += [contents(gradient) for gradient in gradients if gradient is not None]
    return found


def slices(target: str, seed: str) -> bool:
    """Whether a gradient that a usual call of ``target`` makes is a part of an output's gradient."""
    call, check = resolve(target), value_check(target, CPU)
    args, kwargs = Chance(seed, 0).varied(target, call._schema)
    judge(target, args, kwargs)
    if check is not None:
        check(named(call, args, kwargs))
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    trained = [leaf.requires_grad_() for leaf in leaves if leaf.is_floating_point()]
    roots = [tensor for tensor in tensors_of(call(*args, **kwargs)) if tensor.requires_grad]
    starts = [torch.ones_like(root) for root in roots]
    gradients = torch.autograd.grad(roots, trained, starts, allow_unused=True)
    return any(
        start.data_ptr() <= gradient.data_ptr() < start.data_ptr() + start.nbytes
        for start, gradient in itertools.product(starts, gradients)
        if gradient is not None and 0 < gradient.numel() < start.numel()
    )


def poison(sizes: Sequence[int], pattern: int) -> None:
    """Leave ``pattern`` in freed memory where pieces of these sizes would be taken from."""
    for size in {*sizes, 64, 256}:
        if 0 < size < 2**16:
            kept = [torch.full((size,), pattern, dtype=torch.uint8) for _ in range(6)]
            del kept


def contents(tensor: torch.Tensor) -> bytes:
    return (
        tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    )


def shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        elements = value.reshape(-1)[:4].tolist()
        return f"{str(value.dtype)[6:]}{list(value.shape)}/{list(value.stride())}{elements}"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return str(value)


def sequence(seed: int) -> Iterator[tuple[str, str, int]]:
    """Operator, seed and per cent of hostile arguments of each call."""
    names = sorted(ALLOWED)
    for index in itertools.count():
        yield names[index % len(names)], f"{seed} {index}", (0, 5, 20, 50)[index // len(names) % 4]


def slicing(rounds: int) -> set[str]:
    """The operators of which :func:`slices` holds for one of ``rounds`` usual calls."""
    configure_device(CPU)
    found = set()
    for target, attempt in itertools.product(sorted(ALLOWED), range(rounds)):
        with contextlib.suppress(Exception):  # as the executor does
            if slices(target, f"slices {attempt}"):
                found.add(target)
    return found


def main(seed: int, calls: int, begin: int) -> None:
    """Make the calls; what went wrong is printed after the word ``wrong``."""
    configure_device(CPU)
    done: dict[str, int] = {}
    for index, (target, chance, hostile) in itertools.islice(enumerate(sequence(seed)), begin, calls):
        args, kwargs = Chance(chance, hostile).varied(target, resolve(target)._schema)
        text = (
            f"{index} {target} ({', '.join(map(shown, args))}) { ({k: shown(v) for k, v in kwargs.items()}) }"
        )
        say("call", text)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        before = peak()
        with contextlib.suppress(RefusedError):
            judge(target, args, kwargs)
            try:
                first, second = (make(target, args, kwargs, pattern) for pattern in (85, 170))
            except Exception as error:  # noqa: BLE001 - the executor makes one line of any
                if "allocate memory" in str(error) or isinstance(error, MemoryError):
                    say("wrong memory", text)
            else:
                done[target] = done.get(target, 0) + 1
                if first != second:
                    say("wrong uninitialised", text)
        faulthandler.cancel_dump_traceback_later()
        if peak() - before > MOST_BYTES:
            say("wrong memory", text)
    say("done", *sorted(done))


def say(*words: str) -> None:
    """One line, at once: the next call may be the last."""
    line = " ".join(words)
    sys.stdout.write(line.replace("\n", " ")[:LONGEST] + "\n")
    sys.stdout.flush()


def peak() -> int:
    """Most bytes of memory that this process had so far, where the system tells."""
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
    if sys.argv[1] == "slicing":
        say(*sorted(slicing(int(sys.argv[2]))))
    else:
        main(*map(int, sys.argv[1:]))
