"""Who may ask the status endpoint what. Pure decisions; the server applies them to each request.

Three rules. On a loopback address everybody on the machine may read, but only under a loopback host name: a
page from elsewhere whose name was made to resolve to this machine (DNS rebinding) carries its own name in
``Host``. On any other address reading needs a token, as ``Authorization: Bearer`` or as the password of HTTP
Basic, which is how a browser asks a person for it. Commands under ``/control/`` always need the control
token, as Bearer only, which no other site can make a browser send.
"""

import base64
import binascii
import hmac
import ipaddress
import re
from typing import Final

from msgspec import Struct

CONTROL_PREFIX: Final = "/control/"

_HOST: Final = re.compile(r"\A(?P<name>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?\Z")


class Access(Struct, frozen=True, kw_only=True):
    """How the endpoint is protected. ``control`` also lets its bearer read."""

    loopback: bool
    read: str
    control: str


class Denial(Struct, frozen=True, kw_only=True):
    """A request that is not answered: HTTP status and the sentence for the one who asked."""

    status: int
    sentence: str
    challenge: bool = False
    """True where a token would help, and a browser should ask for it."""


def is_loopback(host: str) -> bool:
    """Whether a server bound to ``host`` can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def judge_request(access: Access, *, path: str, host: str, authorization: str) -> Denial | None:
    """Why a request with these headers is denied; None where it is not."""
    if access.loopback and not is_loopback(_host_name(host)):
        return Denial(status=421, sentence="this endpoint answers only to localhost")
    scheme, _, credentials = authorization.partition(" ")
    bearer = credentials.strip() if scheme.lower() == "bearer" else ""
    if path.startswith(CONTROL_PREFIX):
        if _matches(bearer, access.control):
            return None
        return Denial(status=401, sentence="commands need the control token of the running program's home")
    if access.loopback:
        return None
    token = bearer or _basic_password(scheme, credentials)
    if _matches(token, access.read) or _matches(token, access.control):
        return None
    return Denial(
        status=401,
        sentence="a token is needed: it is in the file status-token of the program's home",
        challenge=True,
    )


def _host_name(host: str) -> str:
    """The name in a ``Host`` header, without the port: a forwarded port may differ from the bound one.

    Empty for what is no host and port at all (RFC 9110, section 7.2).
    """
    match = _HOST.match(host)
    return match["name"] if match is not None else ""


def _basic_password(scheme: str, credentials: str) -> str:
    if scheme.lower() != "basic":
        return ""
    try:
        pair = base64.b64decode(credentials.strip(), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return pair.partition(":")[2]


def _matches(given: str, expected: str) -> bool:
    """Compare in constant time; an empty expected token matches nothing."""
    # Header text may hold lone surrogates where the request was not UTF-8.
    return bool(expected) and hmac.compare_digest(
        given.encode("utf-8", "surrogateescape"), expected.encode("utf-8")
    )
