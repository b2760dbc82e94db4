"""TLS errors in words: those that real handshakes give are in tests/integration/test_links.py."""

import ssl

import pytest

from swarm.errors import LinkLostError, RemoteProtocolError, RemoteRefusalError
from swarm.net.tls_errors import explain


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] something (_ssl.c:1)")
    error.reason = reason
    return error


def verify_error(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.reason = "CERTIFICATE_VERIFY_FAILED"
    error.verify_code = code
    error.verify_message = "some flaw"
    return error


@pytest.mark.parametrize(
    ("reason", "code", "words"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", "wrong-swarm", "belongs to another swarm"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "bad-certificate", "wants a certificate"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "clock", "check the clocks of both machines"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "bad-certificate", "check the clocks of both machines"),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", "revoked", "is revoked"),
        ("TLSV1_ALERT_ACCESS_DENIED", "bad-certificate", "ask for a new invite"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "bad-certificate", "showed no certificate"),
    ],
)
def test_refusals_keep_a_code_and_say_what_to_do(reason: str, code: str, words: str) -> None:
    error = explain(tls_error(reason))
    assert isinstance(error, RemoteRefusalError)
    assert error.code == code
    assert words in str(error)


@pytest.mark.parametrize(
    ("verify_code", "code", "words"),
    [
        (18, "wrong-swarm", "belongs to another swarm"),
        (19, "wrong-swarm", "belongs to another swarm"),
        (20, "wrong-swarm", "belongs to another swarm"),
        (9, "clock", "not valid yet: check the clocks"),
        (10, "clock", "expired: check the clocks"),
        (7, "bad-certificate", "does not hold: some flaw"),
    ],
)
def test_our_own_refusals_say_what_the_other_side_is(verify_code: int, code: str, words: str) -> None:
    error = explain(verify_error(verify_code))
    assert isinstance(error, RemoteRefusalError)
    assert error.code == code
    assert words in str(error)


@pytest.mark.parametrize("reason", ["WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL"])
def test_other_programs_are_taken_for_that(reason: str) -> None:
    error = explain(tls_error(reason))
    assert isinstance(error, RemoteProtocolError)
    assert str(error).endswith("is that the port of another program?")


def test_an_end_without_a_word_is_a_lost_link() -> None:
    assert isinstance(explain(ssl.SSLEOFError(8, "EOF")), LinkLostError)


def test_what_nobody_foresaw_keeps_its_name() -> None:
    assert str(explain(tls_error("STRANGE_THING"))) == "fails in TLS: strange thing"
