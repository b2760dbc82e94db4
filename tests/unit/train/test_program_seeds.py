import hashlib

import torch

from swarm.ids import OperatorIndex
from swarm.train.program_seeds import Seeds


def test_a_seed_is_the_documented_hash():
    numbers = b"".join(number.to_bytes(8, "little") for number in (5, 7, 2, 11))
    expected = int.from_bytes(hashlib.sha256(b"train\0" + numbers).digest()[:8], "little")
    assert Seeds(job=5, mode="train", step=7, micro_batch=2).of(OperatorIndex(11)) == expected


def test_every_part_of_the_name_changes_the_seed():
    seeds = {
        Seeds(job=job, mode=mode, step=step, micro_batch=batch).of(OperatorIndex(operator))
        for job in (0, 2**63 - 1)
        for mode in ("train", "evaluate")
        for step in (0, 1)
        for batch in (0, 1)
        for operator in (0, 1)
    }
    assert len(seeds) == 32


def test_torch_takes_every_seed():
    generator = torch.Generator()
    for operator in range(200):
        seed = Seeds(job=0, mode="train", step=0, micro_batch=0).of(OperatorIndex(operator))
        assert generator.manual_seed(seed).initial_seed() == seed
