"""The pipeline machine against a reference 1F1B schedule, with messages in any order."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from swarm.errors import LocalError, RemoteProtocolError
from swarm.graph.stage import Edge, SharedParameter, SharedUse
from swarm.ids import Incarnation, JobId, OperatorIndex, StageIndex, Step, ValueId
from swarm.protocol import pipeline_events as say
from swarm.protocol.order import default_depth
from swarm.protocol.passes import Passes, PassName
from swarm.protocol.pipeline import PipelineMachine
from swarm.wire.codecs import CodecSpec, Quality, parse_policy
from swarm.wire.messages.pipeline import (
    BoundaryTensor,
    Fence,
    SharedTensor,
    Square,
    StageReport,
    StepRecord,
    TunedRecord,
)
from swarm.wire.tensors import TensorHeader

JOB = JobId("a" * 52)
HEADER = TensorHeader("float32", (1,), (1,))
TIED = ValueId(90)


def chain(stages: int, stage: int, *, first: int) -> say.Route:
    """Stage s sends value first+s to s+1; stage 0's value is also relayed to the last stage."""

    def edge(value: int, other: int) -> Edge:
        return Edge(value=ValueId(value), stage=StageIndex(other), gradient=True)

    incoming = [edge(first + stage - 1, stage - 1)] if stage > 0 else []
    outgoing = [edge(first + stage, stage + 1)] if stage < stages - 1 else []
    if stages > 2:
        if stage == 1:
            outgoing.append(edge(first, stages - 1)) if stages > 2 else None
        if stage == stages - 1:
            incoming.append(edge(first, 1))
    unique_in = {e.value: e for e in incoming}
    return say.Route(
        incoming=tuple(unique_in.values()), outgoing=tuple({e.value: e for e in outgoing}.values())
    )


def passes(steps: int = 2, validate_every: int = 0) -> Passes:
    return Passes(first_step=0, steps=steps, evaluates=True, validate_every=validate_every)


def role(stages: int, stage: int, **changes: object) -> say.StageRole:
    shared = ()
    if stages > 1:
        uses = (
            SharedUse(operator=OperatorIndex(0), stage=StageIndex(0)),
            SharedUse(operator=OperatorIndex(99), stage=StageIndex(stages - 1)),
        )
        shared = (SharedParameter(parameter=TIED, owner=StageIndex(0), uses=uses),)
    settings: dict[str, object] = {
        "job": JOB,
        "stage": StageIndex(stage),
        "incarnations": tuple(Incarnation(1) for _ in range(stages)),
        "depths": tuple(default_depth(k, stages) for k in range(stages)),
        "passes": passes(),
        "micro_batches": 4,
        "evaluation_batches": 3,
        "validation_batches": 2,
        "train": chain(stages, stage, first=10),
        "evaluate": chain(stages, stage, first=50),
        "shared": shared if stage in (0, stages - 1) else (),
        "clip_norm": 1.0,
    }
    return say.StageRole(**(settings | changes))  # type: ignore[arg-type]


def reference_order(micro_batches: int, stages: int, stage: int) -> list[tuple[str, int]]:
    """1F1B written from its definition: a stage prefers a backward once it holds as many as it may."""
    limit, forwards, backwards, order = stages - stage, 0, 0, []
    while backwards < micro_batches:
        if forwards < micro_batches and forwards - backwards < limit:
            order.append(("forward", forwards))
            forwards += 1
        else:
            order.append(("backward", backwards))
            backwards += 1
    return order


