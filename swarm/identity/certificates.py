"""Certificates: the authority's, an invite's (the delegate) and a peer's (the leaf); X.509 v3, RFC 5280.

::

    authority   self-signed, CA, path length 1, common name: the swarm's name
    delegate    signed by the authority, CA, path length 0, common name: the InviteId, the invite's terms
    leaf        signed by the delegate key, no CA, common name: the PeerId, TLS server and client

Every key is Ed25519. Every certificate has subject and authority key identifiers, without which a strict
check (OpenSSL's X509_STRICT, the default of Python 3.13) and a revocation by key would miss it. A key
identifier is the first 20 bytes of SHA-256 of the key (RFC 7093, method 1): the bytes of the SwarmId,
InviteId or PeerId. The extension with the terms is not critical, because OpenSSL refuses any critical one
that it does not know; ``swarm.identity.profile`` insists on it. Not-before lies a year back, so that TLS lets
clocks pass which are up to that much off: hellos, which come next, name the difference to the hour.
"""

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from swarm.identity.keys import PrivateKey
from swarm.identity.terms import TERMS_OID, InviteTerms, encode_terms, invite_id
from swarm.ids import SHORT_ID_BYTES

AUTHORITY_LIFE: Final = timedelta(days=30 * 365)
"""Life of the authority's and of delegate certificates: joining ends by date, membership does not."""
LEAF_LIFE: Final = timedelta(days=365)
"""Life of a leaf, which its holder renews by itself."""
BACKDATED: Final = timedelta(days=365)
"""How far not-before lies back. It guards nothing: holders date their own leaves."""
SERIAL_BITS: Final = 63


def make_authority(key: PrivateKey, name: str, *, now: float) -> bytes:
    """The self-signed certificate (DER) of the swarm ``name``; ``now`` in wall seconds."""
    builder = _builder(subject=name, issuer=name, key=key.public, now=now, life=AUTHORITY_LIFE)
    return _signed(_as_ca(builder, path_length=1), key)


def make_delegate(
    authority_key: PrivateKey, name: str, *, delegate: bytes, terms: InviteTerms, now: float
) -> bytes:
    """The certificate (DER) of an invite of the swarm ``name``; ``delegate`` is the raw public key."""
    builder = _builder(subject=invite_id(delegate), issuer=name, key=delegate, now=now, life=AUTHORITY_LIFE)
    extension = x509.UnrecognizedExtension(TERMS_OID, encode_terms(terms))
    return _signed(_as_ca(builder, path_length=0).add_extension(extension, critical=False), authority_key)


def make_leaf(delegate_key: PrivateKey, key: PrivateKey, *, now: float) -> bytes:
    """The certificate (DER) of the peer with ``key``, signed with the key of its invite."""
    issuer = invite_id(delegate_key.public)
    builder = (
        _builder(subject=key.peer, issuer=issuer, key=key.public, now=now, life=LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
    )
    return _signed(builder, delegate_key)


def key_identifier(public_key: bytes) -> bytes:
    """The key identifier of a raw public key (RFC 7093, method 1)."""
    return hashlib.sha256(public_key).digest()[:SHORT_ID_BYTES]


def common_name(text: str) -> x509.Name:
    """The name that consists of this common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    *, subject: str, issuer: str, key: bytes, now: float, life: timedelta
) -> x509.CertificateBuilder:
    moment = datetime.fromtimestamp(now, UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(common_name(subject))
        .issuer_name(common_name(issuer))
        .public_key(Ed25519PublicKey.from_public_bytes(key))
        .serial_number(1 + secrets.randbits(SERIAL_BITS))
        .not_valid_before(moment - BACKDATED)
        .not_valid_after(moment + life)
        .add_extension(x509.SubjectKeyIdentifier(key_identifier(key)), critical=False)
    )


def _as_ca(builder: x509.CertificateBuilder, *, path_length: int) -> x509.CertificateBuilder:
    return builder.add_extension(
        x509.BasicConstraints(ca=True, path_length=path_length), critical=True
    ).add_extension(_usage(signs_certificates=True), critical=True)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, issuer: PrivateKey) -> bytes:
    identifier = x509.AuthorityKeyIdentifier(key_identifier(issuer.public), None, None)
    certificate = builder.add_extension(identifier, critical=False).sign(issuer.for_certificates(), None)
    return certificate.public_bytes(Encoding.DER)
