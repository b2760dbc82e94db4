import random
from collections.abc import Callable

import pytest

from swarm.graph.dag import Argument, Graph, Operator, Ref, Scalar, Sequence, TensorSpec, Update, Value
from swarm.wire.records.manifest import Optimizer, Schedule
from swarm.wire.tensors import dense_strides

ORDER = ["input", "parameter", "buffer", "constant", "output"]
CONSTANT = Schedule(kind="constant", warmup=0, floor=0.0)
ADAMW = Optimizer(kind="adamw", lr=1e-3, schedule=CONSTANT)
SGD = Optimizer(kind="sgd", lr=1e-3, schedule=CONSTANT)


class Sketch:
    """A graph drawn by hand. Values are named by small numbers in the order of drawing."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.calls: list[tuple[str, list[object], int, str, bool]] = []
        self.updates: list[tuple[int, int]] = []

    def leaf(self, kind: str, *shape: int, dtype: str = "float32", trained: bool | None = None) -> int:
        differentiable = kind == "parameter" if trained is None else trained
        spec = TensorSpec(dtype, shape, dense_strides(shape, tuple(range(len(shape)))))
        self.values.append(Value(kind, f"{kind}.{len(self.values)}", spec, differentiable))
        return len(self.values) - 1

    def op(
        self,
        target: str,
        reads: list[object],
        *shape: int,
        trained: bool = True,
        path: str = "",
        draws: bool = False,
        dtype: str = "float32",
        strides: tuple[int, ...] | None = None,
    ) -> int:
        """``reads``: ints are values, lists of ints are lists of them, strings of digits are numbers."""
        made = self.leaf("output", *shape, dtype=dtype, trained=trained)
        if strides is not None:
            old = self.values[made]
            self.values[made] = Value(old.kind, old.name, TensorSpec(dtype, shape, strides), trained)
        self.calls.append((f"aten.{target}", reads, made, path, draws))
        return made

    def update(self, buffer: int, value: int) -> None:
        self.updates.append((buffer, value))

    def graph(self) -> Graph:
        """The drawn graph; the last operator's output is its loss."""
        order = sorted(range(len(self.values)), key=lambda v: ORDER.index(self.values[v].kind))
        place = {old: new for new, old in enumerate(order)}

        def argument(read: object) -> Argument:
            match read:
                case bool() | str() | None | float():
                    return Scalar(read)
                case int():
                    return Ref(place[read])
                case list():
                    return Sequence(tuple(argument(item) for item in read))
                case _:
                    raise TypeError(read)

        return Graph(
            format=1,
            mode="train",
            values=tuple(self.values[old] for old in order),
            operators=tuple(
                Operator(target, tuple(argument(r) for r in reads), (), (place[made],), path, "", draws)
                for target, reads, made, path, draws in self.calls
            ),
            loss=place[self.calls[-1][2]],
            outputs=(),
            updates=tuple(Update(place[buffer], place[value]) for buffer, value in self.updates),
        )


@pytest.fixture
def sketch() -> Sketch:
    return Sketch()


@pytest.fixture
def make_sketch() -> type[Sketch]:
    return Sketch


@pytest.fixture
def adamw() -> Optimizer:
    return ADAMW


@pytest.fixture
def sgd() -> Optimizer:
    return SGD


def draw_random(seed: int, operators: int) -> Graph:
    """Any mix of products, sums, views, masks and reuse, of activations of different sizes."""
    rng = random.Random(seed)
    drawn = Sketch()
    width = 4 * rng.randint(1, 4)
    known = [drawn.leaf("input", 2, width)]
    tied = drawn.leaf("parameter", width, width)
    frozen = drawn.leaf("parameter", width, width, trained=False)
    table = drawn.leaf("constant", 2, width)
    masks: list[int] = []
    for index in range(operators - 1):
        source = rng.choice(known[-6:])
        path = f"layers.{index // 4}"
        match rng.randrange(9):
            case 0 | 1 | 2:
                weight = rng.choice([tied, frozen, drawn.leaf("parameter", width, width)])
                known.append(drawn.op("linear.default", [source, weight], 2, width, path=path))
            case 3:
                known.append(drawn.op("add.Tensor", [source, rng.choice(known)], 2, width, path=path))
            case 4:
                known.append(drawn.op("gelu.default", [source], 2, width, path=path))
            case 5:
                flat = drawn.op("reshape.default", [source, ["2"]], 2 * width, path=path)
                known.append(drawn.op("reshape.default", [flat, ["2"]], 2, width, path=path))
            case 6:
                known.append(
                    drawn.op("mul.Tensor", [source, rng.choice([*known, table])], 2, width, path=path)
                )
            case 7:
                masks.append(drawn.op("neg.default", [table], 2, width, trained=False, path=path))
                known.append(drawn.op("mul.Tensor", [source, rng.choice(masks)], 2, width, path=path))
            case _:
                known.append(drawn.op("tanh.default", [source], 2, width, path=path))
    drawn.op("mse_loss.default", [known[-1], rng.choice(known)], path="loss")
    return drawn.graph()


@pytest.fixture
def random_graph() -> Callable[[int, int], Graph]:
    return draw_random
