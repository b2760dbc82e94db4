"""A stage that changes hands between two steps: machines of all holders, and messages in any order."""

import random
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from swarm.errors import RemoteProtocolError
from swarm.ids import Generation, Incarnation, Step
from swarm.protocol import pipeline_events as say
from swarm.protocol.pipeline import PipelineMachine
from swarm.wire.codecs import CodecSpec
from swarm.wire.messages.pipeline import (
    BoundaryTensor,
    Fence,
    SharedTensor,
    Square,
    StageReport,
    StepRecord,
    SwitchRecord,
)
from tests.machines.test_pipeline import HEADER, JOB, passes, reference_order, role

STEPS = 6
MICRO_BATCHES = 3
BEFORE, AFTER = Generation(1), Generation(2)
Sent = BoundaryTensor | SharedTensor | StepRecord
Work = tuple[str, str, int, int]


@dataclass
class HandOverWorld:
    """All holders of one job. The last of ``machines`` takes ``moved`` over, copied at ``copied``."""

    stages: int
    moved: int
    copied: int
    chance: random.Random
    bag: list[tuple[int, say.Event]] = field(default_factory=list)
    done: list[list[Work]] = field(default_factory=list)
    sent: list[tuple[int, Sent, object]] = field(default_factory=list)
    """By whom, what, and its payload: what the services keep for replays."""
    asked: set[int] = field(default_factory=set)
    ended: dict[int, say.Action] = field(default_factory=dict)
    switched: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ones = tuple(Incarnation(1) for _ in range(self.stages))
        twos = tuple(Incarnation(2 if k == self.moved else 1) for k in range(self.stages))
        calendar = passes(STEPS, 2)
        terms = {"passes": calendar, "micro_batches": MICRO_BATCHES}
        self.machines = [
            PipelineMachine(role(self.stages, k, incarnations=ones, **terms)) for k in range(self.stages)
        ]
        terms["passes"] = replace(calendar, first_step=self.copied)
        newcomer = role(self.stages, self.moved, incarnations=twos, catches_up=AFTER, **terms)
        self.machines.append(PipelineMachine(newcomer))
        self.incarnations = {BEFORE: ones, AFTER: twos}
        self.done = [[] for _ in self.machines]

    @property
    def newcomer(self) -> int:
        return self.stages

    def run(self, *, proposed_at: int, ordered_at: int) -> None:
        """Until nothing is left to do; the plan is proposed and ordered after so many events."""
        self.bag += [(who, say.Start()) for who in range(self.stages)]
        count, ordered = 0, False
        while self.bag:
            if count == proposed_at:
                for who in range(self.stages):
                    self.feed(who, say.Proposed(generation=AFTER, incarnations=self.incarnations[AFTER]))
            has_copy = self.machines[0].statistics().step >= self.copied
            if has_copy and not ordered and count > max(proposed_at, ordered_at):
                ordered = True
                self.bag += [(self.newcomer, say.Start())]
                self.feed(self.stages - 1, say.SwitchOrdered(generation=AFTER))
            who, event = self.bag.pop(self.chance.randrange(len(self.bag)))
            self.feed(who, event)
            count += 1

    def feed(self, who: int, event: say.Event) -> None:
        machine = self.machines[who]
        for action in machine.handle(event, now=0.0):
            self.perform(who, action)
        machine.check()

    def fence(self, who: int, target: int, phase: str, step: int) -> Fence:
        machine = self.machines[who]
        incarnations = machine.succession.incarnations(step)
        return Fence(
            job=JOB,
            step=step,
            phase=phase,  # type: ignore[arg-type]
            source=machine.role.stage,
            target=target,
            sender=incarnations[machine.role.stage],
            receiver=incarnations[target],
        )

    def send(self, who: int, message: Sent | StageReport, payload: object = None) -> None:
        machine, fence = self.machines[who], message.fence
        if fence.phase == "train" and not isinstance(message, StageReport):
            self.sent.append((who, message, payload))
            if fence.step in self.asked and fence.target == self.moved and who != self.newcomer:
                self.again(message, payload)
        if machine.succession.is_live(fence.step):
            moved = fence.target == self.moved and fence.receiver == 2
            self.bag.append((self.newcomer if moved else fence.target, arrived(message, payload)))

    def again(self, message: Sent, payload: object) -> None:
        """Give the newcomer what was sent to the stage that it takes over, as its service does."""
        fence, twos = message.fence, self.incarnations[AFTER]
        if fence.receiver == twos[self.moved]:
            return
        ends = {"sender": twos[fence.source], "receiver": twos[self.moved]}
        copy = msgspec.structs.replace(message, fence=msgspec.structs.replace(fence, **ends))
        self.bag.append((self.newcomer, arrived(copy, payload)))

    def perform(self, who: int, action: say.Action) -> None:
        stage, last = self.machines[who].role.stage, self.stages - 1
        match action:
            case say.Forward():
                self.done[who].append((action.phase, "forward", action.step, action.micro_batch))
                loss = float(action.step + action.micro_batch) if stage == last else None
                self.bag.append((who, say.Computed(loss=loss)))
            case say.Backward():
                self.done[who].append(("train", "backward", action.step, action.micro_batch))
                self.bag.append((who, say.Computed()))
            case say.SendTensor():
                due = action.direction == "forward" or action.phase == "train"
                message = BoundaryTensor(
                    fence=self.fence(who, action.target, action.phase, action.step),
                    micro_batch=action.micro_batch,
                    tensor=action.value,
                    direction=action.direction,
                    header=HEADER if due else None,
                )
                self.send(who, message, (stage, action.micro_batch))
            case say.SendShared():
                shared = SharedTensor(
                    fence=self.fence(who, action.target, "train", action.step),
                    parameter=action.parameter,
                    operator=action.operator,
                    direction=action.direction,
                    header=HEADER,
                )
                self.send(who, shared, (stage, action.step))
            case say.Measure():
                squares = (Square(stage, 4.0),) if action.phase == "train" else ()
                self.bag.append((who, say.Measured(squares=squares)))
            case say.SendReport():
                report = StageReport(
                    fence=self.fence(who, last, action.phase, action.step),
                    squares=action.squares,
                    losses=action.losses,
                    fault=action.fault,
                    fault_forward=action.fault_forward,
                    compute_seconds=0.0,
                )
                self.send(who, report)
            case say.SendRecord():
                self.record(who, action)
            case say.Update():
                self.bag.append((who, say.Updated()))
            case say.AdoptShared():
                self.bag.append((who, say.SharedAdopted()))
            case say.WantReplay(step=step):
                assert who == self.newcomer
                assert step not in self.asked
                self.asked.add(step)
                for source, message, payload in tuple(self.sent):
                    if (message.fence.target, message.fence.step) == (self.moved, step):
                        assert source != self.newcomer
                        self.again(message, payload)
            case say.Switched(step=step):
                self.switched[who] = step
            case say.Finish() | say.HandedOver():
                assert who not in self.ended
                self.ended[who] = action
            case _:
                raise AssertionError(action)

    def record(self, who: int, action: say.SendRecord) -> None:
        for target in range(self.stages):
            found = action.settlement
            record = StepRecord(
                fence=self.fence(who, target, action.phase, action.step),
                outcome=found.outcome,
                clip=found.clip,
                norm=found.norm,
                loss=found.loss,
                cause=found.cause,
            )
            if action.switch is not None:
                codecs = (CodecSpec(),) * self.stages
                fields = msgspec.structs.asdict(record) | {"codecs": codecs, "later": codecs}
                record = SwitchRecord(**fields, generation=action.switch)
            self.send(who, record)


