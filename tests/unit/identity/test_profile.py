"""Certificates that are nearly right, one fault each."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from swarm.errors import RemoteRefusalError
from swarm.identity.keys import PrivateKey
from swarm.identity.profile import (
    MAX_CERTIFICATE_BYTES,
    is_swarm_name,
    read_authority,
    read_delegate,
    read_leaf,
)
from swarm.identity.terms import TERMS_OID

ELLIPTIC = ec.generate_private_key(ec.SECP256R1())
NOW = 1_800_000_000.0
UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("2.25.1"), b"x")

Change = Callable[[Any], dict[str, Any]]


def without(part: str) -> Change:
    return lambda kind: {"extensions": {**kind, part: (None, False)}}


def instead(part: str, extension: x509.ExtensionType, *, critical: bool) -> Change:
    return lambda kind: {"extensions": {**kind, part: (extension, critical)}}


def refused(read: Callable[[bytes], object], der: bytes, sentence: str) -> None:
    with pytest.raises(RemoteRefusalError, match=sentence) as caught:
        read(der)
    assert caught.value.code == "bad-certificate"


EVERY_KIND: list[tuple[Change, str]] = [
    (without("ski"), "lacks the extension subject key identifier"),
    (without("aki"), "lacks the extension authority key identifier"),
    (without("constraints"), "lacks the extension basic constraints"),
    (without("usage"), "lacks the extension key usage"),
    (instead("ski", x509.SubjectKeyIdentifier(b"\0" * 20), critical=False), "key identifier of another key"),
    (
        instead("aki", x509.AuthorityKeyIdentifier(None, None, None), critical=False),
        "identifier of its issuer",
    ),
    (instead("more", UNKNOWN, critical=True), "critical extension that is unknown"),
]


@pytest.mark.parametrize(("change", "sentence"), EVERY_KIND)
@pytest.mark.parametrize("kind", ["root", "delegate", "leaf"])
def test_fault_in_any_certificate_is_named(forger: Any, kind: str, change: Change, sentence: str) -> None:
    make = getattr(forger, kind)
    read = {"root": read_authority, "delegate": read_delegate, "leaf": read_leaf}[kind]
    extensions = _extensions(make)
    read(make(extensions=extensions))
    refused(read, make(**change(extensions)), sentence)


def _extensions(make: Callable[..., bytes]) -> dict[str, Any]:
    """The extensions of a good certificate, by the forger's names."""
    names = {
        x509.SubjectKeyIdentifier: "ski",
        x509.AuthorityKeyIdentifier: "aki",
        x509.BasicConstraints: "constraints",
        x509.KeyUsage: "usage",
        x509.ExtendedKeyUsage: "purposes",
        x509.UnrecognizedExtension: "terms",
    }
    found = x509.load_der_x509_certificate(make()).extensions
    return {names[type(extension.value)]: (extension.value, extension.critical) for extension in found}


@pytest.mark.parametrize("kind", ["root", "delegate", "leaf"])
def test_extension_that_must_be_critical_and_is_not_is_refused(forger: Any, kind: str) -> None:
    make = getattr(forger, kind)
    read = {"root": read_authority, "delegate": read_delegate, "leaf": read_leaf}[kind]
    for part in ("constraints", "usage"):
        extensions = _extensions(make)
        extensions[part] = (extensions[part][0], False)
        refused(read, make(extensions=extensions), "wrong criticality")


@pytest.mark.parametrize("kind", ["root", "delegate", "leaf"])
def test_another_kind_of_key_or_signature_is_refused(forger: Any, kind: str) -> None:
    make = getattr(forger, kind)
    read = {"root": read_authority, "delegate": read_delegate, "leaf": read_leaf}[kind]
    refused(read, make(key=ELLIPTIC.public_key()), "Ed25519")
    refused(read, make(signer=ELLIPTIC), "Ed25519")


@pytest.mark.parametrize("kind", ["root", "delegate", "leaf"])
def test_names_other_than_one_common_name_are_refused(forger: Any, kind: str) -> None:
    make = getattr(forger, kind)
    read = {"root": read_authority, "delegate": read_delegate, "leaf": read_leaf}[kind]
    common = x509.NameAttribute(NameOID.COMMON_NAME, "lab")
    refused(read, make(subject=x509.Name([])), "one common name")
    refused(read, make(subject=x509.Name([common, common])), "one common name")
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "lab")
    refused(read, make(subject=x509.Name([organisation])), "one common name")


@pytest.mark.parametrize("path_length", [None, 1, 2])
def test_invite_that_could_make_further_signers_is_refused(forger: Any, path_length: int | None) -> None:
    change = instead("constraints", x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
    refused(read_delegate, forger.delegate(**change(_extensions(forger.delegate))), "path length of 0")


def test_invite_that_may_not_sign_is_refused(forger: Any) -> None:
    extensions = _extensions(forger.delegate)
    leaf = _extensions(forger.leaf)
    for part in ("constraints", "usage"):
        refused(read_delegate, forger.delegate(extensions={**extensions, part: leaf[part]}), "may not sign")


@pytest.mark.parametrize("part", ["constraints", "usage"])
def test_leaf_that_may_sign_is_refused(forger: Any, part: str) -> None:
    signer = _extensions(forger.delegate)[part]
    der = forger.leaf(extensions={**_extensions(forger.leaf), part: signer})
    refused(read_leaf, der, "signer of certificates")


@pytest.mark.parametrize("signature", [False, True])
@pytest.mark.parametrize("certificates", [False, True])
def test_leaf_signs_data_and_no_certificates(forger: Any, signature: bool, certificates: bool) -> None:
    mixed = x509.KeyUsage(
        digital_signature=signature,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    der = forger.leaf(**instead("usage", mixed, critical=True)(_extensions(forger.leaf)))
    if signature and not certificates:
        assert read_leaf(der).public_key == forger.key.public
    else:
        refused(read_leaf, der, "signer of certificates")


@pytest.mark.parametrize("purpose", [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
def test_leaf_for_one_side_only_is_refused(forger: Any, purpose: ObjectIdentifier) -> None:
    change = instead("purposes", x509.ExtendedKeyUsage([purpose]), critical=False)
    refused(read_leaf, forger.leaf(**change(_extensions(forger.leaf))), "both sides")
    refused(read_leaf, forger.leaf(**without("purposes")(_extensions(forger.leaf))), "extended key usage")


def test_certificate_named_after_another_key_is_refused(forger: Any) -> None:
    refused(read_leaf, forger.leaf(subject=PrivateKey.generate().peer), "not named after its key")
    refused(read_delegate, forger.delegate(subject="invite"), "not named after its key")


def test_invite_without_terms_or_with_bad_ones_is_refused(forger: Any) -> None:
    extensions = _extensions(forger.delegate)
    refused(read_delegate, forger.delegate(**without("terms")(extensions)), "lacks the invite's terms")
    change = instead("terms", x509.UnrecognizedExtension(TERMS_OID, b"\x90"), critical=False)
    refused(read_delegate, forger.delegate(**change(extensions)), "is no invite")


def test_unknown_extension_that_is_not_critical_is_passed_over(forger: Any) -> None:
    change = instead("more", UNKNOWN, critical=False)
    assert read_leaf(forger.leaf(**change(_extensions(forger.leaf)))).public_key == forger.key.public


def test_authority_signed_by_another_key_is_refused(forger: Any) -> None:
    refused(read_authority, forger.root(signer=PrivateKey.generate()), "not signed by its own key")
    refused(read_authority, forger.root(issuer="other"), "not signed by its own key")
    refused(
        read_authority, forger.root(subject="two words", issuer="two words"), "name that no swarm may have"
    )


@pytest.mark.parametrize("der", [b"", b"0", b"\x30\x80", b"\0" * 400])
def test_bytes_that_are_no_certificate_are_refused(der: bytes) -> None:
    for read in (read_authority, read_delegate, read_leaf):
        refused(read, der, "does not parse")


def test_oversized_and_padded_certificates_are_refused(forger: Any) -> None:
    refused(read_leaf, b"\0" * (MAX_CERTIFICATE_BYTES + 1), "bytes, and 2048 are the most")
    refused(read_leaf, forger.leaf() + b"\0", "does not parse")


def test_second_encoding_of_one_certificate_is_refused(forger: Any) -> None:
    """Where the signature ends in zero bits, a bit string may claim not to use them."""
    ends = (NOW + second for second in range(300))
    der = next(der for end in ends if (der := forger.leaf(ends=end))[-1] % 8 == 0)
    assert der[-67:-64] == b"\x03\x41\x00"
    read_leaf(der)
    for unused in (1, 2, 3):
        refused(read_leaf, der[:-65] + bytes([unused]) + der[-64:], "Ed25519")


@pytest.mark.parametrize("serial", [0, -1])
def test_serial_number_that_is_not_positive_is_refused(forger: Any, serial: int) -> None:
    """RFC 5280, section 4.1.2.2; cryptography only warns of it."""
    good = forger.leaf()
    assert good.count(b"\x02\x01\x07") == 1
    bad = good.replace(b"\x02\x01\x07", b"\x02\x01" + serial.to_bytes(1, "big", signed=True))
    refused(read_leaf, bad, "does not parse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(read_leaf, bad, "serial number")


def test_name_that_cryptography_warns_of_is_refused_either_way(forger: Any) -> None:
    good = forger.leaf()
    subject = bytes.fromhex("0603550403")
    country = bytes.fromhex("0603550406")
    assert good.count(subject) == 2
    bad = good.replace(subject, country)
    refused(read_leaf, bad, "does not parse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(read_leaf, bad, "one common name")


@pytest.mark.parametrize("name", ["lab", "a", "friends-of.gpt_2", "große-runde", "x" * 64, "研究室"])
def test_names_that_a_swarm_may_have(name: str) -> None:
    assert is_swarm_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 65,
        "é" * 33,
        "two words",
        "-lab",
        "lab-",
        ".",
        "..",
        "../lab",
        "a/b",
        "a\\b",
        "a\nb",
        "a\u202eb",
        "\ud800",
    ],
)
def test_names_that_no_swarm_may_have(name: str) -> None:
    assert not is_swarm_name(name)
