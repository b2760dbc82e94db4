"""What went wrong in a TLS handshake, in words that a person can act on (decision D1)."""

import ssl
from typing import Final

from swarm.errors import LinkLostError, RemoteError, RemoteProtocolError, RemoteRefusalError

_X509_NOT_YET_VALID: Final = 9
_X509_EXPIRED: Final = 10
_X509_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
"""Verification results of OpenSSL (``openssl/x509_vfy.h``): no issuer known, or a self-signed one."""

_CLOCKS: Final = "check the clocks of both machines"
_NEW_INVITE: Final = "ask for a new invite"
_NEW_HOME: Final = "join again with --invite and another --name"
_REFUSALS: Final = {
    "UNKNOWN_CA": ("wrong-swarm", "it belongs to another swarm than this peer's invite"),
    "CERTIFICATE_REQUIRED": ("bad-certificate", "it wants a certificate, and was shown none"),
    "CERTIFICATE_EXPIRED": ("clock", f"it finds the certificate expired: {_CLOCKS}"),
    "BAD_CERTIFICATE": ("bad-certificate", f"the certificate is bad: {_CLOCKS}, then {_NEW_INVITE}"),
    "CERTIFICATE_UNKNOWN": ("bad-certificate", f"it does not accept the certificate: {_NEW_INVITE}"),
    "CERTIFICATE_REVOKED": ("revoked", "the certificate is revoked"),
    "UNSUPPORTED_CERTIFICATE": ("bad-certificate", f"it does not know such certificates: {_NEW_INVITE}"),
    "ACCESS_DENIED": ("bad-certificate", f"access denied: {_NEW_INVITE}"),
}
"""By the name of the alert (RFC 8446, section 6.2)."""

_NOT_TLS: Final = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "RECORD_LAYER_FAILURE",
        "UNEXPECTED_MESSAGE",
        "PACKET_LENGTH_TOO_LONG",
        "BAD_PROTOCOL_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
    }
)
_OLD_TLS: Final = frozenset({"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW"})


def explain(error: ssl.SSLError, *, flaw: str = "") -> RemoteError:
    """The error to raise for ``error``; its text has the other side as its subject.

    ``flaw`` is what is wrong with this peer's own certificate, where something is: an alert does not say it.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _our_refusal(error)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return LinkLostError("closed the connection")
    reason = error.reason or ""
    for alert, (code, sentence) in _REFUSALS.items():
        if reason.endswith(f"ALERT_{alert}"):
            told = f"{flaw}: {_NEW_HOME}" if flaw and code == "bad-certificate" else sentence
            return RemoteRefusalError(code, f"refused this peer: {told}")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return RemoteRefusalError("bad-certificate", "showed no certificate")
    if reason in _NOT_TLS:
        return RemoteProtocolError("does not speak TLS: is that the port of another program?")
    if reason in _OLD_TLS:
        return RemoteProtocolError("does not speak TLS 1.3: is that the port of another program?")
    return RemoteProtocolError(f"fails in TLS: {reason.replace('_', ' ').lower() or error}")


def _our_refusal(error: ssl.SSLCertVerificationError) -> RemoteRefusalError:
    if error.verify_code in _X509_UNKNOWN_ISSUER:
        return RemoteRefusalError("wrong-swarm", "belongs to another swarm than this peer's invite")
    if error.verify_code in {_X509_NOT_YET_VALID, _X509_EXPIRED}:
        what = "not valid yet" if error.verify_code == _X509_NOT_YET_VALID else "expired"
        return RemoteRefusalError(
            "clock", f"has a certificate that is {what}: check the clocks of both machines"
        )
    return RemoteRefusalError(
        "bad-certificate", f"has a certificate that does not hold: {error.verify_message}"
    )