def arrived(message: Sent | StageReport, payload: object) -> say.Event:
    match message:
        case BoundaryTensor():
            return say.TensorArrived(message=message, payload=payload)
        case SharedTensor():
            return say.SharedArrived(message=message, payload=payload)
        case StageReport():
            return say.ReportArrived(message=message)
        case _:
            return say.RecordArrived(message=message)


@pytest.mark.parametrize("stages", range(1, 5))
@pytest.mark.parametrize("seed", range(6))
def test_every_step_is_made_by_whoever_holds_the_stage_then(stages: int, seed: int) -> None:
    for moved in range(stages):
        chance = random.Random(f"{stages} {seed} {moved}")
        world = HandOverWorld(stages, moved, chance.randrange(STEPS), chance)
        world.run(proposed_at=chance.randrange(1, 4), ordered_at=chance.randrange(200))
        leaver, newcomer = world.ended.get(moved), world.ended.get(world.newcomer)
        if isinstance(leaver, say.Finish):  # the order came after the last step
            assert newcomer is None
            continue
        assert isinstance(leaver, say.HandedOver)
        assert leaver.step < STEPS
        first, others = leaver.step, [k for k in range(stages) if k != moved]
        assert world.switched == dict.fromkeys([*others, world.newcomer], first)
        assert isinstance(newcomer, say.Finish)
        assert all(isinstance(world.ended[k], say.Finish) for k in others)
        until = [work for work in world.done[moved] if work[2] >= first]
        since = [work for work in world.done[world.newcomer] if work[2] < first]
        assert not until
        assert {work[0] for work in since} <= {"train"}
        for step in range(STEPS):
            for who in (moved, world.newcomer):
                if (step < first) if who == moved else (step >= world.copied):
                    mine = [
                        (kind, m) for phase, kind, s, m in world.done[who] if (phase, s) == ("train", step)
                    ]
                    assert mine == reference_order(MICRO_BATCHES, stages, moved)


