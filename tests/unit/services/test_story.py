"""Events: kept, logged, and each peer named once."""

import logging

import pytest

from swarm.clock import SystemClock
from swarm.ids import PeerId
from swarm.log import get_log
from swarm.services.story import Story

PEER = PeerId("p" * 32)


@pytest.mark.parametrize(
    ("sentence", "fields"),
    [("linked with peer pppppppp at x", {}), ("somebody came", {"peer": PEER})],
)
def test_a_line_of_the_log_names_its_peer_once(
    sentence: str, fields: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    story = Story(SystemClock(), get_log("test"))
    with caplog.at_level(logging.INFO):
        story.tell("linked", sentence, peer=PEER)
    [record] = caplog.records
    assert record.getMessage() == sentence
    assert getattr(record, "swarm_fields") == fields  # noqa: B009 - set through logging's extra
    assert story.events()[0].peer == PEER
