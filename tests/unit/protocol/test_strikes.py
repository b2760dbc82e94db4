"""How much may be done in vain."""

from swarm.protocol.strikes import MAX_STRIKES, STRIKES_A_SECOND, Strikes


def test_a_stretch_of_them_is_too_many() -> None:
    strikes = Strikes(now=0.0)
    assert [strikes.add(now=0.0) for _ in range(MAX_STRIKES)] == [False] * MAX_STRIKES
    assert strikes.add(now=0.0)


def test_they_are_forgotten_in_time() -> None:
    strikes = Strikes(now=0.0)
    for _ in range(MAX_STRIKES):
        strikes.add(now=0.0)
    assert [strikes.add(now=1.0) for _ in range(int(STRIKES_A_SECOND) + 1)] == [False] * 20 + [True]
    assert not strikes.add(now=1000.0)


def test_a_few_for_ever_are_let_be() -> None:
    strikes = Strikes(now=0.0)
    assert not any(strikes.add(now=second / STRIKES_A_SECOND) for second in range(100_000))
