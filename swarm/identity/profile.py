"""Reading certificates: each must be exactly what ``swarm.identity.certificates`` makes, or it is refused.

A reader checks the form of one certificate by itself (key type, signature algorithm, names, extensions, key
identifiers); ``swarm.identity.chain`` checks how three of them hang together. Both raise RemoteRefusalError
with the code ``bad-certificate`` and nothing else, whatever the bytes.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from swarm.errors import LocalError, RemoteRefusalError
from swarm.identity.certificates import key_identifier
from swarm.identity.keys import verify
from swarm.identity.terms import TERMS_OID, InviteTerms, decode_terms, invite_id
from swarm.ids import peer_id

BAD_CERTIFICATE: Final = "bad-certificate"
MAX_CERTIFICATE_BYTES: Final = 2048
"""Bytes of one DER certificate; ours have about 450."""
MAX_NAME_BYTES: Final = 64
"""Bytes of a swarm's name in UTF-8: the bound of a common name (RFC 5280, appendix A.1)."""

_PARSE_ERRORS: Final = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    UserWarning,
)
"""What cryptography raises on bytes that are no certificate, or on one of a kind that it does not know.

It only warns of some faults (a serial number below 1, a country of other than two letters), which is an error
in processes where warnings are; each of them is refused further down as well.
"""

_ED25519_SIGNATURE_FOLLOWS: Final = bytes.fromhex("300506032b6570" + "034100")
"""DER of the algorithm Ed25519, and of a bit string of 64 bytes without unused bits.

cryptography takes a count of unused bits that happen to be zero, a part of the certificate that nobody signs;
so two encodings would be one certificate.
"""

ExtensionT = TypeVar("ExtensionT", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What the checks use of one certificate. Times are wall seconds; key identifiers are 20 bytes."""

    subject: str
    issuer: str
    public_key: bytes
    issuer_identifier: bytes
    begins: float
    ends: float
    signed: bytes
    signature: bytes

    def is_signed_by(self, issuer: "Certificate") -> bool:
        """Whether the key of ``issuer`` signed this certificate, which also names it as its issuer."""
        return (
            self.issuer == issuer.subject
            and self.issuer_identifier == key_identifier(issuer.public_key)
            and verify(issuer.public_key, self.signature, self.signed)
        )


@lru_cache(maxsize=64)
def read_authority(der: bytes) -> Certificate:
    """The certificate of an authority: self-signed, CA, with the swarm's name."""
    what = "the authority's certificate"
    x, certificate = _read(der, what)
    _require_ca(x, what, path_length=1)
    if not is_swarm_name(certificate.subject):
        raise _bad(what, "has a name that no swarm may have")
    if not certificate.is_signed_by(certificate):
        raise _bad(what, "is not signed by its own key")
    return certificate


def read_delegate(der: bytes) -> tuple[Certificate, InviteTerms]:
    """The certificate of an invite, and the terms in it. Who signed it is not checked here."""
    what = "the invite's certificate"
    x, certificate = _read(der, what)
    _require_ca(x, what, path_length=0)
    if certificate.subject != invite_id(certificate.public_key):
        raise _bad(what, "is not named after its key")
    try:
        terms = x.extensions.get_extension_for_oid(TERMS_OID).value
    except x509.ExtensionNotFound:
        raise _bad(what, "lacks the invite's terms") from None
    if not isinstance(terms, x509.UnrecognizedExtension):
        raise LocalError("cryptography has come to know our private extension")
    try:
        return certificate, decode_terms(terms.value)
    except ValueError as error:
        raise _bad(what, f"is no invite: {error}") from None


def read_leaf(der: bytes) -> Certificate:
    """The certificate of a peer. Who signed it is not checked here."""
    what = "the peer's certificate"
    x, certificate = _read(der, what)
    constraints = _extension(x, x509.BasicConstraints, what, critical=True)
    usage = _extension(x, x509.KeyUsage, what, critical=True)
    purposes = _extension(x, x509.ExtendedKeyUsage, what, critical=False)
    if constraints.ca or not usage.digital_signature or usage.key_cert_sign:
        raise _bad(what, "is not that of a peer but of a signer of certificates")
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} <= set(purposes):
        raise _bad(what, "is not for both sides of a TLS connection")
    if certificate.subject != peer_id(certificate.public_key):
        raise _bad(what, "is not named after its key")
    return certificate


