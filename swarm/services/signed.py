"""Reading what another member signed: who it was, and the record, or the error that charges the sender."""

from typing import TypeVar

import msgspec

from swarm.errors import RemoteProtocolError
from swarm.identity.chain import Member
from swarm.identity.envelope import Domain, open_envelope, peek_payload
from swarm.ids import short
from swarm.services.context import Context

Record = TypeVar("Record")


class RevokedSignerError(RemoteProtocolError):
    """What somebody signed who was revoked. Whoever passed it on may not have heard of that yet."""


def read_signed(
    envelope: bytes, domain: Domain, kind: type[Record], context: Context, *, revoked_too: bool = False
) -> tuple[Member, Record]:
    """The signer and the record in ``envelope``; raises RemoteProtocolError for anything else,
    RevokedSignerError where only the signer's standing is at fault,
    unless ``revoked_too`` takes what was signed by somebody who was revoked since."""
    authority, now = context.identity.authority, context.clock.wall()
    member, payload = open_envelope(envelope, domain=domain, authority=authority, now=now)
    if not revoked_too and context.revocations.sentence(member):
        raise RevokedSignerError(f"the {domain} is signed by peer {short(member.peer)}, who was revoked")
    return member, _decode(payload, domain, kind)


def peek(envelope: bytes, domain: Domain, kind: type[Record]) -> Record:
    """The record in ``envelope``, whoever made it: to drop what is of no use before its signature is checked.

    Raises RemoteProtocolError where there is none in it.
    """
    return _decode(peek_payload(envelope), domain, kind)


def _decode(payload: bytes, domain: Domain, kind: type[Record]) -> Record:
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the {domain} does not parse: {error}") from None
