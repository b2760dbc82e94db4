"""The account of calls: which addresses, in which order, what each answered, how long it took."""

import pytest

from swarm.errors import FailureError, LinkLostError, RemoteRefusalError, RemoteTimeoutError
from swarm.net.dialing import Answers
from swarm.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def answers(clock: ManualClock) -> Answers:
    return Answers(clock)


def test_every_address_is_listed_with_what_it_answered_and_how_long_that_took(
    answers: Answers, clock: ManualClock
) -> None:
    began = clock.wall()
    answers.begin()
    answers.add("a:1", LinkLostError("does not listen (connection refused)"))
    answers.begin()
    clock.advance(5.0)
    answers.add("b:2", RemoteTimeoutError("did not answer within 5 s"))
    answers.begin()
    clock.advance(0.25)
    answers.add("c:3")
    error = answers.error()
    assert isinstance(error, FailureError)
    assert str(error) == (
        "a:1 (0.0 s) does not listen (connection refused); b:2 (5.0 s) did not answer within 5 s; "
        "c:3 (0.2 s) answered"
    )
    assert [(call.address, call.seconds, call.began - began) for call in answers.attempts] == [
        ("a:1", 0.0, 0.0),
        ("b:2", 5.0, 0.0),
        ("c:3", 0.25, 5.0),
    ]


def test_a_refusal_says_more_than_silence(answers: Answers) -> None:
    answers.add("a:1", LinkLostError("does not listen (connection refused)"))
    answers.add("b:2", RemoteRefusalError("clock", "refused this peer: your clock is wrong"))
    error = answers.error()
    assert isinstance(error, RemoteRefusalError)
    assert error.code == "clock"
    assert "; b:2 (" in str(error)
    assert str(error).endswith(" s) refused this peer: your clock is wrong")


def test_without_an_address_there_is_nothing_to_call(answers: Answers) -> None:
    assert str(answers.error()) == "there is no address to call"
