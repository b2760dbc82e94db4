"""The live view redraws in place and leaves the terminal whole; the line view is sparing."""

import asyncio
import io
import logging
import sys

import msgspec
import pytest
from rich.console import Console

from peer import view
from peer.render import render_waiting
from peer.view import LOG_SECONDS, LineView, LiveView, follow, make_view
from peer.wording import shown_clock
from swarm.log import configure
from swarm.services import auxiliary
from swarm.services.status.document import DoorStatus, StatusDocument, ValidationPoint, WaitingStatus
from swarm.testing.status import MOMENT, SampleSource, sample_status


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "peer.view"]


@pytest.fixture
def source(caplog: pytest.LogCaptureFixture) -> SampleSource:
    caplog.set_level(logging.INFO, logger="peer.view")
    return SampleSource()


class TestLines:
    """Where standard error is no terminal."""

    def test_a_state_is_told_once(self, source: SampleSource, caplog: pytest.LogCaptureFixture) -> None:
        lines_view = LineView()
        source.replace(waiting=None)
        [job] = source.document.jobs
        for state in ("waiting", "waiting", "loading", "loading", "done", "done"):
            source.replace(jobs=(msgspec.structs.replace(job, state=state),))
            lines_view.update(source.document, MOMENT)
        assert lines(caplog) == ["job", "job", "job"]

    def test_what_ended_before_is_no_news(
        self, source: SampleSource, caplog: pytest.LogCaptureFixture
    ) -> None:
        source.replace(waiting=None)
        [job] = source.document.jobs
        old = msgspec.structs.replace(job, state="done", since=MOMENT - 1)
        new = msgspec.structs.replace(job, id="n" * 52, state="failed", since=MOMENT + 1)
        lines_view = LineView()
        for moment, jobs in ((0, (old,)), (2, (old, new)), (3, (old, new))):
            source.replace(jobs=jobs)
            lines_view.update(source.document, MOMENT + moment)
        told = [vars(record)["swarm_fields"] for record in caplog.records if record.name == "peer.view"]
        assert [fields["job"] for fields in told] == ["nnnnnnnn"]

    def test_progress_is_told_every_few_seconds(
        self, source: SampleSource, caplog: pytest.LogCaptureFixture
    ) -> None:
        lines_view = LineView()
        source.replace(waiting=None)
        for half in range(int(LOG_SECONDS * 2 * 4)):
            lines_view.update(source.document, MOMENT + half / 2)
        assert lines(caplog) == ["job"] + ["training"] * 4

    def test_each_validation_is_told_once(
        self, source: SampleSource, caplog: pytest.LogCaptureFixture
    ) -> None:
        lines_view = LineView()
        [job] = source.document.jobs
        points = tuple(ValidationPoint(step=step, loss=4.0 - step / 100) for step in (50, 100, 150))
        for known in (0, 1, 1, 3, 3):
            source.replace(jobs=(msgspec.structs.replace(job, validations=points[:known]),))
            lines_view.update(source.document, MOMENT)
        source.replace(jobs=(msgspec.structs.replace(job, state="done", validations=points),))
        LineView().update(source.document, MOMENT)
        assert lines(caplog).count("validated") == 3

    def test_a_new_reason_to_wait_is_told_once(
        self, source: SampleSource, caplog: pytest.LogCaptureFixture
    ) -> None:
        lines_view = LineView()
        waiting = source.document.waiting
        assert waiting is not None
        own = msgspec.structs.replace(waiting, job="")
        source.replace(jobs=(), waiting=own)
        lines_view.update(source.document, MOMENT)
        lines_view.update(source.document, MOMENT + 1)
        source.replace(waiting=None)
        lines_view.update(source.document, MOMENT + 2)
        source.replace(waiting=own)
        lines_view.update(source.document, MOMENT + 3)
        assert lines(caplog) == ["waiting", "waiting"]

    def test_what_a_job_waits_for_is_told_once_with_the_job(
        self, source: SampleSource, caplog: pytest.LogCaptureFixture
    ) -> None:
        lines_view = LineView()
        [job] = source.document.jobs
        waiting = msgspec.structs.replace(job, state="waiting", sentence="2 more peers")
        source.replace(jobs=(waiting,))
        lines_view.update(source.document, MOMENT)
        lines_view.update(source.document, MOMENT + 1)
        source.replace(jobs=(msgspec.structs.replace(waiting, sentence="1 more peer"),))
        lines_view.update(source.document, MOMENT + 2)
        assert lines(caplog) == ["job", "job"]

    def test_jobs_that_are_forgotten_take_no_memory(self, source: SampleSource) -> None:
        lines_view = LineView()
        [job] = source.document.jobs
        for number in range(50):
            source.replace(jobs=(msgspec.structs.replace(job, id=f"{number:052d}"),))
            lines_view.update(source.document, MOMENT)
            lines_view.update(source.document, MOMENT + LOG_SECONDS * (number + 1))
        assert len(lines_view._states) == len(lines_view._logged) == 1


