"""The block machine in scenarios, and with any events in any order."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from swarm.errors import RemoteProtocolError
from swarm.ids import Digest, PeerId
from swarm.protocol import blocks_events as say
from swarm.protocol.blocks import GENTLE_BYTES, LAST_RETRY_SECONDS, POLL_SECONDS, BlockMachine
from swarm.protocol.blocks_events import Seek, SeekerNumber, Source, SourceNumber
from swarm.protocol.blocks_sources import GRACE_SECONDS, SLOWEST_RATE, UNMEASURED_WINDOW, WINDOW

A, B, C = (Digest(letter * 52) for letter in "abc")
MIB = 1 << 20


def source(number: int) -> Source:
    return Source(number=SourceNumber(number), peer=PeerId(f"{number}" * 8 + "p" * 24))


class Driver:
    """A block machine with a clock, and the links that its seekers may ask."""

    def __init__(self) -> None:
        self.machine = BlockMachine()
        self.now = 100.0
        self.links: dict[int, Source] = {}
        self.asks: list[say.Ask] = []
        """Requests that are still to be answered."""
        self.keeps: list[say.Keep] = []
        self.complete: list[int] = []
        self.given_up: dict[int, str] = {}

    def link(self, *numbers: int) -> None:
        for number in numbers:
            self.links[number] = source(number)

    def seek(
        self, seeker: int, *digests: Digest, size: int = MIB, patience: float = 30.0, gentle: bool = False
    ) -> None:
        blocks = dict.fromkeys(digests, size)
        self.handle(Seek(seeker=SeekerNumber(seeker), blocks=blocks, patience=patience, gentle=gentle))

    def handle(self, event: say.Event) -> list[say.Action]:
        actions = self.machine.handle(event, now=self.now)
        self.machine.check()
        for action in actions:
            match action:
                case say.Ask():
                    assert action.source in {link.number for link in self.links.values()}
                    self.asks.append(action)
                case say.Keep():
                    self.keeps.append(action)
                case say.LookForSources(seeker=seeker):
                    self.handle(say.SourcesSeen(seeker=seeker, sources=tuple(self.links.values())))
                case say.Complete(seeker=seeker):
                    self.complete.append(seeker)
                case say.GiveUp(seeker=seeker, sentence=sentence):
                    self.given_up[seeker] = sentence
                case say.Drop():
                    pass
        return actions

    def wait(self, seconds: float) -> None:
        """Let time pass, with a tick at every deadline."""
        until = self.now + seconds
        while (deadline := self.machine.deadline) is not None and deadline <= until:
            self.now = max(deadline, self.now)
            self.handle(say.Tick())
        self.now = until

    def open(self, digest: Digest) -> say.Ask:
        """The request for a block, which is to be the only one."""
        (ask,) = [ask for ask in self.asks if ask.digest == digest]
        return ask

    def missing(self, ask: say.Ask) -> None:
        self.asks.remove(ask)
        self.handle(say.MissingArrived(source=ask.source, request=ask.request))

    def reply(self, ask: say.Ask, size: int = MIB) -> list[say.Action]:
        self.asks.remove(ask)
        return self.handle(say.ReplyArrived(source=ask.source, request=ask.request, size=size))

    def serve(self, ask: say.Ask, size: int = MIB) -> None:
        """Reply with the right bytes."""
        self.reply(ask, size)
        keep = self.keeps.pop()
        assert keep == say.Keep(source=ask.source, digest=ask.digest)
        self.handle(say.BlockKept(digest=ask.digest))

    def lose(self, number: int) -> None:
        del self.links[number]
        self.asks = [ask for ask in self.asks if ask.source != number]
        self.handle(say.SourceLost(source=SourceNumber(number)))


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_blocks_are_asked_of_several_sources_at_once_and_each_of_one(driver: Driver):
    driver.link(1, 2)
    driver.seek(1, A, B)
    assert {(ask.source, ask.digest) for ask in driver.asks} == {(1, A), (2, B)}
    for ask in tuple(driver.asks):
        driver.serve(ask)
    assert driver.complete == [1]
    assert driver.machine.deadline is None


def test_nothing_sought_is_complete_at_once(driver: Driver):
    driver.seek(1)
    assert driver.complete == [1]


def test_another_source_is_asked_when_one_lacks_the_block(driver: Driver):
    driver.link(1, 2)
    driver.seek(1, A)
    first = driver.open(A)
    driver.missing(first)
    second = driver.open(A)
    assert {first.source, second.source} == {1, 2}
    driver.serve(second)
    assert driver.complete == [1]


def test_another_source_is_asked_at_once_when_a_link_is_lost(driver: Driver):
    driver.link(1, 2)
    driver.seek(1, A)
    driver.lose(driver.open(A).source)
    assert driver.open(A).source in driver.links
    driver.serve(driver.open(A))
    assert driver.complete == [1]


def test_wrong_bytes_are_asked_of_another_and_never_again_of_that_link(driver: Driver):
    driver.link(1, 2)
    driver.seek(1, A, patience=1000.0)
    liar = driver.open(A)
    driver.reply(liar)
    driver.handle(say.BlockWrong(source=liar.source, peer=source(liar.source).peer, digest=A))
    honest = driver.open(A)
    assert honest.source != liar.source
    for _ in range(40):
        driver.missing(driver.open(A))
        driver.wait(LAST_RETRY_SECONDS + POLL_SECONDS)
        assert driver.open(A).source == honest.source


def test_a_peer_that_sent_wrong_bytes_is_not_asked_on_another_link_either(driver: Driver):
    driver.links[1] = source(1)
    driver.seek(1, A, B, C, patience=20.0)
    lie = driver.open(A)
    driver.reply(lie)
    driver.handle(say.BlockWrong(source=lie.source, peer=source(1).peer, digest=A))
    driver.lose(1)
    driver.links[2] = Source(number=SourceNumber(2), peer=source(1).peer)
    driver.wait(10.0)
    assert driver.asks == []
    driver.wait(12.0)
    assert "11111111 sent other bytes" in driver.given_up[1]
    driver.seek(2, A)
    assert driver.open(A).source == 2


def test_a_seeker_waits_for_sources_to_appear(driver: Driver):
    driver.seek(1, A)
    driver.wait(20.0)
    assert driver.asks == []
    driver.link(1)
    driver.wait(POLL_SECONDS)
    driver.serve(driver.open(A))
    assert (driver.complete, driver.given_up) == ([1], {})


def test_without_any_source_a_seeker_is_given_up_after_its_patience(driver: Driver):
    driver.seek(1, A, patience=30.0)
    driver.wait(29.0)
    assert driver.given_up == {}
    driver.wait(1.0 + POLL_SECONDS)
    assert driver.given_up == {
        1: "block aaaaaaaa cannot be fetched: no peer that may have it is linked (waited 30 s for a source)"
    }
    assert driver.machine.deadline is None


def answer_missing(driver: Driver, seconds: float) -> int:
    """Every source lacks everything for so long; returns how often it was asked."""
    asked = 0
    for _ in range(int(seconds / POLL_SECONDS)):
        while driver.asks:
            driver.missing(driver.asks[0])
            asked += 1
        driver.wait(POLL_SECONDS)
    return asked


def test_sources_that_lack_a_block_are_asked_again_ever_more_rarely_and_named_in_the_end(driver: Driver):
    driver.link(1, 2)
    driver.seek(1, A, patience=30.0)
    asked = answer_missing(driver, 32.0)
    assert 8 <= asked <= 16
    assert driver.given_up == {
        1: (
            "block aaaaaaaa cannot be fetched: 11111111 lacks it, 22222222 lacks it "
            "(waited 30 s for a source)"
        )
    }


def test_a_source_that_gets_the_block_later_serves_it(driver: Driver):
    driver.link(1)
    driver.seek(1, A)
    answer_missing(driver, 10.0)
    driver.wait(LAST_RETRY_SECONDS + POLL_SECONDS)
    driver.serve(driver.open(A))
    assert driver.complete == [1]


def test_a_new_source_starts_the_time_of_patience_again(driver: Driver):
    driver.link(1)
    driver.seek(1, A, patience=30.0)
    answer_missing(driver, 25.0)
    driver.link(2)
    answer_missing(driver, 25.0)
    assert driver.given_up == {}
    answer_missing(driver, 10.0)
    assert "22222222 lacks it" in driver.given_up[1]


def test_waiting_for_room_or_for_a_slow_transfer_is_not_starving(driver: Driver):
    driver.link(1)
    many = [Digest(f"{number:052d}".translate(str.maketrans("0189", "abcd"))) for number in range(40)]
    driver.seek(1, *many, size=16 * MIB, patience=5.0)
    for _ in range(40):
        driver.wait(60.0)
        assert driver.given_up == {}
        driver.serve(driver.asks[0], size=16 * MIB)
    assert driver.complete == [1]


def test_losing_a_source_in_the_middle_of_a_transfer_starts_the_time_of_patience_again(driver: Driver):
    driver.link(1)
    driver.seek(1, A, size=16 * MIB, patience=5.0)
    driver.wait(60.0)
    driver.lose(1)
    driver.wait(4.0)
    assert driver.given_up == {}
    driver.wait(2.0)
    assert "11111111 was lost" in driver.given_up[1]


def test_a_source_that_does_not_answer_is_left_for_another_and_its_late_answer_is_taken(driver: Driver):
    driver.link(1)
    driver.seek(1, A, patience=1000.0)
    late = driver.open(A)
    driver.wait(GRACE_SECONDS + MIB / SLOWEST_RATE)
    driver.link(2)
    driver.wait(POLL_SECONDS)
    assert {ask.source for ask in driver.asks} == {1, 2}
    driver.serve(late)
    assert driver.complete == [1]
    assert driver.reply(driver.open(A)) == [say.Drop()]


def test_a_silent_source_is_asked_nothing_more_and_blamed(driver: Driver):
    driver.link(1)
    driver.seek(1, A, B, C, patience=20.0)
    assert len(driver.asks) == UNMEASURED_WINDOW
    driver.wait(100.0)
    assert len(driver.asks) == UNMEASURED_WINDOW
    assert "11111111 did not answer in time" in driver.given_up[1]


def test_the_window_opens_with_the_measured_rate_and_stays_small_for_a_slow_source(driver: Driver):
    driver.link(1, 2)
    many = [Digest(f"{number:052d}".translate(str.maketrans("0189", "abcd"))) for number in range(80)]
    driver.seek(1, *many)
    seconds = {1: 0.01, 2: 1.0}  # 100 MiB/s and 1 MiB/s
    ready = {1: driver.now, 2: driver.now}
    served = {1: 0, 2: 0}
    widest = {1: 0, 2: 0}
    while driver.asks:
        number = min(
            (n for n in (1, 2) if any(ask.source == n for ask in driver.asks)),
            key=lambda n: ready[n] + seconds[n],
        )
        for n in (1, 2):
            widest[n] = max(widest[n], sum(ask.source == n for ask in driver.asks))
        ready[number] = max(ready[number] + seconds[number], driver.now)
        driver.now = ready[number]
        driver.serve(next(ask for ask in driver.asks if ask.source == number))
        served[number] += 1
    assert driver.complete == [1]
    assert widest == {1: WINDOW, 2: UNMEASURED_WINDOW}
    assert served[2] <= 5


def test_an_answer_that_is_too_large_is_a_failure_and_another_is_asked(driver: Driver):
    driver.link(1, 2)
    driver.seek(1, A, size=100)
    large = driver.open(A)
    assert driver.machine.most_bytes(large.source, large.request) == 100
    driver.asks.remove(large)
    driver.handle(say.ReplyRefused(source=large.source, request=large.request))
    assert driver.machine.most_bytes(large.source, large.request) is None
    assert driver.open(A).source != large.source


def test_an_empty_block_is_an_answer(driver: Driver):
    driver.link(1)
    driver.seek(1, A, size=0)
    driver.serve(driver.open(A), size=0)
    assert driver.complete == [1]


def test_seekers_of_one_block_share_the_request(driver: Driver):
    driver.link(1)
    driver.seek(1, A, B)
    driver.seek(2, A)
    driver.serve(driver.open(A))
    assert driver.complete == [2]
    driver.serve(driver.open(B))
    assert driver.complete == [2, 1]


def test_a_gentle_seeker_has_one_block_sent_at_a_time_or_some_small_ones(driver: Driver):
    driver.link(1, 2)
    driver.seek(1, A, B, gentle=True)
    (first,) = driver.asks
    driver.serve(first)
    (second,) = driver.asks
    driver.serve(second)
    assert {first.digest, second.digest} == {A, B}
    assert driver.complete == [1]
    driver.seek(2, *(Digest(letter * 52) for letter in "defgh"), size=GENTLE_BYTES // 4, gentle=True)
    assert len(driver.asks) == 4


def test_a_block_that_somebody_hurries_for_is_asked_for_beside_those_of_gentle_seekers(driver: Driver):
    driver.link(1, 2)
    driver.seek(1, A, B, gentle=True)
    assert [ask.digest for ask in driver.asks] == [A]
    driver.seek(2, B, C)
    assert {ask.digest for ask in driver.asks} == {A, B, C}


def test_a_forgotten_seeker_leaves_the_others_what_they_need(driver: Driver):
    driver.link(1)
    driver.seek(1, A, B)
    driver.seek(2, A)
    driver.handle(say.Forget(seeker=SeekerNumber(1)))
    driver.handle(say.Forget(seeker=SeekerNumber(1)))
    assert driver.reply(driver.open(B)) == [say.Drop()]
    driver.serve(driver.open(A))
    assert driver.complete == [2]


def test_a_store_that_takes_nothing_fails_all_who_need_the_block(driver: Driver):
    driver.link(1)
    driver.seek(1, A, B)
    driver.seek(2, A)
    driver.seek(3, B)
    driver.reply(driver.open(A))
    driver.handle(say.KeepFailed(digest=A, sentence="disk full"))
    assert driver.given_up == {1: "disk full", 2: "disk full"}
    driver.serve(driver.open(B))
    assert driver.complete == [3]


@pytest.mark.parametrize("event", [say.MissingArrived, say.ReplyArrived])
def test_answers_to_what_was_not_asked_are_charged_to_their_sender(driver: Driver, event: Any):
    driver.link(1, 2)
    driver.seek(1, A)
    ask = driver.open(A)
    other = SourceNumber(3 - ask.source)
    size = {"size": 1} if event is say.ReplyArrived else {}
    for wrong in ((other, ask.request), (ask.source, ask.request + 1), (SourceNumber(9), ask.request)):
        with pytest.raises(RemoteProtocolError):
            driver.machine.handle(event(source=wrong[0], request=wrong[1], **size), now=driver.now)
    driver.serve(ask)
    with pytest.raises(RemoteProtocolError):
        driver.machine.handle(event(source=ask.source, request=ask.request, **size), now=driver.now)


class AnyOrder(RuleBasedStateMachine):
    """Seekers, links, answers and time in any order; in the end every seeker has heard."""

    @initialize()
    def start(self) -> None:
        self.driver = Driver()
        self.next_seeker = 0
        self.next_link = 0
        self.alive: dict[int, set[Digest]] = {}
        self.here: set[Digest] = set()

    @rule(
        digests=st.sets(st.sampled_from([A, B, C])),
        patience=st.sampled_from([3.0, 30.0]),
        gentle=st.booleans(),
    )
    def seek(self, digests: set[Digest], patience: float, gentle: bool) -> None:
        self.next_seeker += 1
        wanted = sorted(digests - self.here)
        self.alive[self.next_seeker] = set(wanted)
        self.driver.seek(self.next_seeker, *wanted, patience=patience, gentle=gentle)

    @rule(pick=st.integers(0, 20))
    def forget(self, pick: int) -> None:
        if self.alive:
            seeker = sorted(self.alive)[pick % len(self.alive)]
            del self.alive[seeker]
            self.driver.handle(say.Forget(seeker=SeekerNumber(seeker)))

    @rule()
    def link(self) -> None:
        self.next_link += 1
        self.driver.link(self.next_link)

    @rule(pick=st.integers(0, 20))
    def lose(self, pick: int) -> None:
        if self.driver.links:
            self.driver.lose(sorted(self.driver.links)[pick % len(self.driver.links)])

    @rule(pick=st.integers(0, 20), size=st.sampled_from([0, 10, MIB]))
    def reply(self, pick: int, size: int) -> None:
        if self.driver.asks:
            self.driver.reply(self.driver.asks[pick % len(self.driver.asks)], size)

    @rule(pick=st.integers(0, 20))
    def refuse(self, pick: int) -> None:
        if self.driver.asks:
            ask = self.driver.asks.pop(pick % len(self.driver.asks))
            assert self.driver.machine.most_bytes(ask.source, ask.request) is not None
            self.driver.handle(say.ReplyRefused(source=ask.source, request=ask.request))

    @rule(pick=st.integers(0, 20))
    def missing(self, pick: int) -> None:
        if self.driver.asks:
            self.driver.missing(self.driver.asks[pick % len(self.driver.asks)])

    @rule(pick=st.integers(0, 20), outcome=st.sampled_from(["kept", "kept", "wrong", "failed"]))
    def keep(self, pick: int, outcome: str) -> None:
        if not self.driver.keeps:
            return
        keep = self.driver.keeps.pop(pick % len(self.driver.keeps))
        match outcome:
            case "kept":
                self.here.add(keep.digest)
                self.driver.handle(say.BlockKept(digest=keep.digest))
            case "wrong":
                self.driver.handle(
                    say.BlockWrong(source=keep.source, peer=source(keep.source).peer, digest=keep.digest)
                )
            case _:
                self.driver.handle(say.KeepFailed(digest=keep.digest, sentence="full"))

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 5.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.driver.wait(seconds)

    @invariant()
    def nobody_is_told_wrongly(self) -> None:
        if not hasattr(self, "driver"):
            return
        for seeker in self.driver.complete:
            assert self.alive.pop(seeker, set()) <= self.here
        for seeker in self.driver.given_up:
            self.alive.pop(seeker, None)
        self.driver.complete.clear()
        self.driver.given_up.clear()
        assert str(self.driver.machine)
        assert self.driver.machine.statistics().wanted <= 3

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        while self.driver.keeps:
            self.driver.handle(say.BlockKept(digest=self.driver.keeps.pop().digest))
        for number in sorted(self.driver.links):
            self.driver.lose(number)
        self.driver.wait(40.0)
        heard = {*self.driver.complete, *self.driver.given_up}
        assert set(self.alive) <= heard
        assert self.driver.machine.deadline is None
        assert self.driver.machine.statistics().wanted == 0


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase
