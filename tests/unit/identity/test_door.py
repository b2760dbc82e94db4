import hashlib
import hmac

from swarm.identity.door import PROOF_BYTES, check_door, door_proof
from swarm.ids import PeerId

KEY = b"k" * 32
ONE, TWO = PeerId("a" * 32), PeerId("b" * 32)


def test_proof_is_hmac_sha256_over_both_ids() -> None:
    text = b"fusion-swarm door 1\0" + b"a" * 32 + b">" + b"b" * 32
    proof = door_proof(KEY, prover=ONE, verifier=TWO)
    assert proof == hmac.new(KEY, text, hashlib.sha256).digest()
    assert len(proof) == PROOF_BYTES


def test_proof_is_good_for_its_prover_verifier_and_key_only() -> None:
    proof = door_proof(KEY, prover=ONE, verifier=TWO)
    assert check_door(KEY, proof, prover=ONE, verifier=TWO)
    assert not check_door(KEY, proof, prover=TWO, verifier=ONE)
    assert not check_door(KEY, proof, prover=ONE, verifier=ONE)
    assert not check_door(b"K" * 32, proof, prover=ONE, verifier=TWO)


def test_any_other_bytes_are_no_proof() -> None:
    proof = door_proof(KEY, prover=ONE, verifier=TWO)
    for bit in range(8 * len(proof)):
        changed = bytearray(proof)
        changed[bit // 8] ^= 1 << bit % 8
        assert not check_door(KEY, bytes(changed), prover=ONE, verifier=TWO)
    for other in (b"", proof[:-1], proof + b"\0"):
        assert not check_door(KEY, other, prover=ONE, verifier=TWO)
