"""Judging hellos: who may come in, what the refused are told, and what the accepted are given."""

import math
from typing import Any

import msgspec
import pytest

from swarm.errors import LocalError, RemoteProtocolError, RemoteRefusalError
from swarm.identity.admission import admit, check_admission
from swarm.identity.authority import Authority
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS, CONTRIBUTE_ONLY, Right
from swarm.identity.uses import UseLedger
from swarm.ids import peer_id
from swarm.protocol.newcomers import NEWCOMER_SECONDS, NEWCOMERS_AT_ONCE
from swarm.protocol.trust import BAN_SECONDS, MAX_OFFENCES
from swarm.protocol.welcome import Profile, Reception, refusal_code
from swarm.testing.hellos import NO_CAPABILITIES
from swarm.wire.messages.hello import PROTOCOL_VERSION, Hello

NOW = 1_800_000_000.0
HOUR = 3600.0
AUTHORITY = Authority.create("lab", public=False, now=NOW)
OTHER = Authority.create("garage", public=False, now=NOW)


def invite(authority: Authority = AUTHORITY, **terms: Any) -> Invite:
    return authority.issue(**{"label": "x", "rights": CONTRIBUTE_ONLY, "now": NOW} | terms)


def identity(by: Invite | None = None) -> Identity:
    return Identity.join(by or invite(), key=PrivateKey.generate(), now=NOW)


def reception(who: Identity) -> Reception:
    profile = Profile(role="peer", program="test", capabilities=NO_CAPABILITIES, boot=b"bootboot")
    return Reception(who, profile=profile, ledger=UseLedger())


DOOR = reception(identity(invite(rights=ALL_RIGHTS)))
"""One that may admit."""
PEER = reception(identity())
"""One that may not."""


def hello_of(who: Identity, to: Reception = PEER, *, now: float = NOW, **changes: Any) -> Hello:
    hello = reception(who).introduce(to.identity.peer, now=now)
    return msgspec.structs.replace(hello, **changes)


def refusal(
    hello: Hello, *, to: Reception = PEER, now: float = NOW, leaf: bytes | None = None
) -> tuple[str, str]:
    with pytest.raises(RemoteRefusalError) as caught:
        to.judge(hello, leaf=hello.chain[1] if leaf is None else leaf, observed="192.0.2.1:1", now=now)
    return caught.value.code, str(caught.value)


def test_a_good_hello_is_accepted() -> None:
    newcomer = identity()
    verdict = PEER.judge(hello_of(newcomer), leaf=newcomer.leaf, observed="192.0.2.1:1", now=NOW)
    assert verdict.member == newcomer.member
    assert verdict.accept.version == PROTOCOL_VERSION
    assert verdict.accept.observed == "192.0.2.1:1"
    assert verdict.accept.admission == b""


def test_another_swarm_is_named() -> None:
    code, sentence = refusal(hello_of(identity(invite(OTHER))))
    assert code == "wrong-swarm"
    assert sentence.startswith("your invite is of the swarm ")
    assert "this is lab" in sentence


def test_a_chain_of_another_swarm_under_our_swarms_id_is_refused() -> None:
    code, sentence = refusal(hello_of(identity(invite(OTHER)), swarm=AUTHORITY.swarm))
    assert code == "wrong-swarm"
    assert "garage" in sentence


