"""Certificates with a fault, for tests of who is let in."""

from cryptography import x509

from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity


def without_key_identifier(identity: Identity) -> x509.Certificate:
    """The leaf of ``identity``, signed anew without the identifier of its issuer's key."""
    good = x509.load_der_x509_certificate(identity.leaf)
    builder = (
        x509.CertificateBuilder()
        .subject_name(good.subject)
        .issuer_name(good.issuer)
        .public_key(good.public_key())
        .serial_number(good.serial_number)
        .not_valid_before(good.not_valid_before_utc)
        .not_valid_after(good.not_valid_after_utc)
    )
    for extension in good.extensions:
        if not isinstance(extension.value, x509.AuthorityKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(PrivateKey.from_raw(identity.invite.delegate_key).for_certificates(), None)
