"""The fixture ``netlab`` for tests that need a network; ``-p swarm.testing.netlab.plugin`` loads it.

::

    def test_peers_meet(netlab: StartLab) -> None:
        lab = netlab("two-homes")
        ...

A test that asks for it fails, in one line, where this machine cannot run labs; with ``SWARM_NETLAB=off`` in
the environment such tests are left out instead, and the run says so.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

import pytest

if TYPE_CHECKING:
    from swarm.testing.netlab.running import RunningLab
    from swarm.testing.netlab.schema import Lab

SWITCH: Final = "SWARM_NETLAB"
LEFT_OUT: Final = f"netlab: tests that need a network of their own were LEFT OUT, because {SWITCH} is off"
_numbers = itertools.count(1)


class StartLab(Protocol):
    """Starts a lab that ends with the test."""

    def __call__(self, lab: "Lab | str") -> "RunningLab":
        """``lab`` is a description, the TOML of one, or the name of a preset."""
        ...


@pytest.fixture
def netlab() -> Iterator[StartLab]:
    """Starts labs, under names that nobody else uses; all of them end with the test."""
    from swarm.testing.netlab.description import load_lab, parse_lab, preset_names  # noqa: PLC0415
    from swarm.testing.netlab.running import start_lab  # noqa: PLC0415
    from swarm.testing.netlab.tools import missing  # noqa: PLC0415

    line = missing()
    if line is not None:
        pytest.fail(f"{line}, or leave these tests out with {SWITCH}=off", pytrace=False)
    with contextlib.ExitStack() as running:

        def start(lab: "Lab | str") -> "RunningLab":
            if isinstance(lab, str):
                lab = load_lab(lab) if lab in preset_names() else parse_lab(lab)
            return running.enter_context(start_lab(lab, name=f"test-{os.getpid()}-{next(_numbers)}"))

        yield start


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a switch that is neither way."""
    if os.environ.get(SWITCH, "off") != "off":
        raise pytest.UsageError(f"{SWITCH} is {os.environ[SWITCH]!r}: set it to off, or not at all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a lab where it is to be left out."""
    if not _is_off():
        return
    needing = [item for item in items if "netlab" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=needing)
    items[:] = [item for item in items if item not in needing]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say so."""
    if _is_off():
        terminalreporter.write_line(LEFT_OUT, yellow=True)


def _is_off() -> bool:
    return os.environ.get(SWITCH) == "off"
