"""What runs in place of kernels that write where they should not."""

import pytest
import torch
from torch import nn

from swarm.train.capture import capture
from swarm.train.program_arguments import resolve
from swarm.train.program_kernels import CONVOLUTIONS, sound

CPU = torch.device("cpu")


def convolution(kernel: int, stride: int, memory_format: torch.memory_format):
    """A convolution's operator in its graph, and tensors for it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, kernel, stride), nn.Flatten()).to(memory_format=memory_format)
    x = torch.randn(2, 3, 8, 8).to(memory_format=memory_format)
    graph = capture(model, (x, torch.zeros(2, dtype=torch.int64)), loss=nn.functional.cross_entropy).graph
    operator = next(one for one in graph.operators if one.target in CONVOLUTIONS)
    return graph, operator, x, model[0]


def test_a_strided_pointwise_convolution_is_computed_channels_first_and_returned_as_it_was_captured():
    graph, operator, x, layer = convolution(1, 2, torch.channels_last)
    call = resolve(operator.target)
    instead = sound(call, operator, graph, CPU)
    assert instead is not call
    with torch.no_grad():
        found = instead(x, layer.weight, layer.bias, [2, 2])
        expected = call(x, layer.weight, layer.bias, [2, 2])
    assert found.stride() == expected.stride() == graph.values[operator.outputs[0]].spec.strides
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 2), (3, 1)])
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_other_convolutions_are_torch_s_own(kernel, stride, memory_format):
    graph, operator, _, _ = convolution(kernel, stride, memory_format)
    call = resolve(operator.target)
    assert sound(call, operator, graph, CPU) is call
    assert sound(call, operator, graph, torch.device("cuda")) is call
