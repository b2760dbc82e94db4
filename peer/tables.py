"""Tables on a terminal: plain columns, ids never cut, long text folded. A pipe gets whole lines."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from peer.wording import clean

FOLDED_WIDTH: Final = 12
"""Least characters of a column that gives way: below that, text is hard to read."""

PIPE_WIDTH: Final = 1000
"""Characters of a line where nobody's screen bounds it: what reads a pipe wants a row to be a line."""


def make_console() -> Console:
    """Standard output: as wide as the terminal that it is."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def make_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, folded: Sequence[str] = ()) -> Table:
    """A table of ``rows`` under ``heads``; the columns named in ``folded`` give way where space is short.

    Cells may be text from other peers: they are shown as they are, harmlessly.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        narrow = head in folded
        table.add_column(
            head, no_wrap=not narrow, overflow="fold", min_width=FOLDED_WIDTH if narrow else None
        )
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table
