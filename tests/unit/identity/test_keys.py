import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from swarm.errors import FailureError
from swarm.identity.keys import PrivateKey, load_key, save_key, verify
from swarm.ids import peer_id

# RFC 8032, section 7.1, test 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_key_signs_as_rfc_8032_says() -> None:
    key = PrivateKey.from_raw(SEED)
    assert key.public == PUBLIC
    assert key.sign(b"\x72") == SIGNATURE
    assert key.peer == peer_id(PUBLIC)


def test_only_the_exact_signature_of_the_exact_data_verifies() -> None:
    assert verify(PUBLIC, SIGNATURE, b"\x72")
    assert not verify(PUBLIC, SIGNATURE, b"\x73")
    assert not verify(PrivateKey.generate().public, SIGNATURE, b"\x72")
    for index in range(len(SIGNATURE)):
        changed = bytearray(SIGNATURE)
        changed[index] ^= 1
        assert not verify(PUBLIC, bytes(changed), b"\x72")


def test_signature_with_the_group_order_added_does_not_verify() -> None:
    order = 2**252 + 27742317777372353535851937790883648493
    scalar = int.from_bytes(SIGNATURE[32:], "little") + order
    assert not verify(PUBLIC, SIGNATURE[:32] + scalar.to_bytes(32, "little"), b"\x72")


@pytest.mark.parametrize(
    ("public", "signature"), [(b"", SIGNATURE), (PUBLIC, b""), (b"\xff" * 31, b"\0" * 64)]
)
def test_verify_of_wrong_lengths_is_false(public: bytes, signature: bytes) -> None:
    assert not verify(public, signature, b"\x72")


def test_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32"):
        PrivateKey.from_raw(SEED[:31])


def test_printed_key_shows_no_secret() -> None:
    key = PrivateKey.from_raw(SEED)
    assert key.peer in repr(key)
    assert repr(SEED) not in repr(key)
    assert SEED.hex() not in repr(key)


def test_saved_key_loads_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    key = PrivateKey.generate()
    save_key(tmp_path / "key.pem", key)
    assert load_key(tmp_path / "key.pem") == key
    if os.name == "posix":
        assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


def test_damaged_missing_locked_or_other_key_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with pytest.raises(FailureError, match=r"key\.pem"):
        load_key(path)
    save_key(path, PrivateKey.generate())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FailureError, match="damaged"):
        load_key(path)
    other = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(FailureError, match="Ed25519"):
        load_key(path)
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    with pytest.raises(FailureError, match="damaged"):
        load_key(path)
