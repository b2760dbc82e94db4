import struct
from collections.abc import Iterator
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from swarm.dht import seal
from swarm.dht.limits import MAX_AGE_SECONDS, MAX_DATAGRAM_BYTES, MAX_SENDERS
from swarm.dht.seal import MAX_BODY_BYTES, Envelope, Opened, Refused, Sealer, Suite
from swarm.errors import LocalError, RemoteProtocolError
from swarm.testing.clock import ManualClock

ONE, OTHER = bytes([1] * 20), bytes([2] * 20)
KEY, NEXT_KEY = bytes(range(32)), bytes(range(32, 64))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def sealer(clock: ManualClock, node: bytes = ONE, **options: tuple[Suite, ...]) -> Sealer:
    made = Sealer(node, clock=clock, **options)
    made.set_epoch(1, KEY)
    return made


@pytest.mark.parametrize("suite", Suite)
def test_what_a_member_seals_another_opens(clock: ManualClock, suite: Suite) -> None:
    sender = sealer(clock)
    envelope = Envelope(epoch=1, suite=suite)
    opened = sealer(clock, OTHER).open(sender.seal(b"hello", envelope))
    assert opened == Opened(sender=ONE, boot=sender.boot, envelope=envelope, body=b"hello")


def test_the_bytes_are_as_documented(clock: ManualClock) -> None:
    """Opened by hand, from the layout and the two RFCs named in the module."""
    sender = sealer(clock)
    datagram = sender.seal(b"hello", Envelope(epoch=1, suite=Suite.CHACHA20_POLY1305))
    suite, epoch, node, boot, counter, stamp = struct.unpack(">BQ20s8sQQ", datagram[:53])
    assert (suite, epoch, node, boot, counter) == (2, 1, ONE, sender.boot, 1)
    assert stamp == int(clock.wall() * 1000)
    info = b"fusion-swarm dht datagram 1\0" + b"\2" + ONE + boot
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(KEY)
    nonce = bytes(4) + counter.to_bytes(8, "big")
    assert ChaCha20Poly1305(key).decrypt(nonce, datagram[53:], datagram[:53]) == b"hello"


