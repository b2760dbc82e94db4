"""Tables keep ids whole, and fold what is long."""

import io

from rich.console import Console

from peer.nearest import nearest
from peer.tables import make_table
from swarm.services.home import Running


def test_where_space_is_short_only_folded_columns_give_way() -> None:
    table = make_table(("id", "what"), [("abcdefgh", "a long story " * 5)], folded=("what",))
    console = Console(file=io.StringIO(), width=30)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[1].startswith("abcdefgh  a long story")
    assert len(lines) > 3


def test_the_node_nearest_to_the_jobs_is_asked() -> None:
    nodes = [
        Running(name=name, pid=1, started=0.0, status_url="x", control="")
        for name in ("bootstrap", "other", "peer2", "peer1")
    ]
    assert nearest(nodes).name == "peer1"
    assert nearest(nodes[:2]).name == "bootstrap"
    author = Running(name="author", pid=1, started=0.0, status_url="x", control="")
    assert nearest([*nodes, author]).name == "author"