def is_swarm_name(name: str) -> bool:
    """Whether a swarm may have this name: letters and digits, and ``.``, ``_``, ``-`` between them.

    So it can be typed without quotes, be a folder's name everywhere, and hide nothing on a screen.
    """
    return (
        bool(name)
        and name[0].isalnum()
        and name[-1].isalnum()
        and all(character.isalnum() or character in "._-" for character in name)
        and len(name.encode()) <= MAX_NAME_BYTES
    )


def _read(der: bytes, what: str) -> tuple[x509.Certificate, Certificate]:
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise _bad(what, f"has {len(der)} bytes, and {MAX_CERTIFICATE_BYTES} are the most")
    try:
        x = x509.load_der_x509_certificate(der)
        key = x.public_key()
        before_signature = der[: -len(x.signature)]
        if not isinstance(key, Ed25519PublicKey) or not before_signature.endswith(_ED25519_SIGNATURE_FOLLOWS):
            raise _bad(what, "is not made with Ed25519")
        if x.serial_number <= 0:
            raise _bad(what, "has a serial number that is not positive")
        _require_known_extensions(x, what)
        certificate = Certificate(
            subject=_common_name(x.subject, what),
            issuer=_common_name(x.issuer, what),
            public_key=key.public_bytes_raw(),
            issuer_identifier=_issuer_identifier(x, what),
            begins=x.not_valid_before_utc.timestamp(),
            ends=x.not_valid_after_utc.timestamp(),
            signed=x.tbs_certificate_bytes,
            signature=x.signature,
        )
    except _PARSE_ERRORS as error:
        raise _bad(what, f"does not parse ({type(error).__name__})") from None
    subject_identifier = _extension(x, x509.SubjectKeyIdentifier, what, critical=False)
    if subject_identifier.key_identifier != key_identifier(certificate.public_key):
        raise _bad(what, "has the key identifier of another key")
    return x, certificate


def _require_known_extensions(x: x509.Certificate, what: str) -> None:
    known = (x509.BasicConstraints, x509.KeyUsage)
    for extension in x.extensions:
        if extension.critical and not isinstance(extension.value, known):
            raise _bad(what, f"has a critical extension that is unknown here ({extension.oid.dotted_string})")


def _require_ca(x: x509.Certificate, what: str, *, path_length: int) -> None:
    constraints = _extension(x, x509.BasicConstraints, what, critical=True)
    usage = _extension(x, x509.KeyUsage, what, critical=True)
    if not constraints.ca or constraints.path_length != path_length or not usage.key_cert_sign:
        raise _bad(what, f"may not sign certificates with a path length of {path_length}")


def _extension(x: x509.Certificate, kind: type[ExtensionT], what: str, *, critical: bool) -> ExtensionT:
    try:
        extension = x.extensions.get_extension_for_class(kind)
    except x509.ExtensionNotFound:
        raise _bad(what, f"lacks the extension {_words(kind)}") from None
    if extension.critical != critical:
        raise _bad(what, f"has the extension {_words(kind)} with the wrong criticality")
    return extension.value


def _words(kind: type[x509.ExtensionType]) -> str:
    """The name of the extension as people write it: ``authority key identifier``."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()


def _issuer_identifier(x: x509.Certificate, what: str) -> bytes:
    identifier = _extension(x, x509.AuthorityKeyIdentifier, what, critical=False).key_identifier
    if identifier is None:
        raise _bad(what, "lacks the key identifier of its issuer")
    return identifier


def _common_name(name: x509.Name, what: str) -> str:
    attributes = list(name)
    if len(attributes) == 1 and attributes[0].oid == NameOID.COMMON_NAME:
        value = attributes[0].value
        if isinstance(value, str):
            return value
    raise _bad(what, "has a name that is not one common name")


def _bad(what: str, sentence: str) -> RemoteRefusalError:
    return RemoteRefusalError(BAD_CERTIFICATE, f"{what} {sentence}")
