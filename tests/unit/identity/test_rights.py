import pytest

from swarm.errors import MisuseError
from swarm.identity.rights import CONTRIBUTE_ONLY, Right, decode_rights, encode_rights, parse_rights


@pytest.mark.parametrize(
    ("values", "rights"),
    [
        ([], {Right.CONTRIBUTE}),
        (["train"], {Right.CONTRIBUTE, Right.TRAIN}),
        (["train,admit"], {Right.CONTRIBUTE, Right.TRAIN, Right.ADMIT}),
        ([" Train , ", "organise"], {Right.CONTRIBUTE, Right.TRAIN, Right.ORGANISE}),
    ],
)
def test_may_takes_names_in_any_arrangement_and_contribute_is_always_in(
    values: list[str], rights: set[Right]
) -> None:
    assert parse_rights(values) == rights


def test_unknown_right_is_refused_with_the_list() -> None:
    with pytest.raises(MisuseError, match=r"'rule'.*contribute, train, admit, organise"):
        parse_rights(["train,rule"])


def test_one_set_of_rights_has_one_encoding() -> None:
    assert encode_rights(frozenset({Right.TRAIN, Right.ADMIT})) == ("admit", "contribute", "train")
    assert encode_rights(frozenset()) == ("contribute",)
    assert decode_rights(encode_rights(frozenset(Right))) == frozenset(Right)


def test_right_of_a_newer_version_allows_nothing_here() -> None:
    assert decode_rights(("contribute", "fly")) == CONTRIBUTE_ONLY