@pytest.mark.parametrize(
    ("versions", "remedy"),
    [
        (
            {"oldest": 1, "newest": 1},
            "you have swarm 1.3, this swarm needs 1.4.0 or later: pip install -U fusion-swarm",
        ),
        (
            {"oldest": 9, "newest": 9},
            "you have swarm 1.3, and I have test, which is too old for it: whoever runs me has to pip inst",
        ),
    ],
)
def test_versions_without_overlap_are_refused_with_the_remedy(
    versions: dict[str, int], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello = hello_of(identity(), program="swarm 1.3", **versions)
    monkeypatch.setattr("swarm.protocol.welcome.OLDEST_VERSION", 2)
    monkeypatch.setattr("swarm.protocol.welcome.OLDEST_RELEASE", "1.4.0")
    monkeypatch.setattr("swarm.protocol.welcome.PROTOCOL_VERSION", 2)
    code, sentence = refusal(hello)
    assert code == "version"
    assert sentence.startswith(remedy)


def test_versions_in_the_wrong_order_are_refused() -> None:
    assert refusal(hello_of(identity(), oldest=1 + PROTOCOL_VERSION, newest=PROTOCOL_VERSION))[0] == "version"


def test_a_newer_peer_speaks_our_version_with_us() -> None:
    newcomer = identity()
    hello = hello_of(newcomer, newest=PROTOCOL_VERSION + 5)
    verdict = PEER.judge(hello, leaf=newcomer.leaf, observed="", now=NOW)
    assert verdict.accept.version == PROTOCOL_VERSION


@pytest.mark.parametrize(
    ("skew", "words"),
    [
        (26 * HOUR, "your clock is 26 h ahead of mine"),
        (-26 * HOUR, "your clock is 26 h behind mine"),
        (72 * HOUR, "your clock is 3 days ahead of mine"),
        (601.0, "your clock is 10 min ahead of mine"),
    ],
)
def test_clocks_that_differ_are_refused_with_the_difference(skew: float, words: str) -> None:
    code, sentence = refusal(hello_of(identity(), now=NOW + skew))
    assert code == "clock"
    assert sentence.startswith(words)


@pytest.mark.parametrize("wall", [math.nan, math.inf, -math.inf])
def test_a_clock_that_shows_no_time_is_refused(wall: float) -> None:
    assert refusal(hello_of(identity(), wall=wall))[0] == "clock"


@pytest.mark.parametrize("skew", [60.0, -60.0, 600.0])
def test_clocks_may_differ_by_minutes(skew: float) -> None:
    newcomer = identity()
    hello = hello_of(newcomer, now=NOW + skew)
    assert PEER.judge(hello, leaf=newcomer.leaf, observed="", now=NOW).member.peer == newcomer.peer


def test_a_hello_with_another_certificate_than_the_connection_is_refused() -> None:
    victim, thief = identity(), identity()
    code, sentence = refusal(hello_of(victim), leaf=thief.leaf)
    assert code == "bad-certificate"
    assert "another certificate than your connection" in sentence


# Joining ends.


def test_an_expired_invite_lets_nobody_new_in() -> None:
    late = identity(invite(join_by=NOW + HOUR))
    code, sentence = refusal(hello_of(late, now=NOW + 2 * HOUR), to=DOOR, now=NOW + 2 * HOUR)
    assert code == "invite-expired"
    assert "ask the organiser for a new one" in sentence


def test_who_was_admitted_in_time_stays_in_after_the_date() -> None:
    member = identity(invite(join_by=NOW + HOUR))
    admission = admit(DOOR.identity, member.member, now=NOW + HOUR / 2)
    hello = hello_of(member.with_admission(admission), now=NOW + 2 * HOUR)
    verdict = PEER.judge(hello, leaf=member.leaf, observed="", now=NOW + 2 * HOUR)
    assert verdict.accept.admission == b""


def test_an_admission_of_somebody_else_does_not_hold() -> None:
    admission = admit(DOOR.identity, identity().member, now=NOW)
    code, sentence = refusal(hello_of(identity().with_admission(admission)))
    assert code == "bad-certificate"
    assert sentence.startswith("your admission does not hold: ")


def test_one_who_may_admit_gives_a_newcomer_its_admission_and_counts() -> None:
    by = invite(uses=1)
    first, second = identity(by), identity(by)
    door = reception(DOOR.identity)
    verdict = door.judge(hello_of(first, door), leaf=first.leaf, observed="", now=NOW)
    assert verdict.counted
    admission = check_admission(
        verdict.accept.admission, authority=AUTHORITY.certificate, member=first.member, now=NOW
    )
    assert admission.admitter == door.identity.peer
    again = door.judge(hello_of(first, door), leaf=first.leaf, observed="", now=NOW)
    assert not again.counted
    code, sentence = refusal(hello_of(second, door), to=door)
    assert code == "invite-used-up"
    assert "ask for a new one" in sentence


def test_an_admission_by_another_admitter_counts_here_too() -> None:
    by = invite(uses=1)
    first, second = identity(by), identity(by)
    elsewhere = first.with_admission(admit(DOOR.identity, first.member, now=NOW))
    door = reception(identity(invite(rights=frozenset({Right.ADMIT}))))
    assert door.judge(hello_of(elsewhere, door), leaf=first.leaf, observed="", now=NOW).counted
    assert refusal(hello_of(second, door), to=door)[0] == "invite-used-up"


def test_one_who_may_not_admit_sends_a_counted_newcomer_to_a_bootstrap_node() -> None:
    code, sentence = refusal(hello_of(identity(invite(uses=1))))
    assert code == "right-missing"
    assert "a bootstrap node of the swarm has to admit you first" in sentence


# Strangers, and whom this peer has had enough of.

PUBLIC = Authority.create("open", public=True, now=NOW)


def public_door() -> Reception:
    return reception(identity(PUBLIC.issue(label="door", rights=ALL_RIGHTS, now=NOW)))


def let_in(door: Reception, who: Identity, *, observed: str, now: float = NOW) -> bytes:
    return door.judge(
        hello_of(who, door, now=now), leaf=who.leaf, observed=observed, now=now
    ).accept.admission


def test_strangers_join_a_public_swarm_no_faster_than_their_prefix_may() -> None:
    by, door = PUBLIC.issue(label="", now=NOW), public_door()
    for number in range(NEWCOMERS_AT_ONCE):
        assert let_in(door, identity(by), observed=f"192.0.2.{number}:7423")
    with pytest.raises(RemoteRefusalError) as caught:
        let_in(door, identity(by), observed="192.0.2.200:7423")
    assert caught.value.code == "busy"
    assert str(caught.value) == "too many have joined from 192.0.2.0/24 lately: try again in 5 min"
    assert let_in(door, identity(by), observed="198.51.100.1:7423")
    assert let_in(door, identity(by), observed="192.0.2.200:7423", now=NOW + NEWCOMER_SECONDS)
    assert let_in(door, identity(PUBLIC.issue(label="Ann", now=NOW)), observed="192.0.2.200:7423")


def test_who_was_admitted_comes_and_goes_without_being_counted() -> None:
    by, door = PUBLIC.issue(label="", now=NOW), public_door()
    member = identity(by)
    member = member.with_admission(let_in(door, member, observed="192.0.2.1:1"))
    for _ in range(3 * NEWCOMERS_AT_ONCE):
        let_in(door, member, observed="192.0.2.1:1")


def test_a_stranger_gets_past_no_door_by_going_to_a_peer_first() -> None:
    by = PUBLIC.issue(label="", now=NOW)
    code, sentence = refusal(hello_of(identity(by)), to=reception(identity(by)))
    assert code == "right-missing"
    assert sentence == "your invite is for strangers, so a bootstrap node of the swarm has to admit you first"


def test_who_is_banned_is_told_why_and_until_when() -> None:
    host, newcomer = reception(identity()), identity()
    for _ in range(MAX_OFFENCES + 1):
        ban = host.trust.offend(newcomer.peer, "it lied", elapsed=0.0, wall=NOW)
    assert ban is not None
    code, sentence = refusal(hello_of(newcomer, host), to=host)
    assert code == "banned"
    assert sentence == (
        "you broke the protocol again and again, last thus: it lied; pip install -U fusion-swarm, and come "
        "back after 2027-01-15 14:00 UTC"
    )
    later = NOW + BAN_SECONDS
    host.judge(hello_of(newcomer, host, now=later), leaf=newcomer.leaf, observed="", now=later)


def test_a_newcomer_takes_its_admission_once_and_only_a_real_one() -> None:
    newcomer = reception(identity())
    hello = hello_of(newcomer.identity, DOOR)
    accept = DOOR.judge(hello, leaf=newcomer.identity.leaf, observed="", now=NOW).accept
    stranger = reception(identity())
    with pytest.raises(RemoteProtocolError, match="another peer"):
        stranger.welcomed(accept, now=NOW)
    assert newcomer.welcomed(accept, now=NOW)
    assert newcomer.identity.admission == accept.admission
    assert not newcomer.welcomed(accept, now=NOW)
    assert newcomer.introduce(peer_id(b"x" * 32), now=NOW).admission == accept.admission


# Revocations, and the key that goes with them.


def revoke(*members: Identity) -> Authority:
    """The authority, on a machine of its own, once it has revoked ``members``."""
    copy = Authority(
        AUTHORITY._key, AUTHORITY.certificate, door_key=AUTHORITY.door_key, public=AUTHORITY.public
    )
    copy.revoke(peers=[member.peer for member in members], invites=(), now=NOW)
    return copy


def informed(who: Identity, authority: Authority) -> Reception:
    host, known = reception(who), authority.revocations
    assert host.revocations.learn_all(known.lists, known.epoch_key)
    return host


def test_who_was_revoked_is_told_so() -> None:
    newcomer, other = identity(), identity()
    host = informed(identity(), revoke(newcomer))
    code, sentence = refusal(hello_of(newcomer, host), to=host)
    assert code == "revoked"
    assert sentence.startswith("the organiser revoked you")
    host.judge(hello_of(other, host), leaf=other.leaf, observed="", now=NOW)


def test_all_begin_with_the_key_that_is_in_every_invite() -> None:
    assert reception(identity()).epoch == reception(identity()).epoch
    assert reception(identity()).epoch.number == 0
    assert len(reception(identity()).epoch.key) == 32


def test_who_knows_the_lists_is_sent_nothing() -> None:
    authority = revoke(identity())
    host, guest = informed(identity(), authority), informed(identity(), authority)
    hello = guest.introduce(host.identity.peer, now=NOW)
    assert host.epoch == guest.epoch
    assert host.epoch.number == 1
    assert host.news_for(hello, guest.identity.member) is None
    assert reception(identity()).news_for(hello, guest.identity.member) is None


def test_the_key_goes_with_the_lists_to_those_who_know_the_door_key() -> None:
    newcomer = identity()
    host = informed(identity(), revoke(identity()))
    news = host.news_for(hello_of(newcomer, host), newcomer.member)
    assert news is not None
    assert (news.lists, news.epoch_key) == (host.revocations.lists, host.epoch.key)
    guest = reception(newcomer)
    assert guest.revocations.learn_all(news.lists, news.epoch_key)
    assert guest.epoch == host.epoch


@pytest.mark.parametrize("door", [b"", b"x" * 32])
def test_without_a_good_proof_there_is_no_key(door: bytes) -> None:
    newcomer = identity()
    host = informed(identity(), revoke(identity()))
    news = host.news_for(hello_of(newcomer, host, door=door), newcomer.member)
    assert news is not None
    assert news.epoch_key == b""


def test_a_proof_for_one_peer_is_worth_nothing_at_another() -> None:
    newcomer = identity()
    host = informed(identity(), revoke(identity()))
    news = host.news_for(hello_of(newcomer, PEER), newcomer.member)
    assert news is not None
    assert news.epoch_key == b""


def test_a_code_that_the_wire_does_not_have_is_a_bug_here() -> None:
    assert refusal_code("clock") == "clock"
    with pytest.raises(LocalError):
        refusal_code("nonsense")
