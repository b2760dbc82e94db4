"""Policies as authors write them."""

import pytest

from swarm.errors import MisuseError
from swarm.wire.codecs import Policy, parse_policy


@pytest.mark.parametrize(
    "text", ["none", "int6", "topk:10%:8", "uniform:6", "adatopk:100", "deadline:lossless", "deadline:any"]
)
def test_a_policy_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_policy(text)) == text


def test_a_deadline_is_faithful_unless_it_says_otherwise() -> None:
    assert parse_policy("deadline") == parse_policy("deadline:faithful") == Policy("faithful")
    assert parse_policy("deadline").quality == "faithful"
    assert parse_policy("int8").quality is None


@pytest.mark.parametrize("text", ["deadline:", "deadline:good", "faithful", "adatopk", "uniform:0.5"])
def test_another_text_is_refused_with_the_policies_there_are(text: str) -> None:
    with pytest.raises(MisuseError, match="deadline:QUALITY with one of lossless, faithful, tolerant, any"):
        parse_policy(text)
