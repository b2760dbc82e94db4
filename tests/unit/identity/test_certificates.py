from cryptography import x509

from swarm.identity.certificates import key_identifier
from swarm.identity.membership import Identity
from swarm.identity.terms import TERMS_OID
from swarm.ids import base32

DAY = 86_400.0


def test_chain_is_issued_as_cryptography_sees_it(alice: Identity) -> None:
    root, delegate, leaf = (
        x509.load_der_x509_certificate(der) for der in (alice.authority, alice.invite.delegate, alice.leaf)
    )
    root.verify_directly_issued_by(root)
    delegate.verify_directly_issued_by(root)
    leaf.verify_directly_issued_by(delegate)
    lengths = [
        c.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length
        for c in (root, delegate)
    ]
    assert lengths == [1, 0]
    assert not delegate.extensions.get_extension_for_oid(TERMS_OID).critical


def test_key_identifiers_are_the_bytes_of_the_ids(alice: Identity) -> None:
    assert base32(key_identifier(alice.key.public)) == alice.peer
    for der, subject, issuer in (
        (alice.authority, alice.swarm, alice.swarm),
        (alice.invite.delegate, alice.invite.id, alice.swarm),
        (alice.leaf, alice.peer, alice.invite.id),
    ):
        extensions = x509.load_der_x509_certificate(der).extensions
        theirs = extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.key_identifier
        above = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        assert above is not None
        assert (base32(theirs), base32(above)) == (subject, issuer)


def test_lives_are_thirty_years_and_one_and_begin_a_year_back(alice: Identity, now: float) -> None:
    for der, days in ((alice.authority, 30 * 365), (alice.invite.delegate, 30 * 365), (alice.leaf, 365)):
        certificate = x509.load_der_x509_certificate(der)
        assert certificate.not_valid_before_utc.timestamp() == now - 365 * DAY
        assert certificate.not_valid_after_utc.timestamp() == now + days * DAY


def test_certificates_are_small(alice: Identity) -> None:
    assert max(len(der) for der in (alice.authority, *alice.chain)) < 600