def test_any_changed_bit_is_noise(clock: ManualClock) -> None:
    datagram = sealer(clock).seal(b"hi", sealer(clock).best(None))
    for position in range(len(datagram) * 8):
        changed = bytearray(datagram)
        changed[position // 8] ^= 1 << position % 8
        assert isinstance(sealer(clock, OTHER).open(bytes(changed)), Refused)


def test_another_epoch_key_opens_nothing(clock: ManualClock) -> None:
    stranger = Sealer(OTHER, clock=clock)
    stranger.set_epoch(1, NEXT_KEY)
    member = sealer(clock)
    assert stranger.open(member.seal(b"", member.best(None))) is Refused.TAG
    assert member.open(stranger.seal(b"", stranger.best(None))) is Refused.TAG


def test_a_datagram_counts_once(clock: ManualClock) -> None:
    sender, receiver = sealer(clock), sealer(clock, OTHER)
    datagram = sender.seal(b"", sender.best(None))
    assert isinstance(receiver.open(datagram), Opened)
    assert receiver.open(datagram) is Refused.SEEN


@given(st.permutations(range(12)), st.integers(0, 11))
def test_datagrams_may_overtake_each_other_and_still_count_once(order: list[int], repeated: int) -> None:
    clock = ManualClock()
    sender, receiver = sealer(clock), sealer(clock, OTHER)
    datagrams = [sender.seal(bytes([i]), sender.best(None)) for i in range(12)]
    bodies = [receiver.open(datagrams[i]) for i in order]
    assert [opened.body for opened in bodies if isinstance(opened, Opened)] == [bytes([i]) for i in order]
    assert receiver.open(datagrams[repeated]) is Refused.SEEN


@pytest.mark.parametrize("counter", [2**64 - 1, 10, 1])
def test_a_member_that_speaks_in_anothers_name_mutes_nobody(clock: ManualClock, counter: int) -> None:
    sender, impostor, receiver = sealer(clock), sealer(clock), sealer(clock, OTHER)
    impostor.boot, impostor._counter = sender.boot, counter - 1  # type: ignore[misc]
    assert isinstance(receiver.open(impostor.seal(b"", impostor.best(None))), Opened)
    for _ in range(20):
        datagram = sender.seal(b"hello", sender.best(None))
        assert isinstance(receiver.open(datagram), Opened)
        assert receiver.open(datagram) is Refused.SEEN


def test_what_came_counts_once_for_as_long_as_it_is_fresh(clock: ManualClock) -> None:
    sender, receiver = sealer(clock), sealer(clock, OTHER)
    clock.set_wall(clock.wall() + MAX_AGE_SECONDS)
    ahead = sender.seal(b"", sender.best(None))
    clock.set_wall(clock.wall() - MAX_AGE_SECONDS)
    assert isinstance(receiver.open(ahead), Opened)
    for _ in range(23):
        clock.advance(MAX_AGE_SECONDS / 12)
        assert isinstance(receiver.open(sender.seal(b"", sender.best(None))), Opened)
        assert receiver.open(ahead) is Refused.SEEN
    clock.advance(MAX_AGE_SECONDS)
    assert receiver.open(ahead) is Refused.TIME


def test_what_has_come_is_remembered_within_bounds(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "MAX_SEEN", 10)
    sender, receiver = sealer(clock), sealer(clock, OTHER)
    for _ in range(100):
        datagram = sender.seal(b"", sender.best(None))
        assert isinstance(receiver.open(datagram), Opened)
        assert receiver.open(datagram) is Refused.SEEN
    assert len(receiver._seen._newer) + len(receiver._seen._older) <= 20


@pytest.mark.parametrize("shift", [MAX_AGE_SECONDS + 1, -MAX_AGE_SECONDS - 1])
def test_an_old_one_and_one_from_the_future_are_refused(clock: ManualClock, shift: float) -> None:
    sender, receiver = sealer(clock), sealer(clock, OTHER)
    datagram = sender.seal(b"", sender.best(None))
    clock.set_wall(clock.wall() + shift)
    assert receiver.open(datagram) is Refused.TIME


def test_a_clock_that_is_a_little_off_is_tolerated(clock: ManualClock) -> None:
    sender, receiver = sealer(clock), sealer(clock, OTHER)
    datagram = sender.seal(b"", sender.best(None))
    clock.set_wall(clock.wall() - MAX_AGE_SECONDS + 1)
    assert isinstance(receiver.open(datagram), Opened)


def test_the_two_newest_epochs_are_accepted_and_the_newest_is_used(clock: ManualClock) -> None:
    rotated, late = sealer(clock), sealer(clock, OTHER)
    rotated.set_epoch(2, NEXT_KEY)
    assert rotated.best(None).epoch == 2
    assert isinstance(rotated.open(late.seal(b"", late.best(None))), Opened)
    assert late.open(rotated.seal(b"", rotated.best(None))) is Refused.EPOCH
    heard = Envelope(epoch=1, suite=Suite.CHACHA20_POLY1305)
    assert isinstance(late.open(rotated.seal(b"", rotated.compatible(heard))), Opened)
    rotated.set_epoch(3, KEY)
    assert rotated.open(late.seal(b"", late.best(None))) is Refused.EPOCH
    assert rotated.compatible(heard).epoch == 2


def test_an_older_epoch_does_not_displace_a_newer_one(clock: ManualClock) -> None:
    late = sealer(clock)
    late.set_epoch(5, NEXT_KEY)
    late.set_epoch(4, KEY)
    late.set_epoch(1, KEY)
    assert late.best(None).epoch == 5
    assert late.compatible(None).epoch == 4


def test_the_same_number_with_another_key_replaces_the_key_in_use(clock: ManualClock) -> None:
    one, other = sealer(clock), sealer(clock, OTHER)
    assert isinstance(other.open(one.seal(b"", one.best(None))), Opened)
    one.set_epoch(1, NEXT_KEY)
    assert other.open(one.seal(b"", one.best(None))) is Refused.TAG
    other.set_epoch(1, NEXT_KEY)
    assert isinstance(other.open(one.seal(b"", one.best(None))), Opened)


def test_builds_with_and_without_the_better_suite_reach_each_other(clock: ManualClock) -> None:
    full = sealer(clock, suites=tuple(Suite))
    poor = sealer(clock, OTHER, suites=(Suite.CHACHA20_POLY1305,))
    assert poor.open(full.seal(b"", full.best(None))) is Refused.SUITE
    assert isinstance(poor.open(full.seal(b"", full.compatible(None))), Opened)
    heard = full.open(poor.seal(b"", poor.best(None)))
    assert isinstance(heard, Opened)
    assert isinstance(poor.open(full.seal(b"", full.best(heard.envelope))), Opened)


def test_no_two_sealers_and_no_two_datagrams_share_key_and_nonce(clock: ManualClock) -> None:
    def names(maker: Sealer) -> Iterator[bytes]:
        for _ in range(50):
            datagram = maker.seal(b"", maker.best(None))
            yield datagram[9:45]

    everything = [*names(sealer(clock)), *names(sealer(clock))]
    assert len(set(everything)) == 100
    assert all(one < other for one, other in pairwise(everything[:50]))


def test_sizes_are_bounded_both_ways(clock: ManualClock) -> None:
    sender = sealer(clock)
    largest = sender.seal(bytes(MAX_BODY_BYTES), sender.best(None))
    assert len(largest) == MAX_DATAGRAM_BYTES
    assert isinstance(sealer(clock, OTHER).open(largest), Opened)
    assert sealer(clock, OTHER).open(largest + b"x") is Refused.SIZE
    with pytest.raises(LocalError, match="over"):
        sender.seal(bytes(MAX_BODY_BYTES + 1), sender.best(None))


def test_noise_from_made_up_senders_displaces_nobody(clock: ManualClock) -> None:
    sender, receiver = sealer(clock), sealer(clock, OTHER)
    datagram = sender.seal(b"", sender.best(None))
    assert isinstance(receiver.open(datagram), Opened)
    noise = bytearray(datagram)
    noise[-1] ^= 1
    for number in range(MAX_SENDERS + 1):
        noise[9:17] = number.to_bytes(8, "big")
        assert receiver.open(bytes(noise)) is Refused.TAG
    assert receiver.open(datagram) is Refused.SEEN
    assert len(receiver._senders) == 1


def test_remembered_senders_are_bounded(clock: ManualClock) -> None:
    receiver = sealer(clock, OTHER)
    for _ in range(MAX_SENDERS + 10):
        sender = sealer(clock, suites=(Suite.CHACHA20_POLY1305,))
        assert isinstance(receiver.open(sender.seal(b"", sender.best(None))), Opened)
    assert len(receiver._senders) == MAX_SENDERS


@given(st.binary(max_size=1300))
def test_any_bytes_are_refused_without_an_exception(data: bytes) -> None:
    assert isinstance(sealer(ManualClock()).open(data), Refused)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_a_key_of_another_length_is_the_senders_fault(clock: ManualClock, key: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="32 bytes"):
        Sealer(ONE, clock=clock).set_epoch(1, key)


def test_nothing_is_sealed_without_a_key(clock: ManualClock) -> None:
    empty = Sealer(ONE, clock=clock)
    assert not empty.has_epoch
    with pytest.raises(LocalError, match="epoch key"):
        empty.best(None)
    with pytest.raises(LocalError, match="epoch 1"):
        empty.seal(b"", Envelope(epoch=1, suite=Suite.CHACHA20_POLY1305))
