"""Signed envelopes: a payload that a member vouches for, with all that is needed to check it (decision D1).

An envelope is a MessagePack array (format, domain, payload, chain, signature). The signature covers the
domain, so that what was signed for one purpose is worth nothing for another; the chain, so that a fellow
holder of an invite, who could make another leaf for the signer's key, cannot change the envelope's bytes; and
the payload. There is one encoding: other bytes with the same meaning are refused, because a job's id is the
hash of its manifest's envelope.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import FailureError, RemoteProtocolError, RemoteRefusalError
from swarm.identity.chain import Chain, Member, check_old_chain
from swarm.identity.keys import SIGNATURE_BYTES, verify
from swarm.identity.membership import Identity
from swarm.identity.profile import MAX_CERTIFICATE_BYTES

Domain = Literal["manifest", "plan", "cancellation", "admission", "outcome"]
MANIFEST: Final = "manifest"
PLAN: Final = "plan"
CANCELLATION: Final = "cancellation"
ADMISSION: Final = "admission"
OUTCOME: Final = "outcome"

MAX_ENVELOPE_BYTES: Final = 900_000
"""Bytes of an envelope: it goes into one message, with room for the rest of that."""
_CONTEXT: Final = b"fusion-swarm envelope 1"

_Certificate = Annotated[bytes, Meta(max_length=MAX_CERTIFICATE_BYTES)]


class _Envelope(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1]
    domain: Domain
    payload: Annotated[bytes, Meta(max_length=MAX_ENVELOPE_BYTES)]
    chain: tuple[_Certificate, _Certificate]
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


_DECODER: Final = msgspec.msgpack.Decoder(_Envelope)


def seal(identity: Identity, domain: Domain, payload: bytes) -> bytes:
    """``payload`` in an envelope signed by ``identity``; the same arguments give the same bytes.

    Raises FailureError where it is larger than any peer takes.
    """
    signature = identity.key.sign(_signed_bytes(domain, payload, identity.chain))
    envelope = _Envelope(format=1, domain=domain, payload=payload, chain=identity.chain, signature=signature)
    data = msgspec.msgpack.encode(envelope)
    if len(data) > MAX_ENVELOPE_BYTES:
        raise FailureError(
            f"the {domain} has {len(data)} bytes signed, and {MAX_ENVELOPE_BYTES} are the most"
        )
    return data


def open_envelope(data: bytes, *, domain: Domain, authority: bytes, now: float) -> tuple[Member, bytes]:
    """Who signed the envelope ``data`` for ``domain`` under ``authority`` (DER), and its payload.

    ``now`` (wall seconds) is when the signer's standing is judged: its authority and invite must be valid
    then and its leaf must have begun. A leaf that has ended since is good, so a stored manifest never goes
    bad (see ``check_old_chain``). Raises RemoteProtocolError, and nothing else, whatever the bytes.
    """
    envelope = _parse(data)
    if msgspec.msgpack.encode(envelope) != data:
        raise RemoteProtocolError("the envelope is not in the one form that it may have")
    if envelope.domain != domain:
        raise RemoteProtocolError(f"the envelope is signed as {envelope.domain}, not as {domain}")
    try:
        member = check_old_chain(envelope.chain, authority, now=now)
    except RemoteRefusalError as error:
        raise RemoteProtocolError(f"the signer of the {domain} is not known: {error}") from None
    if not verify(
        member.public_key, envelope.signature, _signed_bytes(domain, envelope.payload, envelope.chain)
    ):
        raise RemoteProtocolError(f"the signature of the {domain} does not match")
    return member, envelope.payload


def peek_payload(data: bytes) -> bytes:
    """The payload of the envelope ``data``, which anybody may have made.

    For who has to choose whether to check it at all. Raises RemoteProtocolError, whatever the bytes.
    """
    return _parse(data).payload


def _parse(data: bytes) -> _Envelope:
    if len(data) > MAX_ENVELOPE_BYTES:
        raise RemoteProtocolError(f"an envelope of {len(data)} bytes is over the limit")
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the envelope does not parse: {error}") from None


def _signed_bytes(domain: Domain, payload: bytes, chain: Chain) -> bytes:
    """Every part with its length (8 bytes) before it: no two envelopes have the same bytes to sign."""
    parts = (_CONTEXT, domain.encode("ascii"), *chain, payload)
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
