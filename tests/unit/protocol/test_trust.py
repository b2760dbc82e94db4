"""What a peer has cost is remembered over its links, and forgotten with time."""

from swarm.ids import PeerId, peer_id
from swarm.protocol.trust import (
    BAN_SECONDS,
    MAX_OFFENCES,
    MAX_PEERS,
    MAX_STRIKES,
    OFFENCE_SECONDS,
    STRIKES_A_SECOND,
    Ban,
    Trust,
)

WALL = 1_800_000_000.0
ANN, BOB = PeerId("a" * 32), PeerId("b" * 32)


def offend(trust: Trust, peer: PeerId = ANN, *, wall: float = WALL) -> Ban | None:
    return trust.offend(peer, "it lied", elapsed=0.0, wall=wall)


def test_strikes_count_for_the_peer_and_are_forgotten() -> None:
    trust = Trust()
    for _ in range(MAX_STRIKES):
        assert not trust.strike(ANN, elapsed=0.0, wall=WALL)
    assert trust.strike(ANN, elapsed=0.0, wall=WALL)
    assert not trust.strike(BOB, elapsed=0.0, wall=WALL)
    assert not trust.strike(ANN, elapsed=1 / STRIKES_A_SECOND, wall=WALL)


def test_a_few_offences_are_chance_and_more_of_them_a_ban() -> None:
    trust = Trust()
    assert [offend(trust) for _ in range(MAX_OFFENCES)] == [None] * MAX_OFFENCES
    assert trust.sentence(ANN, wall=WALL) == ""
    ban = offend(trust)
    assert ban == Ban(peer=ANN, until=WALL + BAN_SECONDS, reason="it lied")
    assert trust.bans(wall=WALL) == (ban,)
    assert "it lied" in trust.sentence(ANN, wall=WALL)
    assert trust.sentence(BOB, wall=WALL) == ""


def test_a_ban_ends_and_the_next_one_comes_sooner() -> None:
    trust = Trust()
    for _ in range(MAX_OFFENCES + 1):
        offend(trust)
    after = WALL + BAN_SECONDS
    assert trust.sentence(ANN, wall=after) == ""
    assert trust.bans(wall=after) == ()
    assert offend(trust, wall=after) is None
    assert offend(trust, wall=after) is not None


def test_one_offence_now_and_again_is_let_be() -> None:
    trust = Trust()
    assert not any(offend(trust, wall=WALL + number * OFFENCE_SECONDS) for number in range(1000))


def test_a_ban_is_taken_up_again_by_another_run() -> None:
    ban = Ban(peer=ANN, until=WALL + 60.0, reason="it lied")
    trust = Trust([ban])
    assert trust.sentence(ANN, wall=WALL)
    assert trust.sentence(ANN, wall=WALL + 60.0) == ""


def test_many_peers_take_bounded_memory_and_wash_nobody_clean() -> None:
    trust = Trust()
    for _ in range(MAX_OFFENCES + 1):
        offend(trust)
    for number in range(2 * MAX_PEERS):
        trust.strike(peer_id(number.to_bytes(32, "big")), elapsed=0.0, wall=WALL)
    assert len(trust) == MAX_PEERS
    assert trust.sentence(ANN, wall=WALL)


def test_what_the_other_side_said_is_made_fit_for_a_screen() -> None:
    trust = Trust()
    for _ in range(MAX_OFFENCES + 1):
        ban = trust.offend(ANN, "\x1b[2Jlies " + "x" * 5000, elapsed=0.0, wall=WALL)
    assert ban is not None
    assert ban.reason.startswith(" [2Jlies x")
    assert len(trust.sentence(ANN, wall=WALL)) < 400