class TestLive:
    """On a terminal."""

    def console(self) -> tuple[Console, io.StringIO]:
        file = io.StringIO()
        return Console(file=file, force_terminal=True, width=120, color_system=None), file

    def test_it_shows_the_running_job_and_the_status_address(self) -> None:
        console, file = self.console()
        with LiveView(console, "http://127.0.0.1:5/") as live:
            live.update(sample_status(), MOMENT)
        text = file.getvalue()
        for part in (
            "lab",
            "http://127.0.0.1:5/",
            "step 30/200",
            "bbbbbbbb",
            "bbbbbbbb left: Ctrl+C",
            "1 linked",
        ):
            assert part in text, part

    def test_a_pause_is_in_its_headline(self) -> None:
        console, file = self.console()
        source = SampleSource()
        with LiveView(console, "http://127.0.0.1:5/") as live:
            live.update(source.status(), MOMENT)
            assert "paused" not in file.getvalue()
            source.set_paused(paused=True)
            live.update(source.status(), MOMENT)
        assert f"paused since {shown_clock(MOMENT)}" in file.getvalue()

    def test_the_cursor_comes_back_whatever_ends_it(self) -> None:
        console, file = self.console()

        def interrupted() -> None:
            with LiveView(console, "") as live:
                live.update(sample_status(), MOMENT)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        text = file.getvalue()
        assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")

    def test_log_lines_scroll_above_it_and_the_log_is_given_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = logging.getLogger()
        monkeypatch.setattr(root, "handlers", list(root.handlers))
        level = root.level
        console, file = self.console()
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        stderr = sys.stderr
        configure("info")
        try:
            with LiveView(console, "") as live:
                live.update(sample_status(), MOMENT)
                logging.getLogger("swarm.test").warning("a word in between")
            assert "a word in between" in file.getvalue()
            [handler] = root.handlers
            assert isinstance(handler, logging.StreamHandler)
            assert handler.stream is stderr
        finally:
            root.setLevel(level)


def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(make_view(""), LineView)


class FaultySource(SampleSource):
    """Fails now and then, and tells when it was looked at often enough."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.enough = asyncio.Event()

    def status(self) -> StatusDocument:
        self.looks += 1
        if self.looks == 4:
            self.enough.set()
        if self.looks % 2:
            raise ValueError("a bug in the view")
        return super().status()


async def test_a_bug_in_the_view_does_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr(auxiliary, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    source = FaultySource()
    async with follow(source, "http://127.0.0.1:1/"):
        await source.enough.wait()
    assert source.looks >= 4


async def test_the_view_ends_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    before = asyncio.all_tasks()
    async with follow(SampleSource(), ""):
        pass
    assert asyncio.all_tasks() == before


def test_whoever_waits_for_a_door_sees_what_each_address_answered() -> None:
    door = DoorStatus(
        seed="swarm.example.org:7423",
        source="invite",
        address="198.51.100.7:7423",
        family="IPv4",
        answer="198.51.100.7:7423 did not answer",
        elapsed=5.0,
        calls=2,
    )
    waiting = WaitingStatus(reason="an answer", job="", since=100.0, until=None, doors=(door,))
    lines = render_waiting(waiting, 130.0).plain.splitlines()
    assert lines == [
        "waiting for an answer: 30 s",
        "  swarm.example.org:7423 (invite, IPv4), call 3: 198.51.100.7:7423 did not answer",
    ]
