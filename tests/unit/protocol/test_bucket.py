"""How much may happen at a stretch, and how fast it is forgotten."""

from swarm.protocol.bucket import Bucket

MOST = 1000


def bucket() -> Bucket:
    return Bucket(most=MOST, a_second=20.0, now=0.0)


def test_a_stretch_is_too_many() -> None:
    strikes = bucket()
    assert [strikes.add(now=0.0) for _ in range(MOST)] == [False] * MOST
    assert strikes.add(now=0.0)


def test_what_was_too_many_does_not_count_and_the_rest_is_forgotten() -> None:
    strikes = bucket()
    for _ in range(2 * MOST):
        strikes.add(now=0.0)
    assert strikes.wait(now=0.0) == 0.05
    assert [strikes.add(now=1.0) for _ in range(21)] == [False] * 20 + [True]
    assert not strikes.add(now=1000.0)


def test_a_few_for_ever_are_let_be() -> None:
    strikes = bucket()
    assert not any(strikes.add(now=second / 20.0) for second in range(100_000))


def test_a_clock_that_is_set_back_takes_nothing_out() -> None:
    strikes = bucket()
    for _ in range(MOST):
        strikes.add(now=0.0)
    assert strikes.add(now=-1e9)
    assert not strikes.add(now=-1e9 + 1.0)