@dataclass
class World:
    """All stages of one job, with every message and device answer in one bag, taken out in random order."""

    machines: list[PipelineMachine]
    chance: random.Random
    bag: list[tuple[int, say.Event]] = field(default_factory=list)
    done: list[list[tuple[str, str, int, int]]] = field(default_factory=list)
    received: list[tuple[int, say.Action]] = field(default_factory=list)
    ended: dict[int, say.Action] = field(default_factory=dict)
    fault_at: tuple[int, int] | None = None

    def run(self) -> None:
        self.done = [[] for _ in self.machines]
        for stage in range(len(self.machines)):
            self.bag.append((stage, say.Start()))
        while self.bag:
            stage, event = self.bag.pop(self.chance.randrange(len(self.bag)))
            self.feed(stage, event)

    def feed(self, stage: int, event: say.Event) -> None:
        machine = self.machines[stage]
        for action in machine.handle(event, now=0.0):
            self.perform(stage, action)
        machine.check()

    def fence(self, source: int, target: int, phase: str, step: int) -> Fence:
        return Fence(
            job=JOB,
            step=step,
            phase=phase,
            source=source,
            target=target,
            sender=1,
            receiver=1,  # type: ignore[arg-type]
        )

    def perform(self, stage: int, action: say.Action) -> None:
        last = len(self.machines) - 1
        match action:
            case say.Forward():
                self.done[stage].append((action.phase, "forward", action.step, action.micro_batch))
                self.received.append((stage, action))
                fault = "blocks.1" if self.fault_at == (stage, action.step) else ""
                loss = float(action.step + action.micro_batch) if stage == last else None
                if self.fault_at is not None and loss is not None and action.step == self.fault_at[1]:
                    loss = math.nan
                self.bag.append((stage, say.Computed(loss=loss, fault=fault)))
            case say.Backward():
                self.done[stage].append(("train", "backward", action.step, action.micro_batch))
                self.received.append((stage, action))
                self.bag.append((stage, say.Computed()))
            case say.SendTensor():
                gradient = action.direction == "forward" or action.phase == "train"
                message = BoundaryTensor(
                    fence=self.fence(stage, action.target, action.phase, action.step),
                    micro_batch=action.micro_batch,
                    tensor=action.value,
                    direction=action.direction,
                    header=HEADER if gradient else None,
                )
                payload = (stage, action.micro_batch, action.value, action.direction)
                self.bag.append((action.target, say.TensorArrived(message=message, payload=payload)))
            case say.SendShared():
                shared = SharedTensor(
                    fence=self.fence(stage, action.target, "train", action.step),
                    parameter=action.parameter,
                    operator=action.operator,
                    direction=action.direction,
                    header=HEADER,
                )
                self.bag.append(
                    (action.target, say.SharedArrived(message=shared, payload=(stage, action.step)))
                )
            case say.Measure():
                self.received.append((stage, action))
                squares = (Square(stage, 4.0),) if action.phase == "train" else ()
                self.bag.append((stage, say.Measured(squares=squares)))
            case say.SendReport():
                report = StageReport(
                    fence=self.fence(stage, last, action.phase, action.step),
                    squares=action.squares,
                    losses=action.losses,
                    fault=action.fault,
                    fault_forward=action.fault_forward,
                    compute_seconds=0.0,
                )
                self.bag.append((last, say.ReportArrived(message=report)))
            case say.SendRecord():
                for target in range(len(self.machines)):
                    found = action.settlement
                    record = StepRecord(
                        fence=self.fence(stage, target, action.phase, action.step),
                        outcome=found.outcome,
                        clip=found.clip,
                        norm=found.norm,
                        loss=found.loss,
                        cause=found.cause,
                    )
                    self.bag.append((target, say.RecordArrived(message=record)))
            case say.Update():
                self.bag.append((stage, say.Updated()))
            case say.AdoptShared():
                self.bag.append((stage, say.SharedAdopted()))
            case say.Finish() | say.Fail():
                assert stage not in self.ended
                self.ended[stage] = action
            case say.Refuse():
                raise AssertionError("nothing here is old")


def worlds() -> Iterator[tuple[int, int, int]]:
    for stages in range(1, 7):
        for micro_batches in range(1, 8):
            yield stages, micro_batches, stages * 100 + micro_batches


@pytest.mark.parametrize(("stages", "micro_batches", "seed"), list(worlds()))
def test_every_stage_works_in_the_order_of_reference_1f1b(stages: int, micro_batches: int, seed: int) -> None:
    for repeat in range(3):
        machines = [PipelineMachine(role(stages, k, micro_batches=micro_batches)) for k in range(stages)]
        world = World(machines, random.Random(seed * 10 + repeat))
        world.run()
        for stage in range(stages):
            reference = reference_order(micro_batches, stages, stage)
            for step in (0, 1):
                mine = [
                    (kind, m) for phase, kind, s, m in world.done[stage] if phase == "train" and s == step
                ]
                assert mine == reference
            evaluated = [
                m for phase, kind, _, m in world.done[stage] if phase == "evaluate" and kind == "forward"
            ]
            assert evaluated == [0, 1, 2]
            assert world.ended[stage] == say.Finish(held_out=3.0)  # mean of 2+0, 2+1, 2+2
            assert machines[stage].statistics().state == "finished"


