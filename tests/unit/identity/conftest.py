"""A swarm, some of its members, and a forger that can make any certificate but the ones it lacks keys for."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from swarm.identity.authority import Authority
from swarm.identity.certificates import key_identifier
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS, CONTRIBUTE_ONLY
from swarm.identity.terms import TERMS_OID, InviteTerms, door_digest, encode_terms, invite_id

NOW = 1_800_000_000.0
DAY = 86_400.0


class Forger:
    """Makes certificates of any form. Defaults are those of the real ones; ``changes`` replace them."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.root_key = authority._key
        self.delegate_key = PrivateKey.generate()
        self.key = PrivateKey.generate()

    def terms(self, **changes: Any) -> InviteTerms:
        fields: dict[str, Any] = {
            "label": "forged",
            "uses": 0,
            "join_by": 0,
            "rights": CONTRIBUTE_ONLY,
            "public": False,
            "door": door_digest(self.authority.door_key),
        }
        return InviteTerms(**fields | changes)

    def root(self, **changes: Any) -> bytes:
        return self.certificate(
            **{
                "key": self.root_key.public,
                "subject": "lab",
                "issuer": "lab",
                "signer": self.root_key,
                "extensions": ca_extensions(1),
            }
            | changes
        )

    def delegate(self, **changes: Any) -> bytes:
        terms = x509.UnrecognizedExtension(TERMS_OID, encode_terms(self.terms()))
        return self.certificate(
            **{
                "key": self.delegate_key.public,
                "subject": invite_id(self.delegate_key.public),
                "issuer": "lab",
                "signer": self.root_key,
                "extensions": {**ca_extensions(0), "terms": (terms, False)},
            }
            | changes
        )

    def leaf(self, **changes: Any) -> bytes:
        return self.certificate(
            **{
                "key": self.key.public,
                "subject": self.key.peer,
                "issuer": invite_id(self.delegate_key.public),
                "signer": self.delegate_key,
                "extensions": leaf_extensions(),
            }
            | changes
        )

    def certificate(
        self,
        *,
        key: Any,
        subject: str | x509.Name,
        issuer: str,
        signer: Any,
        extensions: dict[str, tuple[x509.ExtensionType, bool]],
        begins: float = NOW - DAY,
        ends: float = NOW + 365 * DAY,
    ) -> bytes:
        public = Ed25519PublicKey.from_public_bytes(key) if isinstance(key, bytes) else key
        raw = key if isinstance(key, bytes) else b"\0" * 32
        signing = signer.for_certificates() if isinstance(signer, PrivateKey) else signer
        signer_raw = signer.public if isinstance(signer, PrivateKey) else b"\0" * 32
        identifiers: dict[str, tuple[x509.ExtensionType, bool]] = {
            "ski": (x509.SubjectKeyIdentifier(key_identifier(raw)), False),
            "aki": (x509.AuthorityKeyIdentifier(key_identifier(signer_raw), None, None), False),
        }
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject if isinstance(subject, x509.Name) else name(subject))
            .issuer_name(name(issuer))
            .public_key(public)
            .serial_number(7)
            .not_valid_before(datetime.fromtimestamp(begins, UTC))
            .not_valid_after(datetime.fromtimestamp(ends, UTC))
        )
        for extension, critical in (identifiers | extensions).values():
            if extension is not None:
                builder = builder.add_extension(extension, critical)
        algorithm = None if isinstance(signer, PrivateKey) else SHA256()
        return builder.sign(signing, algorithm).public_bytes(Encoding.DER)


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def ca_extensions(path_length: int | None) -> dict[str, Any]:
    return {
        "constraints": (x509.BasicConstraints(ca=True, path_length=path_length), True),
        "usage": (usage(signs=True), True),
    }


def leaf_extensions() -> dict[str, Any]:
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return {
        "constraints": (x509.BasicConstraints(ca=False, path_length=None), True),
        "usage": (usage(signs=False), True),
        "purposes": (x509.ExtendedKeyUsage(purposes), False),
    }


@pytest.fixture
def now() -> float:
    return NOW


@pytest.fixture
def authority(now: float) -> Authority:
    return Authority.create("lab", public=False, now=now)


@pytest.fixture
def forger(authority: Authority) -> Forger:
    return Forger(authority)


@pytest.fixture
def invite(authority: Authority, now: float) -> Invite:
    """Alice's: one use, a week to join, may train."""
    return authority.issue(
        label="alice",
        uses=1,
        join_by=now + 7 * DAY,
        rights=ALL_RIGHTS,
        addresses=("203.0.113.5:7423", "[2001:db8::5]:7423"),
        now=now,
    )


@pytest.fixture
def join(authority: Authority, now: float) -> Callable[..., Identity]:
    """Makes a member by an invite of its own."""

    def make(*, at: float = now, of: Authority = authority, **terms: Any) -> Identity:
        invite = of.issue(**{"label": "member", "rights": CONTRIBUTE_ONLY} | terms, now=at)
        return Identity.join(invite, key=PrivateKey.generate(), now=at)

    return make


@pytest.fixture
def alice(invite: Invite, now: float) -> Identity:
    return Identity.join(invite, key=PrivateKey.generate(), now=now)
