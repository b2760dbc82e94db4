"""Gossip among many: machines of real members under bad weather, cuts, departures and revocations.

What holds: after every event each machine's ``check()``; nobody comes back from an old record; and once the
weather is fair and links connect everybody, all nodes know the same.
"""

import itertools
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from swarm.errors import RemoteProtocolError
from swarm.identity.admission import SKEW_SECONDS, admit
from swarm.ids import PeerId
from swarm.protocol.gossip import COMPARE_SECONDS
from swarm.protocol.gossip_events import Blame, Counted, Heard, Leaving, Send
from swarm.protocol.gossip_judge import Claim, MemberJudge
from swarm.protocol.gossip_neighbour import MAX_OFFERED
from swarm.protocol.gossip_self import HEARTBEAT_SECONDS, REPEAT_SECONDS
from swarm.protocol.gossip_store import EXCESS_USES, GossipStore, Known
from swarm.testing.gossip import GossipNode, GossipWorld, Weather, known_to
from swarm.wire.limits import MAX_GOSSIP_REQUEST, MAX_GOSSIP_SUMMARY
from swarm.wire.messages.gossip import (
    Gossip,
    GossipAnswer,
    GossipDeparture,
    GossipDigest,
    GossipRequest,
    GossipSummary,
)
from swarm.wire.messages.hello import Capabilities
from swarm.wire.records.member import (
    MEMBER_LIFETIME,
    encode_credentials,
    member_key,
    sign_member,
)
from swarm.wire.records.peer import MAX_RECORD_SKEW

NODES = 5
SETTLED_SECONDS = 8 * COMPARE_SECONDS
"""Some comparisons of each node, with time for answers that got lost."""
TYPICAL = Capabilities(
    memory=6 << 30,
    device="cuda:0",
    torch="2.13.0",
    operators="k7" * 26,
    like="torch 2.13.0, RTX 4090, 1 thread",
)
BYTES_PER_MINUTE = 128 * 1024
"""What one member of a thousand sends in a minute, at most."""


def chain(world: GossipWorld, nodes: list[GossipNode]) -> None:
    for one, other in itertools.pairwise(nodes):
        world.link(one, other)


def swarm_of(count: int, seed: int = 1) -> tuple[GossipWorld, list[GossipNode]]:
    world = GossipWorld(seed)
    invite = world.invite()
    nodes = [world.add(invite) for _ in range(count)]
    chain(world, nodes)
    world.run(SETTLED_SECONDS)
    return world, nodes


def own(node: GossipNode) -> Known:
    known = node.machine.store.get(member_key(node.peer))
    assert known is not None
    return known


def present(node: GossipNode, world: GossipWorld) -> set[PeerId]:
    return {known.peer for known in node.machine.members(now=world.clock.wall())}