@pytest.mark.parametrize("stages", range(1, 6))
@pytest.mark.parametrize("every", [1, 2, 3])
def test_evaluation_passes_come_between_two_steps_and_leave_the_steps_as_they_were(
    stages: int, every: int
) -> None:
    calendar = passes(5, every)
    validating = {"passes": calendar, "micro_batches": 3}
    for seed in range(3):
        world = World(
            [PipelineMachine(role(stages, k, **validating)) for k in range(stages)], random.Random(seed)
        )
        world.run()
        plain = World(
            [PipelineMachine(role(stages, k, passes=passes(5), micro_batches=3)) for k in range(stages)],
            random.Random(seed),
        )
        plain.run()
        for stage, done in enumerate(world.done):
            trained = [work for work in done if work[0] == "train"]
            assert trained == [work for work in plain.done[stage] if work[0] == "train"]
            order = list(dict.fromkeys((phase, step) for phase, _, step, _ in done))
            assert order == [(name.phase, name.step) for name in map(calendar.at, range(calendar.count))]
            for phase, step in order:
                forwards = [m for p, kind, s, m in done if (p, s, kind) == (phase, step, "forward")]
                batches = 3 if phase == "train" or step == 5 else 2
                assert forwards == list(range(batches))
            assert world.ended[stage] == say.Finish(held_out=6.0)  # mean of 5+0, 5+1, 5+2
            assert world.machines[stage].arrivals.duplicates == 0


@pytest.mark.parametrize(("metrics", "expected"), [((), None), ((1.0, 0.0, 0.5), 0.5)])
def test_the_recorder_settles_an_evaluation_with_the_mean_of_its_metrics(
    metrics: tuple[float, ...], expected: float | None
) -> None:
    machine = PipelineMachine(role(1, 0, passes=passes(1), micro_batches=1))
    machine.arrivals.index = 1  # the evaluation after the last step
    actions = machine.handle(say.Start(), now=0.0)
    for index in range(3):
        assert [type(action) for action in actions] == [say.Forward]
        metric = metrics[index] if metrics else None
        actions = machine.handle(say.Computed(loss=1.0, metric=metric), now=0.0)
        machine.check()
    actions = machine.handle(say.Measured(squares=()), now=0.0)
    [sent] = actions
    assert isinstance(sent, say.SendReport)
    own = StageReport(
        fence=fence_of_one(),
        squares=(),
        losses=sent.losses,
        fault="",
        fault_forward=False,
        compute_seconds=0.0,
    )
    [recorded] = machine.handle(say.ReportArrived(message=own), now=0.0)
    assert isinstance(recorded, say.SendRecord)
    assert recorded.settlement.metric == expected
    assert recorded.settlement.outcome == "evaluated"


def fence_of_one() -> Fence:
    return Fence(job=JOB, step=1, phase="evaluate", source=0, target=0, sender=1, receiver=1)


def test_an_evaluation_between_steps_that_breaks_fails_the_job_in_every_stage() -> None:
    machines = [PipelineMachine(role(3, k, passes=passes(5, 2))) for k in range(3)]
    world = World(machines, random.Random(2), fault_at=(1, 2))
    world.run()
    for stage in range(3):
        failed = world.ended[stage]
        assert isinstance(failed, say.Fail)
        assert failed.step == 2
        assert "blocks.1" in failed.cause
        assert not [work for work in world.done[stage] if work[0] == "train" and work[2] >= 2]


