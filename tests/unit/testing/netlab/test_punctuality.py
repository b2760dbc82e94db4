"""What may be asked of a measurement follows from how late the machine woke who napped beside it."""

import math
import threading

from swarm.testing.netlab.punctuality import PUNCTUAL, Machine


def test_what_a_network_must_never_do_is_asked_on_any_machine() -> None:
    machine = Machine()
    assert 111.0 not in machine.rate(100.0)
    assert 0.017 not in machine.delay(0.020, tolerance=0.002)


def test_a_machine_that_nobody_watched_yet_is_not_trusted() -> None:
    machine = Machine()
    assert machine.rate(100.0).late == math.inf
    assert 50.0 in machine.rate(100.0)
    assert 0.041 in machine.delay(0.020, tolerance=0.002)


def test_bounds_are_narrow_where_naps_were_short_enough() -> None:
    machine = Machine()
    machine.start()
    while math.isinf(late := machine.rate(100.0).late):
        threading.Event().wait(0.01)
    machine.close()
    assert late >= 0.0
    assert (89.0 in machine.rate(100.0)) == (machine.rate(100.0).late > PUNCTUAL)
    assert 91.0 in machine.rate(100.0)


def test_a_machine_that_stood_still_for_a_hundredth_of_the_time_was_not_punctual() -> None:
    machine = Machine()
    machine._late = [0.0001] * 1000 + [0.2]
    assert 11.0 in machine.rate(100.0)
    assert 0.4 in machine.delay(0.020, tolerance=0.002)
    machine._late = [0.0001] * 100_000 + [0.2]
    assert 89.0 not in machine.rate(100.0)
    assert 0.023 not in machine.delay(0.020, tolerance=0.002)
