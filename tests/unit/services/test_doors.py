"""The bootstrap addresses an organiser's machine remembers."""

from pathlib import Path

import pytest

from swarm.errors import MisuseError
from swarm.identity.invite import MAX_ADDRESSES
from swarm.services.doors import DOORS_FILE, known_doors, remember_doors


def test_the_newest_come_first_and_none_twice(tmp_path: Path) -> None:
    assert known_doors(tmp_path) == ()
    assert remember_doors(tmp_path, ("a.example:1", "b.example:2")) == ("a.example:1", "b.example:2")
    assert remember_doors(tmp_path, ("c.example:3", "a.example:1")) == (
        "c.example:3",
        "a.example:1",
        "b.example:2",
    )
    assert known_doors(tmp_path) == ("c.example:3", "a.example:1", "b.example:2")


def test_no_more_than_an_invite_holds(tmp_path: Path) -> None:
    for number in range(MAX_ADDRESSES + 3):
        remember_doors(tmp_path, (f"n{number}.example:1",))
    doors = known_doors(tmp_path)
    assert len(doors) == MAX_ADDRESSES
    assert doors[0] == f"n{MAX_ADDRESSES + 2}.example:1"


def test_what_is_no_address_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(MisuseError):
        remember_doors(tmp_path, ("nonsense",))
    assert known_doors(tmp_path) == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_damaged_list_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / DOORS_FILE).write_bytes(content)
    assert known_doors(tmp_path) == ()
    assert remember_doors(tmp_path, ("a.example:1",)) == ("a.example:1",)
    assert known_doors(tmp_path) == ("a.example:1",)
