"""The allow-list against torch's own schemas: it names real operators, and none that writes."""

import pytest
import torch

from swarm.graph.operators import ALLOWED, RANDOM, SOURCES, VIEWS, operators_digest


def _schema(name: str) -> torch.FunctionSchema:
    return _overload(name)._schema


def _overload(name: str) -> torch._ops.OpOverload:
    space, packet, overload = name.split(".")
    assert space == "aten"
    return getattr(getattr(torch.ops.aten, packet), overload)


def test_every_name_is_an_operator_of_torch() -> None:
    assert all(isinstance(_overload(name), torch._ops.OpOverload) for name in ALLOWED)


def test_no_operator_writes_to_an_argument() -> None:
    writers = [
        name
        for name in ALLOWED
        if _schema(name).is_mutable
        or any(a.alias_info is not None and a.alias_info.is_write for a in _schema(name).arguments)
    ]
    assert writers == []


def test_every_output_is_a_tensor_or_a_list_of_tensors() -> None:
    kinds = {str(output.type) for name in ALLOWED for output in _schema(name).returns}
    assert kinds == {"Tensor", "List[Tensor]"}
    assert all(_schema(name).returns for name in ALLOWED)


def test_views_are_the_operators_whose_outputs_alias_an_input() -> None:
    aliasing = {name for name in ALLOWED if any(r.alias_info is not None for r in _schema(name).returns)}
    assert aliasing == VIEWS


def test_random_ones_are_those_that_torch_says_draw_from_the_seeded_generator() -> None:
    drawing = {name for name in ALLOWED if torch.Tag.nondeterministic_seeded in _overload(name).tags}
    assert drawing == RANDOM


def test_sources_read_no_tensor_but_for_its_shape() -> None:
    readers = {
        name
        for name in SOURCES
        if any("Tensor" in str(argument.type) for argument in _schema(name).arguments)
    }
    assert {name.split(".")[1] for name in readers} == {
        "full_like", "ones_like", "zeros_like", "new_full", "new_ones", "new_zeros"
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["item", "nonzero", "as_strided", "empty", "from_file", "set_", "add_", "_local_scalar_dense"]
)
def test_what_reads_values_memory_or_files_is_not_allowed(name: str) -> None:
    assert not [allowed for allowed in ALLOWED if allowed.split(".")[1] == name]


def test_digest_depends_on_the_names_alone() -> None:
    assert operators_digest() == operators_digest()
    assert len(operators_digest()) == 52
