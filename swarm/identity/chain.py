"""Who a chain of certificates says a peer is, checked in full by our own code (decision D1).

TLS has checked the same certificates before, but it accepts a leaf without authority key identifier and knows
nothing of invites; and signed envelopes carry chains that no TLS has ever seen.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from swarm.errors import RemoteRefusalError
from swarm.identity.certificates import key_identifier
from swarm.identity.profile import (
    BAD_CERTIFICATE,
    Certificate,
    is_swarm_name,
    read_authority,
    read_delegate,
    read_leaf,
)
from swarm.identity.rights import Right
from swarm.identity.terms import InviteId, InviteTerms, invite_id
from swarm.ids import PeerId, SwarmId, base32, peer_id, short, swarm_id

Chain = tuple[bytes, bytes]
"""Delegate and leaf, DER."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A peer of a swarm, as its chain proves. ``uses`` and ``join_by`` as in InviteTerms."""

    peer: PeerId
    public_key: bytes
    swarm: SwarmId
    invite: InviteId
    label: str
    uses: int
    join_by: int
    rights: frozenset[Right]
    public: bool

    def may(self, right: Right) -> bool:
        """Whether the peer's invite allows ``right``."""
        return right in self.rights


def check_chain(chain: Chain, authority: bytes, *, now: float) -> Member:
    """The member that ``chain`` proves under ``authority`` (DER) at ``now``, in wall seconds.

    It does not prove that who sent the chain has the peer's key: TLS or a signature does.

    Raises RemoteRefusalError: ``wrong-swarm`` for a chain of another swarm, ``unknown-authority`` for one of
    another swarm with our swarm's name, ``bad-certificate`` for what is malformed or forged, ``clock`` for
    what is not valid yet or no longer.
    """
    root, delegate, leaf, terms = read_chain(chain, authority)
    for certificate, what in ((root, "authority"), (delegate, "invite"), (leaf, "peer")):
        require_valid(certificate, what, now=now)
    return member_of(root, delegate, leaf, terms)


def check_old_chain(chain: Chain, authority: bytes, *, now: float) -> Member:
    """As :func:`check_chain`, but an expired leaf is still good: for signatures that outlive it.

    A leaf's end protects nothing that was signed, for its holder renews it alone; it only makes programs
    prove now and then that they still run. Who has to go is revoked.
    """
    root, delegate, leaf, terms = read_chain(chain, authority)
    require_valid(root, "authority", now=now)
    require_valid(delegate, "invite", now=now)
    require_valid(leaf, "peer", now=min(now, leaf.ends))
    return member_of(root, delegate, leaf, terms)


def read_chain(chain: Chain, authority: bytes) -> tuple[Certificate, Certificate, Certificate, InviteTerms]:
    """Authority, delegate, leaf and terms, with all that does not depend on time checked."""
    root = read_authority(authority)
    delegate, terms = read_delegate(chain[0])
    leaf = read_leaf(chain[1])
    require_issued(delegate, root)
    if not leaf.is_signed_by(delegate):
        raise RemoteRefusalError(
            BAD_CERTIFICATE, "the peer's certificate is not signed with its invite's key"
        )
    if leaf.public_key in {delegate.public_key, root.public_key}:
        raise RemoteRefusalError(BAD_CERTIFICATE, "the peer uses the key of its invite as its own")
    return root, delegate, leaf, terms


def require_issued(delegate: Certificate, root: Certificate) -> None:
    """Raise RemoteRefusalError unless the authority ``root`` signed ``delegate``."""
    if delegate.issuer_identifier != key_identifier(root.public_key):
        theirs, ours = short(base32(delegate.issuer_identifier)), short(swarm_id(root.public_key))
        if delegate.issuer == root.subject:
            raise RemoteRefusalError(
                "unknown-authority",
                f"there are two swarms of the name {root.subject}: the invite is of {theirs}, not of {ours}",
            )
        name = f"{delegate.issuer} ({theirs})" if is_swarm_name(delegate.issuer) else theirs
        raise RemoteRefusalError(
            "wrong-swarm", f"the invite is of the swarm {name}, and this is {root.subject} ({ours})"
        )
    if not delegate.is_signed_by(root):
        raise RemoteRefusalError(BAD_CERTIFICATE, "the invite is forged: its authority did not sign it")


def require_valid(certificate: Certificate, what: str, *, now: float) -> None:
    """Raise RemoteRefusalError ``clock`` unless the certificate is valid at ``now``; says both times."""
    if certificate.begins <= now <= certificate.ends:
        return
    state = "not valid before" if now < certificate.begins else "no longer valid since"
    bound = certificate.begins if now < certificate.begins else certificate.ends
    raise RemoteRefusalError(
        "clock",
        f"the {what}'s certificate is {state} {show_time(bound, seconds=True)}, and the clock that judged it "
        f"says {show_time(now, seconds=True)}: check the clocks of both machines",
    )


def member_of(root: Certificate, delegate: Certificate, leaf: Certificate, terms: InviteTerms) -> Member:
    """The member that these checked certificates describe."""
    return Member(
        peer=peer_id(leaf.public_key),
        public_key=leaf.public_key,
        swarm=swarm_id(root.public_key),
        invite=invite_id(delegate.public_key),
        label=terms.label,
        uses=terms.uses,
        join_by=terms.join_by,
        rights=terms.rights,
        public=terms.public,
    )


def show_time(wall: float, *, seconds: bool = False) -> str:
    """Wall seconds as people read them; with ``seconds`` where two that may be close are compared."""
    try:
        return datetime.fromtimestamp(wall, UTC).strftime(f"%Y-%m-%d %H:%M{':%S' if seconds else ''} UTC")
    except (ValueError, OverflowError, OSError):
        return f"{wall:.0f} s after 1970"
