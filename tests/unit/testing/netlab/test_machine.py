"""What a machine has to give is reckoned with all labs together."""

import pytest

from swarm.errors import FailureError
from swarm.testing.netlab.description import load_lab, parse_lab
from swarm.testing.netlab.machine import Machine, check_fits, notes
from swarm.testing.netlab.schema import Lab

SMALL = Machine(cores=2, memory=2**32)


def lab(host: str = "", path: str = "", name: str = "asked") -> Lab:
    return parse_lab(
        f'name = "{name}"\n[[site]]\nname = "x"\n[[site]]\nname = "y"\n'
        f'[[host]]\nname = "a"\nsite = "x"\n{host}\n[[host]]\nname = "b"\nsite = "y"\n{host}\n'
        f'[[path]]\nbetween = ["x", "y"]\n{path}'
    )


@pytest.mark.parametrize(
    ("asked", "running", "complaint"),
    [
        (lab("cpu = 1.5"), [], "asks for 3 cores, and this machine has 2: lower cpu"),
        (lab("cpu = 0.5"), [lab("cpu = 1", name="first")], "has 0, beside first: lower cpu"),
        (lab('memory = "3GiB"'), [], "asks for 6.0 GiB of memory, and this machine has 4.0 GiB"),
        (lab('device = "cuda"'), [], "host a computes on 'cuda'"),
        (load_lab("testbed-48"), [], "this description is for planning"),
        (lab(path='rate = "500Mbit"\nrtt = "1ms"'), [], "carries 400 Mbit/s, and y may send it 500 Mbit/s"),
    ],
)
def test_what_does_not_fit_is_refused(asked: Lab, running: list[Lab], complaint: str) -> None:
    with pytest.raises(FailureError) as caught:
        check_fits(asked, SMALL, running)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("name", ["lan", "two-homes", "home-8mbit", "asymmetric", "two-clusters", "world"])
def test_presets_to_run_fit_small_machines(name: str) -> None:
    check_fits(load_lab(name), SMALL)


def test_whoever_measures_is_told_what_may_disturb() -> None:
    assert notes(lab(), SMALL) == []
    assert "hosts may use 2 of 2 cores" in notes(lab("cpu = 1"), SMALL)[0]
    assert "as fast as the forwarder" in notes(lab(path='rtt = "1ms"'), SMALL)[0]
    assert "600 Mbit/s may pass the forwarder" in notes(lab(path='rtt = "1ms"\nrate = "300Mbit"'), SMALL)[0]
    assert "a rate is 10 Gbit/s" in notes(lab('uplink = "10Gbit"'), SMALL)[0]
