from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import FailureError, RemoteProtocolError
from swarm.identity.authority import REVOCATIONS_FILE, Authority
from swarm.identity.membership import Identity
from swarm.identity.revocation_list import MAX_LIST_BYTES, MAX_REVOKED, check_list, sign_list
from swarm.identity.revocations import MAX_LISTS, Revocations
from swarm.identity.terms import InviteId
from swarm.ids import PeerId, base32
from swarm.wire.messages.hello import RevocationNews
from swarm.wire.messages.registry import decode_message, encode_message

ALICE = PeerId("a" * 32)
BOB = PeerId("b" * 32)
INVITE = InviteId("c" * 32)


def revoked(authority: Authority, *peers: PeerId, invites: tuple[InviteId, ...] = (), now: float) -> bytes:
    assert authority.revoke(peers=peers, invites=invites, now=now)
    return authority.revocations.lists[0]


def twin(authority: Authority) -> Authority:
    """Another machine with a copy of the authority's key, which has heard of nothing."""
    return Authority(
        authority._key, authority.certificate, door_key=authority.door_key, public=authority.public
    )


def test_a_list_is_numbered_and_names_everybody_so_far(authority: Authority, now: float) -> None:
    first = check_list(revoked(authority, ALICE, now=now), authority=authority.certificate)
    second = check_list(
        revoked(authority, BOB, invites=(INVITE,), now=now + 9), authority=authority.certificate
    )
    assert (first.number, first.peers, first.invites, first.wall) == (1, {ALICE}, frozenset(), now)
    assert (second.number, second.peers, second.invites, second.wall) == (2, {ALICE, BOB}, {INVITE}, now + 9)
    assert second.supersedes(first)
    assert not first.supersedes(second)


def test_revoking_the_same_again_signs_nothing(authority: Authority, now: float) -> None:
    before = revoked(authority, ALICE, now=now)
    assert not authority.revoke(peers=(ALICE,), invites=(), now=now + 1)
    assert authority.revocations.lists == (before,)


def test_each_list_has_a_key_of_its_own_that_nobody_can_swap(authority: Authority, now: float) -> None:
    lists, keys = [], []
    for peer in (ALICE, BOB):
        lists.append(revoked(authority, peer, now=now))
        keys.append(authority.revocations.epoch_key)
    assert keys[0] != keys[1]
    known = Revocations(authority.certificate)
    assert (known.epoch, known.epoch_key) == (0, b"")
    assert not known.take_key(keys[0])  # nothing commits to it yet
    assert known.learn(lists[1])
    assert not known.take_key(keys[0])
    assert not known.take_key(b"x" * 32)
    assert known.take_key(keys[1])
    assert not known.take_key(keys[1])
    assert (known.epoch, known.epoch_key) == (2, keys[1])


def test_an_older_list_is_no_news(authority: Authority, now: float) -> None:
    first, second = (revoked(authority, peer, now=now) for peer in (ALICE, BOB))
    known = Revocations(authority.certificate)
    assert known.learn(second)
    assert not known.learn(first)
    assert not known.learn(second)
    assert known.number == 2


def test_lists_of_two_copies_of_one_key_add_up_in_any_order(authority: Authority, now: float) -> None:
    other = twin(authority)
    mine, theirs = revoked(authority, ALICE, now=now), revoked(other, BOB, now=now + 1)
    further = revoked(other, PeerId("d" * 32), now=now + 2)
    digests = set()
    for order in permutations((mine, theirs, further)):
        known = Revocations(authority.certificate)
        for data in order:
            known.learn(data)
        assert known.peers == {ALICE, BOB, PeerId("d" * 32)}
        assert known.lists == (further, mine)
        digests.add(known.digest)
    assert len(digests) == 1
    authority.revocations.learn(further)
    joined = revoked(authority, invites=(INVITE,), now=now + 3)
    known.learn(joined)
    assert known.lists == (joined,)
    assert known.number == 3


def test_few_lists_are_kept_however_many_copies_of_the_key_disagree(authority: Authority, now: float) -> None:
    known = Revocations(authority.certificate)
    for number in range(MAX_LISTS + 3):
        known.learn(revoked(twin(authority), PeerId(base32(bytes([number]) * 20)), now=now))
    assert len(known.lists) == MAX_LISTS


def test_who_is_on_a_list_is_told_so(authority: Authority, join: Callable[..., Identity], now: float) -> None:
    one, two, three = join(), join(), join()
    revoked(authority, one.peer, invites=(two.member.invite,), now=now)
    known = authority.revocations
    assert known.sentence(one.member).startswith("the organiser revoked you on 2027-01-15")
    assert known.sentence(two.member).startswith("the organiser revoked your invite on 2027-01-15")
    assert known.sentence(three.member) == ""


