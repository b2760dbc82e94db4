"""The loss curve stays small and keeps its shape."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from swarm.services.status.curve import MAX_POINTS, LossCurve


@given(st.integers(0, 3000))
def test_points_are_bounded_even_and_true(count: int) -> None:
    curve = LossCurve()
    for step in range(count):
        curve.add(step, float(-step))
    points = curve.points
    assert len(points) <= MAX_POINTS
    assert all(point.loss == -point.step for point in points)
    assert len({b.step - a.step for a, b in itertools.pairwise(points)}) <= 1
    assert len(points) >= min(count, MAX_POINTS // 2)
    if points:
        assert points[0].step == 0
        assert count - 1 - points[-1].step < max(1, count // (MAX_POINTS // 2))


def test_a_step_done_again_replaces_what_followed() -> None:
    curve = LossCurve()
    for step in range(5):
        curve.add(step, 1.0)
    curve.add(2, 9.0)
    assert [(point.step, point.loss) for point in curve.points] == [(0, 1.0), (1, 1.0), (2, 9.0)]
