"""State that a node would rather keep: a write that fails is told, and ends nothing."""

from pathlib import Path

from swarm.clock import SystemClock
from swarm.errors import FailureError
from swarm.log import get_log
from swarm.services.soft_state import SoftState
from swarm.services.story import Story


def story() -> Story:
    return Story(SystemClock(), get_log("test"))


async def test_what_is_written_is_kept_without_a_word(tmp_path: Path) -> None:
    told = story()
    assert await SoftState(tmp_path, told).keep("x is", lambda: (tmp_path / "x").write_text("1", "ascii"))
    assert (tmp_path / "x").read_text("ascii") == "1"
    assert told.events() == ()


async def test_a_full_disk_is_told_each_time(tmp_path: Path) -> None:
    def full() -> None:
        raise FailureError("cannot write x: No space left on device")

    told = story()
    state = SoftState(tmp_path, told)
    assert not await state.keep("the members met are", full)
    assert not await state.keep("the members met are", full)
    assert [event.sentence for event in told.events()] == [
        "the members met are not kept: cannot write x: No space left on device"
    ] * 2


async def test_a_home_that_is_gone_is_told_once(tmp_path: Path) -> None:
    told = story()
    state = SoftState(tmp_path / "home", told)
    for _ in range(3):
        assert not await state.keep("x is", lambda: (tmp_path / "home" / "x").write_text("1", "ascii"))
    [event] = told.events()
    assert event.sentence.startswith(f"the home {tmp_path / 'home'} is gone: ")