@pytest.mark.parametrize(
    ("step", "phase", "why"),
    [
        (1, "evaluate", "step 1 is no evaluation pass"),
        (3, "evaluate", "step 3 is no evaluation pass"),
        (6, "evaluate", "step 6 is no evaluation pass"),
        (2, "evaluate", "step 2 is too far ahead"),
        (4, "evaluate", "step 4 is too far ahead"),
        (5, "train", "step 5 is not of this plan"),
    ],
)
def test_a_pass_that_is_not_due_is_refused(step: int, phase: str, why: str) -> None:
    machine = PipelineMachine(role(3, 1, passes=passes(5, 2)))
    event = record("evaluated" if phase == "evaluate" else "applied", phase=phase, step=step)
    with pytest.raises(RemoteProtocolError, match=why):
        machine.handle(event, now=0.0)
    tensor = arrived(step=step, phase=phase, tensor=50 if phase == "evaluate" else 10)
    with pytest.raises(RemoteProtocolError, match="refused"):
        machine.arrivals.check(tensor.message)
    machine.check()


def test_while_an_evaluation_runs_tensors_of_the_step_after_it_are_kept_and_its_record_is_due() -> None:
    machine = PipelineMachine(role(3, 1, passes=passes(5, 2)))
    machine.arrivals.index = 2  # train 0, train 1, evaluate 2, train 2
    machine.handle(arrived(step=2), now=0.0)
    machine.handle(arrived(step=2, phase="evaluate", tensor=50), now=0.0)
    with pytest.raises(RemoteProtocolError, match="step 3 is too far ahead"):
        machine.handle(arrived(step=3), now=0.0)
    for wrong in (record("applied", phase="evaluate", step=2), record("evaluated", phase="train", step=2)):
        with pytest.raises(RemoteProtocolError, match="refused"):
            machine.handle(wrong, now=0.0)
    machine.check()


def test_work_gets_exactly_the_payloads_of_its_micro_batch() -> None:
    world = World([PipelineMachine(role(4, k)) for k in range(4)], random.Random(5))
    world.run()
    for stage, action in world.received:
        if isinstance(action, say.Forward):
            route = (
                world.machines[stage].role.train
                if action.phase == "train"
                else world.machines[stage].role.evaluate
            )
            assert {value: payload[1] for value, payload in action.received.items()} == {  # type: ignore[index]
                edge.value: action.micro_batch for edge in route.incoming
            }
        elif isinstance(action, say.Backward):
            route = world.machines[stage].role.train
            assert {value: payload[3] for value, payload in action.gradients.items()} == {  # type: ignore[index]
                edge.value: "backward" for edge in route.outgoing
            }


def test_shared_gradients_reach_the_owner_and_values_come_back_once_a_step() -> None:
    world = World([PipelineMachine(role(3, k)) for k in range(3)], random.Random(1))
    world.run()
    measured = [action for stage, action in world.received if stage == 0 and isinstance(action, say.Measure)]
    assert [dict(action.shared) for action in measured] == [
        {(TIED, OperatorIndex(99)): (2, 0)},
        {(TIED, OperatorIndex(99)): (2, 1)},
        {},
    ]


def test_a_fault_fails_the_step_in_every_stage_and_names_where_it_began() -> None:
    world = World([PipelineMachine(role(3, k)) for k in range(3)], random.Random(2), fault_at=(1, 1))
    world.run()
    for stage in range(3):
        failed = world.ended[stage]
        assert isinstance(failed, say.Fail)
        assert failed.step == 1
        assert "forward pass of stage 2 of 3 (blocks.1)" in failed.cause


def arrived(**changes: object) -> say.TensorArrived:
    fence = {"job": JOB, "step": 0, "phase": "train", "source": 0, "target": 1, "sender": 1, "receiver": 1}
    message = {"micro_batch": 0, "tensor": 10, "direction": "forward", "header": HEADER}
    fence |= {k: v for k, v in changes.items() if k in fence}
    message |= {k: v for k, v in changes.items() if k in message}
    return say.TensorArrived(
        message=BoundaryTensor(fence=Fence(**fence), **message),
        payload=b"x",  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"job": "b" * 52},
        {"target": 2},
        {"source": 7},
        {"source": 2},
        {"tensor": 11},
        {"direction": "backward"},
        {"micro_batch": 3},  # stage 0 of 3 has at most 3 in flight: 0, 1, 2
        {"micro_batch": 400},
        {"step": 3},
        {"step": 2},
        {"phase": "evaluate", "step": 1},
        {"header": None},
        {"direction": "backward", "tensor": 11, "source": 2, "phase": "evaluate", "step": 4},
    ],
)
def test_a_message_no_stage_would_send_is_refused_and_leaves_nothing(changes: dict[str, object]) -> None:
    machine = PipelineMachine(role(3, 1, passes=passes(4)))
    with pytest.raises(RemoteProtocolError, match="refused"):
        machine.handle(arrived(**changes), now=0.0)
    assert not machine.arrivals.current.tensors


@pytest.mark.parametrize(
    "fence",
    [
        {"sender": 4, "receiver": 3},
        {"sender": 5, "receiver": 2},
        {"sender": 6, "receiver": 3},
        {"sender": 2**53 - 1, "receiver": 3},
    ],
)
def test_what_belongs_to_another_plan_is_refused_and_nothing_of_it_is_kept(fence: dict[str, object]) -> None:
    machine = PipelineMachine(role(3, 1, incarnations=(Incarnation(5), Incarnation(3), Incarnation(2))))
    event = arrived(**fence)
    with pytest.raises(RemoteProtocolError, match="another plan"):
        machine.arrivals.check(event.message)
    assert machine.handle(event, now=0.0) == [say.Refuse(message=event.message)]
    assert not machine.arrivals.current.tensors


def fence(source: int, target: int, *, phase: str = "train", step: int = 0) -> Fence:
    return Fence(
        job=JOB,
        step=step,
        phase=phase,  # type: ignore[arg-type]
        source=source,
        target=target,
        sender=1,
        receiver=1,
    )


def record(outcome: str, **changes: object) -> say.RecordArrived:
    where = {"phase": "train", "step": 0} | {k: v for k, v in changes.items() if k in {"phase", "step"}}
    numbers = {"loss": 1.0, "norm": 1.0} | {k: v for k, v in changes.items() if k in {"loss", "norm"}}
    message = StepRecord(fence=fence(2, 1, **where), outcome=outcome, clip=1.0, cause="", **numbers)  # type: ignore[arg-type]
    return say.RecordArrived(message=message)


def test_the_spot_check_is_one_micro_batch_more_at_the_end_of_an_evaluation() -> None:
    checked = role(3, 1, spot_checks=True)
    train, evaluate = (
        PassName(phase=phase, step=Step(checked.passes.steps)) for phase in ("train", "evaluate")
    )
    assert (checked.batches(train), checked.batches(evaluate)) == (4, 4)
    assert [checked.is_spot_check(evaluate, number) for number in range(4)] == [False] * 3 + [True]
    assert not any(checked.is_spot_check(train, number) for number in range(4))
    assert role(3, 1).batches(evaluate) == 3
    assert not role(3, 1).is_spot_check(evaluate, 2)


def tuned(*later: str, **changes: object) -> say.RecordArrived:
    plain = record("applied", **changes).message
    codecs = tuple(parse_policy(codec).codec for codec in later)
    fields = msgspec.structs.asdict(plain) | {"codecs": codecs, "later": codecs}
    return say.RecordArrived(message=TunedRecord(**fields))


@pytest.mark.parametrize(
    ("quality", "event", "why"),
    [
        (None, tuned("none", "none", "none"), "the codecs of this job are those of its plan"),
        ("any", tuned("none", "none"), "not one codec for each of 3 stages"),
        ("tolerant", tuned("int4", "topk:10%", "none"), "a codec is none of quality tolerant"),
        ("lossless", tuned("int8", "none", "none"), "a codec is none of quality lossless"),
    ],
)
def test_a_record_with_codecs_that_the_job_does_not_allow_is_refused(
    quality: Quality | None, event: say.RecordArrived, why: str
) -> None:
    machine = PipelineMachine(role(3, 1, quality=quality))
    machine.handle(say.Start(), now=0.0)
    with pytest.raises(RemoteProtocolError, match=why):
        machine.handle(event, now=0.0)


