import numpy as np

from swarm.ids import PeerId
from swarm.schedule.network import UNKNOWN, NetworkModel

A, B, C = (PeerId(letter * 32) for letter in "abc")


def test_nothing_is_known_of_an_unmeasured_network():
    assert UNKNOWN.seconds_per_byte([A, B]) is None


def test_rates_are_by_direction_and_unmeasured_pairs_as_slow_as_the_slowest():
    network = NetworkModel(rates={(A, B): 1e6, (B, A): 5e5, (A, C): 0.0})
    np.testing.assert_allclose(
        network.seconds_per_byte([A, B, C]), [[2e-6, 1e-6, 2e-6], [2e-6, 2e-6, 2e-6], [2e-6, 2e-6, 2e-6]]
    )


def test_a_default_is_for_pairs_that_were_not_measured():
    network = NetworkModel(rates={(A, B): 1e6}, default=1e3)
    np.testing.assert_allclose(network.seconds_per_byte([B, A]), [[1e-3, 1e-3], [1e-6, 1e-3]])
