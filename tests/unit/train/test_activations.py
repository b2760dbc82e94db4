import torch

from swarm.graph.dag import activations
from swarm.train.capture import capture


def test_activations_are_made_of_inputs_and_parameters_both() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.register_buffer("scale", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = self.second.weight * 2
            return (self.first(x * self.scale) @ weight).sum()

    for mode in ("train", "evaluate"):
        graph = capture(Model(), (torch.randn(3, 4),), loss=None, mode=mode).graph
        found = activations(graph)
        paths = {value: operator for operator in graph.operators for value in operator.outputs}
        assert graph.loss in found
        assert not found & set(graph.of_kind("parameter")) | found & set(graph.of_kind("input"))
        alone = [value for value, operator in paths.items() if "aten.mul" in operator.target]
        assert len(alone) == 2, "the scaled input and the scaled weight"
        assert found.isdisjoint(alone)