def test_the_codecs_of_a_record_come_with_the_update_of_its_step() -> None:
    machine = PipelineMachine(role(1, 0, micro_batches=1, quality="any"))
    machine.handle(say.Start(), now=0.0)
    machine.handle(say.Computed(loss=1.0), now=0.0)
    machine.handle(say.Computed(), now=0.0)
    machine.handle(say.Measured(squares=()), now=0.0)
    message = msgspec.structs.replace(tuned("int6").message, fence=fence(0, 0))
    (update,) = machine.handle(say.RecordArrived(message=message), now=0.0)
    assert update == say.Update(step=Step(0), clip=1.0, later=(CodecSpec("int6"),))


def report(source: int, losses: tuple[float, ...], **changes: object) -> say.ReportArrived:
    squares = (Square(1, 1.0),) if changes.pop("squares", True) else ()
    message = StageReport(
        fence=fence(source, 2, **changes),  # type: ignore[arg-type]
        squares=squares,
        losses=losses,
        fault="",
        fault_forward=False,
        compute_seconds=0.0,
    )
    return say.ReportArrived(message=message)


def shared(direction: str, source: int, target: int, **changes: object) -> say.SharedArrived:
    message = SharedTensor(
        fence=fence(source, target, **changes),  # type: ignore[arg-type]
        parameter=TIED,
        operator=99 if direction == "gradient" else 0,
        direction=direction,  # type: ignore[arg-type]
        header=HEADER,
    )
    return say.SharedArrived(message=message, payload=b"x")


@pytest.mark.parametrize(
    ("stage", "event"),
    [
        (1, record("evaluated")),
        (1, record("applied", phase="evaluate", step=2)),
        (1, record("applied", loss=math.inf)),
        (1, record("applied", norm=math.inf)),
        (2, report(0, (1.0,))),
        (2, report(2, ())),
        (2, report(2, (1.0,) * 5)),
        (2, report(2, (1.0,) * 3, phase="evaluate", step=2)),
        (0, shared("gradient", 2, 0, phase="evaluate", step=2)),
        (2, shared("value", 0, 2, phase="evaluate", step=2)),
        (0, shared("value", 0, 0)),
        (2, shared("gradient", 0, 2)),
    ],
)
def test_what_does_not_fit_its_pass_is_charged_to_its_sender(stage: int, event: say.Event) -> None:
    machine = PipelineMachine(role(3, stage))
    if event.message.fence.phase == "evaluate":  # type: ignore[union-attr]
        machine.arrivals.index = 1  # so that the evaluation pass is the next
    with pytest.raises(RemoteProtocolError, match="refused"):
        machine.handle(event, now=0.0)
    machine.check()


def test_a_repeated_tensor_changes_nothing() -> None:
    machine = PipelineMachine(role(3, 1))
    assert machine.handle(say.Start(), now=1.0) == []
    forward = machine.handle(arrived(), now=2.0)
    assert [type(action) for action in forward] == [say.Forward]
    assert machine.handle(arrived(), now=3.0) == []
    assert machine.statistics().duplicates == 1
    machine.check()


def test_waiting_says_for_which_tensor_from_which_stage() -> None:
    machine = PipelineMachine(role(3, 1))
    machine.handle(say.Start(), now=1.0)
    assert machine.waiting() == "the activation of micro-batch 0 from stage 1"
    machine.handle(arrived(), now=2.0)
    assert machine.waiting() == ""


def test_answers_to_nothing_are_bugs() -> None:
    machine = PipelineMachine(role(2, 0))
    with pytest.raises(LocalError):
        machine.handle(say.Computed(), now=0.0)
    machine.handle(say.Start(), now=0.0)
    with pytest.raises(LocalError):
        machine.handle(say.Updated(), now=0.0)


def test_a_second_start_is_charged_to_whoever_sent_it() -> None:
    machine = PipelineMachine(role(2, 0))
    machine.handle(say.Start(), now=0.0)
    with pytest.raises(RemoteProtocolError, match="started twice"):
        machine.handle(say.Start(), now=0.0)


def test_depths_that_would_wait_for_each_other_are_refused() -> None:
    with pytest.raises(LocalError, match="depths"):
        role(3, 0, depths=(1, 2, 1))
