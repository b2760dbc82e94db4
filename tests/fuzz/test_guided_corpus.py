"""Every stored input of every guided target, and a few mutants of each: also where there is no atheris."""

import random
import sys
from pathlib import Path

import pytest

from swarm.errors import RemoteProtocolError
from swarm.wire.messages.registry import MESSAGES, decode_message

sys.path.insert(0, str(Path(__file__).parent))
from guided import MODULES, target_of
from guided_mutation import mutated
from guided_target import CORPUS, stored
from guided_wire import number_of

MUTANTS = 200


@pytest.mark.parametrize("name", MODULES)
def test_stored_inputs_and_mutants_of_them_are_read_or_refused(name: str) -> None:
    target, inputs, chance = target_of(name), stored(name), random.Random(1)
    for data in inputs:
        target.parse(data)
    for _ in range(MUTANTS):
        data = chance.choice(inputs)
        if target.packed is not None:
            data = mutated(data, target.packed, chance) or data
        at = chance.randrange(len(data) + 1)
        target.parse(data)
        target.parse(data[:at])
        target.parse(data[:at] + chance.randbytes(1) + data[at + 1 :])


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(MODULES)
    assert all(stored(name) for name in MODULES)


def test_the_corpus_has_a_good_message_of_every_number() -> None:
    good = set()
    for data in stored("messages"):
        number = number_of(data[0])
        try:
            decode_message(number, data[1:])
        except RemoteProtocolError:
            continue
        good.add(number)
    assert good == set(MESSAGES)
