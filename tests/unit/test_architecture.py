"""The pages that describe the program are true: names resolve, messages are listed, limits of size hold."""

import importlib
import re
from pathlib import Path

import pytest

from swarm.wire.messages.registry import MESSAGES

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
PROTOCOL = (ROOT / "docs" / "PROTOCOL.md").read_text("utf-8")
CODE = sorted(path for folder in ("swarm", "bootstrap", "peer") for path in (ROOT / folder).rglob("*.py"))

FOLLOWED = re.findall(r"^\| [^|]+ \| `(swarm\.[\w.]+)` \| `([\w.]+)` \|$", ARCHITECTURE, re.MULTILINE)
MENTIONED = re.findall(r"`((?:swarm/)?[a-z_]+/[a-z_/]+(?:\.py)?)`", ARCHITECTURE)


def test_the_followed_tensor_passes_through_a_dozen_places() -> None:
    assert len(FOLLOWED) >= 12


@pytest.mark.parametrize(("module", "name"), FOLLOWED)
def test_each_place_a_tensor_passes_exists(module: str, name: str) -> None:
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)


@pytest.mark.parametrize("mentioned", sorted(set(MENTIONED)))
def test_each_module_on_the_page_exists(mentioned: str) -> None:
    path = mentioned.removeprefix("swarm/")
    places = [ROOT / "swarm" / path, ROOT / "swarm" / f"{path}.py", ROOT / path]
    assert any(place.exists() for place in places), mentioned


def test_the_protocol_page_lists_every_message_under_its_number() -> None:
    listed = {
        int(number): name for number, name in re.findall(r"^\| (\d+) \| (\w+) \|", PROTOCOL, re.MULTILINE)
    }
    frames = {number: name for number, name in listed.items() if number in MESSAGES}
    assert frames == {number: message.__name__ for number, message in MESSAGES.items()}


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_one_noun_and_at_most_400_lines(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 400