class Gossiping(RuleBasedStateMachine):
    """Five nodes and what may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GossipWorld(1)
        self.invite = self.world.invite()
        self.nodes = [self.world.add(self.invite) for _ in range(NODES)]
        self.departed: dict[PeerId, int] = {}
        """The version of the last word of each who left."""

    @rule(one=st.integers(0, NODES - 1), other=st.integers(0, NODES - 1))
    def link(self, one: int, other: int) -> None:
        if max(one, other) < len(self.nodes):
            self.world.link(self.nodes[one], self.nodes[other])

    @rule(one=st.integers(0, NODES - 1), other=st.integers(0, NODES - 1))
    def cut(self, one: int, other: int) -> None:
        if max(one, other) < len(self.nodes):
            self.world.cut(self.nodes[one], self.nodes[other])

    @rule(seconds=st.sampled_from([0.01, 1.0, 4.0, 70.0, 400.0]))
    def run_on(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(
        loss=st.sampled_from([0.0, 0.3]),
        twice=st.sampled_from([0.0, 0.3]),
        spread=st.sampled_from([0.0, 5.0]),
    )
    def change_weather(self, loss: float, twice: float, spread: float) -> None:
        self.world.weather = Weather(loss=loss, twice=twice, spread=spread)

    @rule(which=st.integers(0, NODES - 1), words=st.booleans())
    def depart(self, which: int, words: bool) -> None:
        if len(self.nodes) > 2 and which < len(self.nodes):
            node = self.nodes.pop(which)
            if words:
                self.world.tell(node, Leaving())
                self.world.run(0.1)
                self.departed[node.peer] = own(node).version
            self.world.silence(node)

    @rule(which=st.integers(0, NODES - 1), address=st.sampled_from(["192.0.2.1:1", "192.0.2.2:2"]))
    def move(self, which: int, address: str) -> None:
        if which < len(self.nodes):
            self.world.tell(self.nodes[which], self.nodes[which].describe(address))

    @invariant()
    def nobody_comes_back_from_an_old_record(self) -> None:
        for node in self.nodes:
            known = known_to(node)
            for peer, version in self.departed.items():
                if known.get(peer, 0) >= version:
                    assert peer not in present(node, self.world)

    def teardown(self) -> None:
        self.world.weather = Weather()
        chain(self.world, self.nodes)
        self.world.run(SETTLED_SECONDS)
        here = {node.peer for node in self.nodes}
        for node in self.nodes:
            assert here <= present(node, self.world)
        self.world.run(MEMBER_LIFETIME + MAX_RECORD_SKEW)
        for node in self.nodes:
            assert present(node, self.world) == here


TestGossiping = Gossiping.TestCase
TestGossiping.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_halves_that_were_apart_know_the_same_once_one_link_joins_them() -> None:
    world = GossipWorld(2)
    once = [world.invite(uses=1) for _ in range(6)]
    nodes = [world.add(world.invite()) for _ in range(2)]
    left, right = [nodes[0]], [nodes[1]]
    for half, invites in ((left, once[:3]), (right, once[3:])):
        for invite in invites:
            half.append(world.add(invite, admitter=half[0]))
            identity = half[-1].identity
            world.tell(half[0], Counted(encode_credentials(identity.chain, identity.admission)))
        chain(world, half)
    gone = left[1]
    world.run(SETTLED_SECONDS)
    assert present(left[0], world) == {node.peer for node in left}
    assert present(right[-1], world) == {node.peer for node in right}
    out = world.authority.revoke(peers=[right[1].peer], invites=[], now=world.clock.wall())
    assert out
    world.revoke(right[3], world.authority.revocations.lists)
    world.tell(gone, Leaving())
    world.run(0.1)
    world.silence(gone)
    world.link(left[0], left[2])
    world.run(SETTLED_SECONDS)

    world.link(left[3], right[3])
    world.run(SETTLED_SECONDS)
    rest = [node for node in left + right if node is not gone and node is not right[1]]
    for node in rest:
        assert known_to(node) == known_to(rest[0])
        assert present(node, world) == {other.peer for other in rest}
        assert node.reception.revocations.number == 1
        assert set(node.machine.store.counted) == set(rest[0].machine.store.counted)
    noted = rest[-1].reception.ledger
    assert noted.peers(gone.identity.member.invite) == (gone.peer,), "a use stays taken"


def test_a_late_copy_revives_nobody_and_a_newer_record_does() -> None:
    world, (a, b, c) = swarm_of(3)
    late = own(c).data
    world.tell(c, Leaving())
    world.run(60.0)
    world.silence(c)
    assert c.peer not in present(a, world)
    for moment in (1.0, MEMBER_LIFETIME / 2, MEMBER_LIFETIME, MEMBER_LIFETIME):
        world.run(moment)
        offer(world, b, a, world.claims[late])
        assert c.peer not in present(a, world)
    c = GossipNode(c.identity, world=world, seed=5)
    world.nodes.append(c)
    world.tell(c, c.describe("192.0.2.9:7423"))
    world.link(b, c)
    world.run(SETTLED_SECONDS)
    assert c.peer in present(a, world)


def test_a_peer_whose_clock_was_ahead_outbids_its_own_last_word() -> None:
    world, (a, b, c) = swarm_of(3)
    world.clock.set_wall(world.clock.wall() + MAX_RECORD_SKEW / 2)
    world.tell(c, Leaving())
    world.clock.set_wall(world.clock.wall() - MAX_RECORD_SKEW / 2)
    world.run(30.0)
    world.silence(c)
    assert c.peer not in present(a, world)
    c = GossipNode(c.identity, world=world, seed=5)
    world.nodes.append(c)
    world.tell(c, c.describe("192.0.2.9:7423"))
    world.link(b, c)
    world.run(SETTLED_SECONDS)
    assert c.peer in present(a, world)


def offer(world: GossipWorld, source: GossipNode, target: GossipNode, claim: Claim) -> None:
    """``source`` says that it has ``claim``, and gives it where it is asked."""
    entry = claim.key + claim.version.to_bytes(8, "big")
    heard = Heard(source.peer, GossipSummary(records=entry, credentials=b"", bits=0, asking=()))
    for action in target.machine.handle(heard, now=world.now):
        assert isinstance(action, Send)
        answer = GossipAnswer(records=(claim.data,), credentials=())
        target.machine.handle(Heard(source.peer, answer), now=world.now)


@pytest.mark.parametrize("shift", [-MEMBER_LIFETIME - 1, MAX_RECORD_SKEW + 60, 1e6])
def test_back_dated_and_far_future_records_are_refused(shift: float) -> None:
    world, (a, b, c) = swarm_of(3)
    record = replace(own(c).record, sequence=int((world.clock.wall() + shift) * 1000))
    before = known_to(a)
    offer(world, b, a, Claim.of(record, sign_member(c.identity.key, record)))
    assert known_to(a) == before


def test_a_changed_record_ends_the_link_to_who_gives_it() -> None:
    world, (a, b, c) = swarm_of(3)
    record = replace(own(c).record, sequence=own(c).record.sequence + 60_000)
    with pytest.raises(RemoteProtocolError, match="does not verify"):
        offer(world, b, a, Claim.of(record, sign_member(b.identity.key, record)))


def test_who_passes_on_an_admission_that_only_its_clock_takes_for_good_is_not_to_blame() -> None:
    world = GossipWorld(8)
    door, node = world.add(world.invite()), world.add(world.invite())
    identity, now = node.identity, world.clock.wall()
    judge = MemberJudge(node.reception)

    def dated(shift: float) -> bytes:
        return encode_credentials(identity.chain, admit(door.identity, identity.member, now=now + shift))

    assert judge.papers(dated(SKEW_SECONDS), now=now) is not None
    assert judge.papers(dated(SKEW_SECONDS + 1.0), now=now) is None
    assert judge.papers(dated(2 * SKEW_SECONDS), now=now) is None
    with pytest.raises(RemoteProtocolError, match="future"):
        judge.papers(dated(2 * SKEW_SECONDS + 1.0), now=now)


def test_a_record_with_credentials_of_another_does_not_count() -> None:
    world, (a, b, c) = swarm_of(3)
    record = replace(
        own(c).record, sequence=own(c).record.sequence + 60_000, credentials=own(b).record.credentials
    )
    before = known_to(a)
    offer(world, b, a, Claim.of(record, sign_member(c.identity.key, record)))
    assert known_to(a) == before


def test_only_its_own_departure_is_taken_from_a_peer() -> None:
    world, (a, b, c) = swarm_of(3)
    record = replace(own(c).record, departed=True, sequence=own(c).record.sequence + 1)
    with pytest.raises(RemoteProtocolError, match="not its sender's own"):
        world.tell(a, Heard(b.peer, GossipDeparture(record=sign_member(c.identity.key, record))))


def test_what_nobody_asked_for_is_not_kept_and_costs_its_sender() -> None:
    world, (a, b, c) = swarm_of(3)
    other = GossipWorld(9)
    stranger = own(other.add(other.invite()))
    before = known_to(a)
    for answer in (
        GossipAnswer(records=(own(c).data,), credentials=()),
        GossipAnswer(records=(), credentials=(stranger.papers.data,)),
    ):
        world.tell(a, Heard(b.peer, answer))
    assert known_to(a) == before
    assert len(a.blamed) == 2


def test_a_neighbour_that_asks_for_more_than_a_newcomer_needs_is_given_nothing() -> None:
    world, (a, b, _) = swarm_of(3)
    before = a.sent["GossipAnswer"]
    names = b"".join(known.papers.name for known in a.machine.store)
    for _ in range(20_000):
        a.machine.handle(Heard(b.peer, GossipRequest(records=b"", credentials=names)), now=world.now)
    answers = a.machine.handle(Heard(b.peer, GossipRequest(records=b"", credentials=names)), now=world.now)
    assert answers[0] == Send(b.peer, GossipAnswer(records=(), credentials=()))
    assert isinstance(answers[1], Blame)
    assert a.sent["GossipAnswer"] == before


def test_a_neighbour_that_compares_without_end_is_not_answered_and_charged() -> None:
    world, (a, b, _) = swarm_of(3)
    digest = Heard(b.peer, GossipDigest(buckets=bytes(8), revocations=b""))
    answered = [a.machine.handle(digest, now=world.now) for _ in range(100)]
    charged = [actions for actions in answered if isinstance(actions[0], Blame)]
    assert len(charged) >= 96
    world.run(30.0)
    assert isinstance(a.machine.handle(digest, now=world.now)[0], Send)


def endless(node: GossipNode) -> dict[str, Gossip]:
    """Messages of ``node`` that are legal once, or a few times."""
    nothing = bytes(20 * MAX_GOSSIP_REQUEST)
    known = own(node)
    gone = replace(known.record, departed=True, sequence=known.record.sequence + 1)
    return {
        "digests": GossipDigest(buckets=bytes(8), revocations=b""),
        "summaries": GossipSummary(
            records=bytes(28 * MAX_GOSSIP_SUMMARY),
            credentials=bytes(20 * MAX_GOSSIP_SUMMARY),
            bits=0,
            asking=(),
        ),
        "requests": GossipRequest(records=nothing, credentials=nothing),
        "answers": GossipAnswer(records=(), credentials=()),
        "departures": GossipDeparture(record=sign_member(node.identity.key, gone)),
    }


@pytest.mark.parametrize("kind", ["digests", "summaries", "requests", "answers", "departures"])
def test_whatever_a_neighbour_sends_without_end_is_charged_after_a_while(kind: str) -> None:
    world, (a, b, _) = swarm_of(3)
    message = endless(b)[kind]
    for _ in range(14_000 if kind == "requests" else 100):
        actions = a.machine.handle(Heard(b.peer, message), now=world.now)
    assert any(isinstance(action, Blame) for action in actions)
    a.machine.check()


def test_calling_again_gives_no_new_allowance() -> None:
    world, (a, b, _) = swarm_of(3)
    message = endless(b)["digests"]
    while not isinstance(a.machine.handle(Heard(b.peer, message), now=world.now)[0], Blame):
        pass
    world.cut(a, b)
    world.link(a, b)
    assert isinstance(a.machine.handle(Heard(b.peer, message), now=world.now)[0], Blame)


def test_one_neighbour_has_so_much_checked_and_no_more() -> None:
    world, (a, b, _) = swarm_of(3)
    version = (int(world.clock.wall() * 1000) << 16).to_bytes(8, "big")
    asked, number = 0, itertools.count()
    for _ in range(3 * 2 * MAX_OFFERED // MAX_GOSSIP_REQUEST):
        keys = (next(number).to_bytes(20, "big") for _ in range(MAX_GOSSIP_REQUEST))
        offer = GossipSummary(
            records=b"".join(key + version for key in keys), credentials=b"", bits=0, asking=()
        )
        for action in a.machine.handle(Heard(b.peer, offer), now=world.now):
            assert isinstance(action, Send)
            assert isinstance(action.message, GossipRequest)
            asked += len(action.message.records) // 20
        a.machine.handle(Heard(b.peer, GossipAnswer(records=(), credentials=())), now=world.now)
        world.clock.advance(0.2)
    seconds = 0.2 * 3 * 2 * MAX_OFFERED // MAX_GOSSIP_REQUEST
    assert asked <= 2 * MAX_OFFERED + 32 * seconds
    a.machine.check()


def test_one_that_signs_without_end_is_told_of_at_intervals() -> None:
    world, (a, b, c) = swarm_of(3)
    a.sent.clear()
    for _ in range(600):
        world.clock.set_wall(world.clock.wall() + 0.001)
        forged = replace(own(c).record, sequence=int(world.clock.wall() * 1000))
        offer(world, b, a, Claim.of(forged, sign_member(c.identity.key, forged)))
        world.run(0.1)
    assert a.sent["GossipSummary"] < 60 / REPEAT_SECONDS * 200


def test_one_invite_in_many_hands_does_not_shut_out_the_others() -> None:
    world = GossipWorld(3)
    store = GossipStore(limit=6)
    many, few = world.invite(), world.invite()
    door = world.add(world.invite())
    crowd = []
    for _ in range(8):
        world.clock.advance(1.0)
        crowd.append(own(world.add(many, admitter=door)))
    assert [store.put(known) for known in crowd] == [True] * 6 + [False] * 2
    assert all(store.put(own(world.add(few, admitter=door))) for _ in range(3))
    world.clock.advance(1.0)
    assert not store.put(own(world.add(few, admitter=door)))
    assert len(store) == 6
    store.check()


def test_nodes_that_have_no_room_for_all_keep_the_same_and_those_admitted_first() -> None:
    world = GossipWorld(6)
    door, public, other = world.add(world.invite()), world.invite(), world.invite()
    early = [own(world.add(public, admitter=door)) for _ in range(4)]
    world.clock.advance(60.0)
    admitted = [own(world.add(public, admitter=door)) for _ in range(4)]
    everybody = [*early, *admitted, *(own(world.add(public)) for _ in range(24))]
    everybody += [own(world.add(other, admitter=door)) for _ in range(3)]
    stores = []
    for _ in range(4):
        world.random.shuffle(everybody)
        store = GossipStore(limit=9)
        for known in (*everybody, *everybody):
            store.put(known)
        store.check()
        stores.append(store)
    assert len({store.digest(0) for store in stores}) == 1
    kept = {known.peer for known in stores[0]}
    assert {known.peer for known in early} <= kept
    assert len(kept) == 9


def test_an_invite_keeps_few_members_beyond_its_count() -> None:
    world = GossipWorld(4)
    admitter, invite, store = world.add(world.invite()), world.invite(uses=1), GossipStore()
    papers = [own(world.add(invite, admitter=admitter)).papers for _ in range(2 + EXCESS_USES)]
    assert [store.count(one) for one in papers] == [True] * (1 + EXCESS_USES) + [False]
    store.check()


def test_what_is_on_offer_is_bounded() -> None:
    world, (a, b, _) = swarm_of(3)
    now = int(world.clock.wall() * 1000) << 16
    for block in range(8):
        keys = (int.to_bytes(block * 5000 + number, 20, "big") for number in range(5000))
        entries = b"".join(key + now.to_bytes(8, "big") for key in keys)
        a.machine.handle(
            Heard(b.peer, GossipSummary(records=entries, credentials=b"", bits=0, asking=())), now=world.now
        )
    assert len(a.machine._neighbours[b.peer].records) <= MAX_OFFERED
    a.machine.check()


def test_a_thousand_members_cost_each_little(record_property: Callable[[str, object], None]) -> None:
    world, count, window = GossipWorld(5, checked=False), 1000, 6.0
    invite = world.invite()
    for _ in range(count):
        world.add(invite, capabilities=TYPICAL)
        world.run(HEARTBEAT_SECONDS / count)
    records = [own(node) for node in world.nodes]
    for node in world.nodes:
        for known in records:
            if known.peer != node.peer:
                node.machine.store.put(known)
    for node in world.nodes:
        for other in world.random.sample(world.nodes, 8):
            world.link(node, other)
    world.run(3.0)
    for node in world.nodes:
        node.sent.clear()
    world.run(window)
    sent = sum((node.sent for node in world.nodes), Counter())
    a_minute = sum(sent.values()) / count * 60 / window
    record_property("bytes_a_member_a_minute", a_minute)
    assert 0 < a_minute < BYTES_PER_MINUTE
    assert not any(node.blamed for node in world.nodes)
    newest = {known.peer: known.version for known in (own(node) for node in world.nodes)}
    told = sum(newest[peer] == version for node in world.nodes for peer, version in known_to(node).items())
    assert told > 0.9 * count * count, "most have heard of most heartbeats within seconds"
