"""The calendar of passes against one that is written out pass by pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.ids import Step
from swarm.protocol.passes import Passes, PassName


def written_out(passes: Passes) -> list[tuple[str, int]]:
    order: list[tuple[str, int]] = []
    for step in range(passes.first_step, passes.steps):
        order.append(("train", step))
        done = step + 1
        if passes.validate_every and done % passes.validate_every == 0 and done < passes.steps:
            order.append(("evaluate", done))
    return [*order, *([("evaluate", passes.steps)] if passes.evaluates else [])]


def test_evaluation_comes_after_every_so_many_steps_and_at_the_end() -> None:
    passes = Passes(first_step=0, steps=5, evaluates=True, validate_every=2)
    found = [passes.at(position) for position in range(passes.count)]
    assert [(name.phase, int(name.step)) for name in found] == [
        ("train", 0),
        ("train", 1),
        ("evaluate", 2),
        ("train", 2),
        ("train", 3),
        ("evaluate", 4),
        ("train", 4),
        ("evaluate", 5),
    ]


@given(first=st.integers(0, 12), more=st.integers(1, 12), every=st.integers(0, 26), evaluates=st.booleans())
def test_positions_are_those_of_the_list_written_out(
    first: int, more: int, every: int, evaluates: bool
) -> None:
    passes = Passes(first_step=first, steps=first + more, evaluates=evaluates, validate_every=every)
    order = written_out(passes)
    assert passes.count == len(order)
    assert [(name.phase, name.step) for name in map(passes.at, range(passes.count))] == order
    for phase in ("train", "evaluate"):
        for step in range(first + more + 3):
            expected = order.index((phase, step)) if (phase, step) in order else None
            name = PassName(phase=phase, step=Step(step))  # type: ignore[arg-type]
            assert passes.position(name) == expected


@pytest.mark.parametrize("every", [0, 1, 7, 2**40])
def test_the_last_of_many_passes_is_found_at_once(every: int) -> None:
    passes = Passes(first_step=0, steps=2**40, evaluates=True, validate_every=every)
    assert passes.at(passes.count - 1) == PassName(phase="evaluate", step=Step(2**40))
