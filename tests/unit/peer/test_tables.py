"""Tables keep ids whole, and fold what is long."""

import io

import pytest
from rich.console import Console

from peer.nearest import nearest
from peer.tables import make_console, make_table
from swarm.services.home import Running


def test_where_space_is_short_only_folded_columns_give_way() -> None:
    table = make_table(("id", "what"), [("abcdefgh", "a long story " * 5)], folded=("what",))
    console = Console(file=io.StringIO(), width=30)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[1].startswith("abcdefgh  a long story")
    assert len(lines) > 3


def test_a_pipe_gets_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    make_console().print(make_table(("id", "what"), [("abcdefgh", "a long story " * 20)], folded=("what",)))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_node_nearest_to_the_jobs_is_asked() -> None:
    def running(name: str, role: str) -> Running:
        return Running(name=name, pid=1, started=0.0, role=role, status_url="x", control="")

    door, first, second = running("a", "bootstrap"), running("b", "peer"), running("c", "peer")
    assert nearest([door, second, first]) is first
    assert nearest([running("z", ""), door]) is door
    author = running("z", "author")
    assert nearest([door, first, author]) is author
