"""Rights: what an invite allows its holders (decision D1)."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from swarm.errors import MisuseError


class Right(StrEnum):
    """One right. The value is what ``--may`` takes and what stands in certificates."""

    CONTRIBUTE = "contribute"
    """Give compute, bandwidth and disk to jobs; every invite has it."""
    TRAIN = "train"
    """Publish jobs."""
    ADMIT = "admit"
    """Sign admissions of newcomers; bootstrap nodes need it."""
    ORGANISE = "organise"
    """Cancel any job."""


ALL_RIGHTS: Final = frozenset(Right)
CONTRIBUTE_ONLY: Final = frozenset({Right.CONTRIBUTE})


def parse_rights(values: Iterable[str]) -> frozenset[Right]:
    """The rights named by ``--may`` values, each one name or several with commas; contribute is always in.

    Raises MisuseError with the list of rights for a name that is none.
    """
    names = [name.strip().lower() for value in values for name in value.split(",")]
    known = {right.value: right for right in Right}
    for name in names:
        if name and name not in known:
            raise MisuseError(f"there is no right {name!r}: the rights are {', '.join(known)}")
    return CONTRIBUTE_ONLY | {known[name] for name in names if name}


def encode_rights(rights: frozenset[Right]) -> tuple[str, ...]:
    """The rights by name, sorted: one set has one form."""
    return tuple(sorted(right.value for right in CONTRIBUTE_ONLY | rights))


def decode_rights(names: Iterable[str]) -> frozenset[Right]:
    """The rights among ``names``. A name that a newer version added is left out: it allows nothing here."""
    known = {right.value: right for right in Right}
    return frozenset(known[name] for name in names if name in known)
