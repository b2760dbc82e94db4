"""TLS 1.3 between members, with strict X.509 checks on both sides.

The standard library judges certificates by the real clock, so these are made for the present.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from swarm.clock import wall
from swarm.identity.authority import Authority
from swarm.identity.keys import PrivateKey, save_key
from swarm.identity.membership import Identity, TlsFiles

DAY = 86_400.0


@pytest.fixture
def now() -> float:
    return wall()


def context(files: TlsFiles, *, server: bool) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_cert_chain(files.chain, files.key)
    made.load_verify_locations(files.authority)
    return made


def shake_hands(client: TlsFiles, server: TlsFiles) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a finished handshake, after one byte each way: TLS 1.3 refuses a client only then."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = context(client, server=False).wrap_bio(to_client, to_server)
    right = context(server, server=True).wrap_bio(to_server, to_client, server_side=True)
    waiting: list[Callable[[], Any]] = [left.do_handshake, right.do_handshake]
    for _ in range(10):
        for step in tuple(waiting):
            try:
                step()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(step)
    assert not waiting
    left.write(b"l")
    right.write(b"r")
    assert (left.read(1), right.read(1)) == (b"r", b"l")
    return left, right


@pytest.fixture
def files_of(tmp_path: Path) -> Callable[[Identity], TlsFiles]:
    def write(identity: Identity) -> TlsFiles:
        folder = tmp_path / identity.peer
        identity.save(folder)
        return identity.tls_files(folder)

    return write


def test_members_shake_hands_under_strict_checks_both_ways(
    join: Callable[..., Identity], files_of: Callable[[Identity], TlsFiles]
) -> None:
    here, there = join(), join(label="other", uses=1)
    left, right = shake_hands(files_of(here), files_of(there))
    assert left.version() == "TLSv1.3"
    assert left.getpeercert(binary_form=True) == there.leaf
    assert right.getpeercert(binary_form=True) == here.leaf


def test_old_members_still_shake_hands_after_renewal(
    join: Callable[..., Identity], files_of: Callable[[Identity], TlsFiles], now: float
) -> None:
    old = join(at=now - 3 * 365 * DAY)
    with pytest.raises(ssl.SSLError, match="expired"):
        shake_hands(files_of(join()), files_of(old))
    shake_hands(files_of(join()), files_of(old.renewed(now=now)))


def test_member_of_another_swarm_of_the_same_name_is_refused(
    join: Callable[..., Identity], files_of: Callable[[Identity], TlsFiles], now: float
) -> None:
    stranger = join(of=Authority.create("lab", public=False, now=now))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(files_of(join()), files_of(stranger))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(files_of(stranger), files_of(join()))


def test_peer_that_a_leaf_certifies_is_refused(
    alice: Identity,
    join: Callable[..., Identity],
    files_of: Callable[[Identity], TlsFiles],
    forger: Any,
    now: float,
) -> None:
    files = files_of(alice)
    mallory = PrivateKey.generate()
    forged = forger.leaf(
        key=mallory.public,
        subject=mallory.peer,
        issuer=alice.peer,
        signer=alice.key,
        begins=now - DAY,
        ends=now + DAY,
    )
    pem = [x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM) for der in (forged, alice.leaf)]
    files.chain.write_bytes(b"".join(pem) + files.chain.read_bytes())
    files.key.unlink()
    save_key(files.key, mallory)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(files_of(join()), files)
