"""The account of calls that failed."""

from swarm.errors import FailureError, LinkLostError, RemoteRefusalError, RemoteTimeoutError
from swarm.net.dialing import Answers


def test_every_address_is_listed_with_what_it_answered() -> None:
    answers = Answers()
    answers.add("a:1", LinkLostError("does not listen (connection refused)"))
    answers.add("b:2", RemoteTimeoutError("did not answer within 5 s"))
    error = answers.error()
    assert isinstance(error, FailureError)
    assert str(error) == "a:1 does not listen (connection refused); b:2 did not answer within 5 s"


def test_a_refusal_says_more_than_silence() -> None:
    answers = Answers()
    answers.add("a:1", LinkLostError("does not listen (connection refused)"))
    answers.add("b:2", RemoteRefusalError("clock", "refused this peer: your clock is wrong"))
    error = answers.error()
    assert isinstance(error, RemoteRefusalError)
    assert error.code == "clock"
    assert str(error).endswith("; b:2 refused this peer: your clock is wrong")


def test_without_an_address_there_is_nothing_to_call() -> None:
    assert str(Answers().error()) == "there is no address to call"