def test_whoever_catches_up_evaluates_nothing_before_it_is_in_charge() -> None:
    world = HandOverWorld(3, 1, 1, random.Random(3))
    world.run(proposed_at=1, ordered_at=150)
    handed = world.ended[1]
    assert isinstance(handed, say.HandedOver)
    evaluated = {step for phase, _, step, _ in world.done[world.newcomer] if phase == "evaluate"}
    assert evaluated == {step for step in (2, 4, 6) if step >= handed.step}


def test_only_the_recorder_may_be_told_to_switch_and_only_to_what_was_proposed() -> None:
    for stage, proposed in ((0, True), (2, False)):
        machine = PipelineMachine(role(3, stage))
        if proposed:
            machine.handle(say.Proposed(generation=AFTER, incarnations=(1, 2, 1)), now=0.0)  # type: ignore[arg-type]
        with pytest.raises(RemoteProtocolError, match="was not proposed"):
            machine.handle(say.SwitchOrdered(generation=AFTER), now=0.0)
        machine.check()


def test_a_record_that_names_a_plan_that_nobody_proposed_is_refused() -> None:
    codecs = (CodecSpec(),) * 3
    fence = Fence(job=JOB, step=0, phase="train", source=2, target=1, sender=1, receiver=1)
    record = SwitchRecord(
        fence=fence,
        outcome="applied",
        clip=1.0,
        norm=1.0,
        loss=1.0,
        cause="",
        codecs=codecs,
        later=codecs,
        generation=7,
    )
    machine = PipelineMachine(role(3, 1))
    with pytest.raises(RemoteProtocolError, match="plan 7 is not due"):
        machine.handle(say.RecordArrived(message=record), now=0.0)


def test_a_plan_that_comes_in_the_place_of_a_proposed_one_is_the_one_that_counts() -> None:
    machine = PipelineMachine(role(3, 1))
    for generation in (2, 3):
        incarnations = (Incarnation(1), Incarnation(generation), Incarnation(1))
        machine.handle(say.Proposed(generation=Generation(generation), incarnations=incarnations), now=0.0)
    assert machine.succession.proposed == 3
    machine.succession.begin(Step(4))
    assert [machine.succession.incarnations(step)[1] for step in (3, 4)] == [1, 3]
