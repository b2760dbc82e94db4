"""A sketch of a graph: values and operators by a few letters, without torch."""

from collections.abc import Sequence

import pytest

from swarm.graph.dag import Graph, Operator, Ref, TensorSpec, Update, Value, check_graph
from swarm.graph.dag import Sequence as ListArgument
from swarm.wire.tensors import DType, dense_strides

SOURCE = "aten.arange.default"
"""What a sketch calls an operator without inputs."""


class Sketch:
    """Builds a graph; leaves first, in the order of their kinds. Every tensor has shape (2, 3) by default."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.operators: list[Operator] = []
        self.names: dict[str, int] = {}

    def leaf(self, kind: str, name: str, *, trained: bool = True) -> "Sketch":
        """A model input, parameter, buffer or constant."""
        return self._value(kind, name, trained and kind == "parameter")

    def op(
        self,
        reads: str,
        makes: str,
        *,
        trained: bool = True,
        random: bool = False,
        shape: tuple[int, ...] = (2, 3),
        dtype: DType = "float32",
    ) -> "Sketch":
        """An operator that reads and makes the values with these names, apart by spaces."""
        inputs = tuple(Ref(self.names[name]) for name in reads.split())
        for name in makes.split():
            self._value("output", name, trained, shape, dtype)
        self.operators.append(
            Operator(
                target="aten.cat.default" if inputs else SOURCE,
                args=(ListArgument(inputs),) if inputs else (),
                kwargs=(),
                outputs=tuple(self.names[name] for name in makes.split()),
                path=f"module.{makes.replace(' ', '.')}",
                source="",
                random=random,
            )
        )
        return self

    def graph(
        self,
        loss: str = "loss",
        *,
        outputs: Sequence[str] = (),
        updates: Sequence[tuple[str, str]] = (),
        mode: str = "train",
    ) -> Graph:
        """The graph; ``updates`` are buffers with the values that replace them."""
        graph = Graph(
            format=1,
            mode=mode,  # type: ignore[arg-type]
            values=tuple(self.values),
            operators=tuple(self.operators),
            loss=self.names[loss],
            outputs=tuple(self.names[name] for name in outputs),
            updates=tuple(
                Update(buffer=self.names[buffer], value=self.names[value]) for buffer, value in updates
            ),
        )
        check_graph(graph)
        return graph

    def _value(
        self,
        kind: str,
        name: str,
        differentiable: bool,
        shape: tuple[int, ...] = (2, 3),
        dtype: DType = "float32",
    ) -> "Sketch":
        shape = () if name == "loss" else shape
        spec = TensorSpec(dtype=dtype, shape=shape, strides=dense_strides(shape, tuple(range(len(shape)))))
        self.names[name] = len(self.values)
        self.values.append(Value(kind=kind, name=name, spec=spec, differentiable=differentiable))  # type: ignore[arg-type]
        return self


@pytest.fixture
def sketch() -> Sketch:
    """An empty sketch."""
    return Sketch()


@pytest.fixture
def other() -> Sketch:
    """Another."""
    return Sketch()