def test_a_list_of_another_swarm_or_by_another_key_does_not_hold(authority: Authority, now: float) -> None:
    other = Authority.create("lab", public=False, now=now)
    data = revoked(other, ALICE, now=now)
    with pytest.raises(RemoteProtocolError, match="not signed by this swarm's authority"):
        Revocations(authority.certificate).learn(data)


@given(data=st.data())
def test_no_byte_of_a_list_can_be_changed(data: st.DataObject) -> None:
    authority = Authority.create("lab", public=False, now=1_800_000_000.0)
    good = bytearray(revoked(authority, ALICE, now=1_800_000_000.0))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RemoteProtocolError):
        check_list(bytes(good), authority=authority.certificate)


@given(st.binary(max_size=300))
def test_any_bytes_are_charged_to_their_sender(data: bytes) -> None:
    authority = Authority.create("lab", public=False, now=1_800_000_000.0)
    with pytest.raises(RemoteProtocolError):
        check_list(data, authority=authority.certificate)


def test_a_huge_list_is_not_even_parsed(authority: Authority) -> None:
    with pytest.raises(RemoteProtocolError, match="over the limit"):
        check_list(b"\0" * (MAX_LIST_BYTES + 1), authority=authority.certificate)


def test_the_longest_list_fits(authority: Authority, now: float) -> None:
    ids = [base32(number.to_bytes(20, "big")) for number in range(MAX_REVOKED)]
    half = MAX_REVOKED // 2
    data = revoked(authority, *map(PeerId, ids[:half]), invites=tuple(map(InviteId, ids[half:])), now=now)
    assert len(data) <= MAX_LIST_BYTES
    assert authority.revocations.peers | authority.revocations.invites == set(ids)
    news = RevocationNews(lists=(data,) * MAX_LISTS, epoch_key=b"k" * 32)
    assert decode_message(news.NUMBER, encode_message(news)) == news
    with pytest.raises(FailureError, match=f"at most {MAX_REVOKED} peers"):
        authority.revoke(peers=(PeerId("7" * 32),), invites=(), now=now)
    with pytest.raises(ValueError, match="does not parse"):
        sign_list(
            authority._key,
            number=1,
            peers=frozenset(map(PeerId, [*ids, "7" * 32])),
            invites=frozenset(),
            epoch_key=b"k" * 32,
            now=now,
        )


def test_old_lists_repeated_without_end_cost_no_signatures_and_bounded_memory(
    authority: Authority, now: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [revoked(authority, PeerId(base32(bytes([n]) * 20)), now=now) for n in range(5)]
    known = Revocations(authority.certificate)
    for data in old:
        assert known.learn(data)
    monkeypatch.setattr("swarm.identity.revocations.check_list", None)
    assert not any(known.learn(data) for data in old * 1000)
    monkeypatch.undo()
    monkeypatch.setattr("swarm.identity.revocations.MAX_SEEN", 3)
    for data in old[::-1]:
        known.learn(data)
    assert known.lists == (old[-1],), "what is forgotten to have been seen is still no news"


def test_it_lasts(authority: Authority, tmp_path: Path, now: float) -> None:
    folder = tmp_path / "authorities" / "lab"
    authority.save(folder)
    assert not (folder / REVOCATIONS_FILE).exists()
    revoked(authority, ALICE, now=now)
    again = Authority.load(folder).revocations
    assert again.lists == authority.revocations.lists
    assert (again.epoch, again.epoch_key) == (1, authority.revocations.epoch_key)
    assert Revocations.load(tmp_path / "none", authority=authority.certificate).lists == ()


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\0" * 40])
def test_a_damaged_file_is_named(authority: Authority, tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "revocations.bin"
    path.write_bytes(damage)
    with pytest.raises(FailureError, match=r"revocations\.bin are damaged .*: delete the file"):
        Revocations.load(path, authority=authority.certificate)


def test_a_file_of_another_swarm_is_not_taken(authority: Authority, tmp_path: Path, now: float) -> None:
    other = Authority.create("other", public=False, now=now)
    revoked(other, ALICE, now=now)
    other.revocations.save(tmp_path / "r")
    with pytest.raises(FailureError, match="not signed by this swarm's authority"):
        Revocations.load(tmp_path / "r", authority=authority.certificate)


def test_there_is_one_encoding(authority: Authority, now: float) -> None:
    record, signature = msgspec.msgpack.decode(revoked(authority, ALICE, now=now))
    longer = b"\x92\xc6" + len(record).to_bytes(4, "big") + record + msgspec.msgpack.encode(signature)
    with pytest.raises(RemoteProtocolError, match="one form"):
        check_list(longer, authority=authority.certificate)
