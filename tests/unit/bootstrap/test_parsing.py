"""Reading a command line in a process of its own."""

from pathlib import Path

import pytest

from bootstrap.options import BootstrapOptions
from bootstrap.parsing import CAN_READ_APART, read_apart
from swarm.net.address import Address

pytestmark = pytest.mark.skipif(not CAN_READ_APART, reason="processes are not copied here")


def test_every_kind_of_option_arrives_as_it_was_read(tmp_path: Path) -> None:
    words = ["--home", str(tmp_path), "--invite", "-", "--listen", "[::1]:7", "--disk", "1GiB", "--no-mdns"]
    words += ["--advertise", "a.example:1", "--advertise", "b.example:2", "--json", "--parent", "12"]
    assert read_apart(BootstrapOptions, "swarm", "swarm bootstrap", words) == BootstrapOptions(
        home=tmp_path,
        invite="-",
        listen=Address("::1", 7),
        disk=2**30,
        mdns=False,
        advertise=[Address("a.example", 1), Address("b.example", 2)],
        json=True,
        parent=12,
    )


def test_what_is_not_given_has_its_default() -> None:
    assert read_apart(BootstrapOptions, "swarm", "swarm bootstrap", []) == BootstrapOptions()


def test_help_and_faults_are_said_with_their_status(capfd: pytest.CaptureFixture[str]) -> None:
    assert read_apart(BootstrapOptions, "swarm", "swarm bootstrap", ["--help"]) == 0
    assert "Usage: swarm bootstrap [OPTIONS]" in capfd.readouterr().out
    assert read_apart(BootstrapOptions, "swarm", "swarm bootstrap", ["--listen", "a:b:c"]) == 2
    assert capfd.readouterr().err.startswith("swarm: ")
