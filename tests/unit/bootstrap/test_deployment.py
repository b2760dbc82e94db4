"""The unit and the container file name what is there, and systemd takes the unit."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.options import BootstrapOptions

ROOT = Path(__file__).parents[3]
UNIT = (ROOT / "bootstrap" / "fusion-swarm-bootstrap.service").read_text("utf-8")
CONTAINER = (ROOT / "bootstrap" / "Containerfile").read_text("utf-8")


def test_both_start_the_program_with_options_that_it_has() -> None:
    for text in (UNIT, CONTAINER):
        options = set(re.findall(r"--(invite|status|listen|advertise|home)\b", text))
        assert options
        assert options <= set(BootstrapOptions.__dataclass_fields__)
        assert "SWARM_HOME=/var/lib/fusion-swarm" in text
        assert "SWARM_MDNS=0" in text


def test_the_unit_confines_the_program_and_keeps_its_state() -> None:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(UNIT)
    service = parsed["Service"]
    wanted = {"DynamicUser": "yes", "ProtectSystem": "strict", "StateDirectory": "fusion-swarm"}
    wanted |= {"NoNewPrivileges": "yes", "Restart": "always", "CapabilityBoundingSet": ""}
    assert {name: service[name] for name in wanted} == wanted


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "fusion-swarm-bootstrap.service"
    unit.write_text(UNIT.replace("/opt/fusion-swarm/bin/python", sys.executable), "utf-8")
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    mine = [line for line in found.stderr.splitlines() if "fusion-swarm-bootstrap" in line]
    assert mine == [], found.stderr
