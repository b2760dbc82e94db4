import pytest
import torch

from swarm.errors import FailureError, RemoteProtocolError
from swarm.graph import operators
from swarm.graph.dag import Argument, Device, MemoryFormat, Operator, Ref, Scalar, Sequence, TypeName
from swarm.ids import ValueId
from swarm.train import program_arguments
from swarm.train.program_arguments import Template, resolve

CPU = torch.device("cpu")
A, B = torch.tensor(1.0), torch.tensor(2.0)


def operator(*args: Argument, **kwargs: Argument) -> Operator:
    return Operator(
        target="aten.add.Tensor",
        args=args,
        kwargs=tuple(kwargs.items()),
        outputs=(9,),
        path="",
        source="",
        random=False,
    )


def test_every_kind_of_argument_becomes_what_torch_takes():
    template = Template(
        operator(
            Ref(3),
            Scalar(2),
            Scalar(None),
            Sequence((Scalar(1), Scalar(-1))),
            TypeName("bfloat16"),
            MemoryFormat("channels_last"),
            Device(),
            mode=Scalar("tanh"),
        ),
        {},
        CPU,
    )
    args, kwargs = template.fill({ValueId(3): A})
    assert args == [A, 2, None, [1, -1], torch.bfloat16, torch.channels_last, CPU]
    assert kwargs == {"mode": "tanh"}


def test_values_at_hand_and_bound_ones_fill_their_places_in_lists_too():
    nested = Sequence((Ref(3), Scalar(None), Ref(4)))
    template = Template(operator(Ref(4), nested, other=Ref(3)), {ValueId(4): B}, CPU)
    for value in (A, torch.tensor(7.0)):
        args, kwargs = template.fill({ValueId(3): value})
        assert args[0] is B
        assert args[1] == [value, None, B]
        assert kwargs == {"other": value}


def test_an_allowed_operator_resolves_to_its_overload():
    assert resolve("aten.add.Tensor") is torch.ops.aten.add.Tensor


@pytest.mark.parametrize(
    "target", ["aten.add_.Tensor", "aten.set_.source_Storage", "os.system", "", "aten.from_file.default"]
)
def test_an_operator_that_is_not_allowed_is_refused(target):
    with pytest.raises(RemoteProtocolError, match="not on the allow-list"):
        resolve(target)


def test_an_operator_that_this_torch_lacks_is_said_so(monkeypatch):
    monkeypatch.setattr(program_arguments, "ALLOWED", operators.ALLOWED | {"aten.of_the_future.default"})
    with pytest.raises(FailureError, match=r"has no operator aten\.of_the_future\.default; update torch"):
        resolve("aten.of_the_future.default")
