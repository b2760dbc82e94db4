"""Every row of the threat model names code that is there, and a test that is there."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "THREAT_MODEL.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("| attack |", "|---"))
]
SECTIONS = re.findall(r"^##+ (.+)$", PAGE, re.MULTILINE)


@cache
def node_ids(path: Path) -> frozenset[str]:
    """Node ids of the tests in a file, without its name and without parameters."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        functions = [f for f in inner if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)]
        found.update(prefix + f.name for f in functions if f.name.startswith("test_"))
    return frozenset(found)


def resolve(dotted: str) -> object:
    """What the name says: a module, or something in one; raises AttributeError where there is none."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            found: object = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AttributeError(dotted)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_its_attack_its_outcome_its_code_and_its_test(row: list[str]) -> None:
    attack, outcome, where, test = row
    assert attack
    assert outcome
    code = re.fullmatch(r"`((?:swarm|bootstrap|peer)(?:\.\w+)+)`", where)
    assert code, where
    assert resolve(code[1]) is not None
    place = re.fullmatch(r"`(tests/[\w/]+\.py)::([\w:]+)`", test)
    assert place, test
    assert place[2] in node_ids(ROOT / place[1])


def test_every_kind_of_attacker_has_rows() -> None:
    parts = re.split(r"^##+ .+$", PAGE, flags=re.MULTILINE)[1:]
    without = [title for title, part in zip(SECTIONS, parts, strict=True) if "| attack |" not in part]
    assert without == ["What a member necessarily sees", "What is not prevented"]
    assert len(ROWS) >= 90
    assert len({row[0] for row in ROWS}) == len(ROWS)
