"""One stage at work: asks ``protocol/pipeline`` what to do, and does it on the device and over links.

The device runs one piece of work at a time; while it runs, what the last one made is on its way, and what the
next one needs arrives.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import assert_never

import msgspec

from swarm.compress.boundaries import Direction
from swarm.compress.ladder import Encoded, TakenApart
from swarm.errors import FailureError
from swarm.ids import Generation, Incarnation, PeerId, StageIndex, Step, ValueId
from swarm.protocol.encodings import Encodings
from swarm.protocol.passes import PassName
from swarm.protocol.pipeline import PipelineMachine
from swarm.protocol.pipeline_events import (
    AdoptShared,
    Backward,
    Computed,
    Event,
    Fail,
    Finish,
    Forward,
    HandedOver,
    Measure,
    Measured,
    Proposed,
    RecordArrived,
    Refuse,
    ReportArrived,
    SendRecord,
    SendReport,
    SendShared,
    SendTensor,
    SharedAdopted,
    SharedArrived,
    Start,
    Switched,
    SwitchOrdered,
    TensorArrived,
    Update,
    Updated,
    WantReplay,
)
from swarm.schedule.tuning import Tuning
from swarm.services.context import Buffer, Context
from swarm.services.status.document import EncodingStatus
from swarm.services.training.coded import coded_message, reading
from swarm.services.training.loading import LoadedStage
from swarm.services.training.outbox import Outbox
from swarm.services.training.retuning import Retuning, neighbour_rates
from swarm.services.training.sent_log import SentLog
from swarm.services.training.snapshots import Snapshots
from swarm.services.training.stage_work import Made, StageWork
from swarm.services.training.step_records import progress_of, record_of
from swarm.services.training.traffic import Traffic
from swarm.train.device import DeviceThread
from swarm.wire.codecs import Codecs, CodecSpec
from swarm.wire.messages.handover import PlanTaken
from swarm.wire.messages.pipeline import (
    BoundaryTensor,
    CodedTensor,
    Fence,
    FenceRefused,
    Phase,
    RatedReport,
    SharedTensor,
    Square,
    StageReport,
    StepRecord,
)
from swarm.wire.numbers import measured
from swarm.wire.records.plan import Plan
from swarm.wire.text import printable

Work = Forward | Backward | Measure | Update | AdoptShared | SendShared | Fail
Ended = Finish | HandedOver
Deed = Work | SendTensor | SendReport | SendRecord | WantReplay | Switched | Ended
Data = BoundaryTensor | SharedTensor | StageReport | StepRecord


class StagePipeline:
    """One loaded stage."""

    def __init__(
        self,
        loaded: LoadedStage,
        *,
        context: Context,
        device: DeviceThread,
        snapshots: Snapshots,
        log: SentLog,
    ) -> None:
        self.loaded = loaded
        self.plan = loaded.plan
        self.proposed: Plan | None = None
        """The plan that may follow, or came last."""
        self.log = log
        self.on_want: Callable[[Step], object] = lambda _: None
        """Hears which step's messages a stage that catches up lacks."""
        self.on_switch: Callable[[], object] = lambda: None
        """Hears when the stage works under another plan, or is in charge of its own."""
        self._before: Plan | None = None
        """The plan before the last proposed one, once that has begun."""
        self.snapshots = snapshots
        self.machine = PipelineMachine(loaded.role)
        self.encodings = Encodings([stage.codec for stage in loaded.plan.stages])
        self.work = StageWork(loaded, self.encodings)
        records = loaded.role.quality is not None and loaded.role.stage == loaded.role.recorder
        self._retuning = Retuning(loaded) if records else None
        self._context = context
        self._device = device
        self.started = asyncio.Event()
        """Every stage of the plan is loaded."""
        self._todo: asyncio.Queue[Work | Ended | BaseException] = asyncio.Queue()
        self._made: Mapping[ValueId, TakenApart] = {}
        self._outbox = Outbox(self._todo.put_nowait)
        self._traffic = Traffic()

    @property
    def stage(self) -> StageIndex:
        """Which stage of its job this is."""
        return self.loaded.role.stage

    def sent(self) -> tuple[EncodingStatus, ...]:
        """What was sent each way so far, and what codecs lost of it."""
        role, agreed = self.loaded.role, self.encodings.of(self.machine.statistics().step)
        before = role.train.incoming[0].stage if role.train.incoming else role.stage
        codecs: dict[Direction, CodecSpec] = {"forward": agreed[role.stage], "backward": agreed[before]}
        return self._traffic.described(codecs, self.work.fidelity)

    async def run(self) -> Ended:
        """Do the device's work until the last step is done, or somebody else has the stage.

        Raises whatever goes wrong in this stage.
        """
        try:
            if self._retuning is not None:
                await self._retuning.fit(self._device)
            while not isinstance(work := await self._todo.get(), Ended):
                if isinstance(work, BaseException):
                    raise work
                await self._do(work)
            return work
        finally:
            self._outbox.close()

    def start(self) -> None:
        """Every stage of the plan is loaded, or this one is to catch up."""
        self._feed(Start())
        self.started.set()

    def propose(self, plan: Plan) -> None:
        """``plan`` may follow, from a step that the recorder will name."""
        self.proposed, self._before = plan, None
        self.log.begin_copies()
        incarnations = tuple(Incarnation(stage.incarnation) for stage in plan.stages)
        self._feed(Proposed(generation=Generation(plan.generation), incarnations=incarnations))

    def give_up(self, error: FailureError) -> None:
        """The stage cannot go on, for a reason outside of it."""
        self._todo.put_nowait(error)

    def order_switch(self, generation: int) -> None:
        """The coordinator wants the next step to be the last one before the proposed plan."""
        self._feed(SwitchOrdered(generation=Generation(generation)))

    def plan_at(self, step: int) -> Plan:
        """The plan under which ``step`` is made."""
        before, begun = self._before, self.machine.succession.has_begun(step)
        return self.plan if before is None or begun else before

    def check(self, message: BoundaryTensor | SharedTensor, size: int) -> None:
        """Raise RemoteProtocolError unless ``message``, which is due, may come with ``size`` bytes."""
        self.work.check(message, size)
        if isinstance(message, CodedTensor):
            self.work.check_codec(message)

    def take(self, sender: PeerId, message: Data, payload: memoryview) -> None:
        """A message from another stage; raises RemoteProtocolError for one that none would send."""
        match message:
            case BoundaryTensor():
                self.work.check(message, payload.nbytes)
                self._feed(TensorArrived(message=message, payload=reading(message, payload)), sender)
            case SharedTensor():
                self.work.check(message, payload.nbytes)
                plain = Encoded(header=message.header, payload=payload)
                self._feed(SharedArrived(message=message, payload=plain), sender)
            case StageReport():
                self._feed(ReportArrived(message=message), sender)
            case StepRecord():
                self._feed(RecordArrived(message=message), sender)
            case _:
                assert_never(message)

    # On the device.

    async def _do(self, work: Work) -> None:
        match work:
            case Forward():
                if (work.phase, work.micro_batch) == ("train", 0):
                    await self._copy(work.step)
                name = PassName(phase=work.phase, step=work.step)
                again = self.loaded.role.is_spot_check(name, work.micro_batch)
                items = await self.loaded.samples.read(
                    work.phase, work.step, 0 if again else work.micro_batch
                )
                work = replace(work, received=await self._read(work.received, work.phase, "forward"))
                self._computed(await self._device.run(self.work.forward, work, items))
            case Backward():
                work = replace(work, gradients=await self._read(work.gradients, "train", "backward"))
                self._computed(await self._device.run(self.work.backward, work))
            case Measure():
                measured = await self._device.run(self.work.measure, work)
                self._feed(Measured(squares=measured.squares, fault=measured.fault))
            case Update():
                await self._device.run(self.work.update, work)
                self._feed(Updated())
            case AdoptShared():
                await self._device.run(self.work.adopt, work)
                self._feed(SharedAdopted())
            case SendShared():
                self._send_shared(work, await self._device.run(self.work.shared, work))
            case Fail():
                await self._device.run(self.work.abandon)
            case _:
                assert_never(work)

    async def _copy(self, step: int) -> None:
        """Copy the stage's state at this boundary, if somebody wants it."""
        if self.snapshots.is_due(step):
            self.snapshots.keep(step, await self._device.run(partial(self.work.snapshot, used=False)), None)
        if self.snapshots.is_wanted(step):
            state = await self._device.run(partial(self.work.snapshot, used=True))
            self.snapshots.keep(step, state, (self.encodings.of(step), self.encodings.of(step + 1)))

    async def _read(
        self, payloads: Mapping[ValueId, object], phase: Phase, direction: Direction
    ) -> dict[ValueId, object]:
        """The payloads, their bytes decoded. Raises RemoteProtocolError for one that no codec writes."""
        found: dict[ValueId, object] = {}
        for value, payload in payloads.items():
            with self.work.blaming(value, phase, direction):
                found[value] = await payload if isinstance(payload, asyncio.Future) else payload
        return found

    def _computed(self, made: Made) -> None:
        """What was made is sent by the actions that its ``Computed`` brings."""
        self._made = made.tensors
        self._feed(Computed(loss=made.loss, metric=made.metric, fault=made.fault))

    # Decisions in, deeds out.

    def _feed(self, event: Event, sender: PeerId | None = None) -> None:
        for action in self.machine.handle(event, now=self._context.clock.elapsed()):
            if isinstance(action, Refuse):
                self._refuse(action, sender)
            else:
                self._perform(action)

    def _perform(self, action: Deed) -> None:
        match action:
            case Update():
                if action.later:
                    self.encodings.agree(action.step, action.later)
                self._todo.put_nowait(action)
            case (
                Forward()
                | Backward()
                | Measure()
                | AdoptShared()
                | SendShared()
                | Fail()
                | Finish()
                | HandedOver()
            ):
                self._todo.put_nowait(action)
            case SendTensor():
                self._send_tensor(action)
            case SendReport():
                self._send_report(action)
            case SendRecord():
                self._send_record(action)
            case WantReplay():
                self.on_want(action.step)
            case Switched():
                self._switch()
            case _:
                assert_never(action)

    def _switch(self) -> None:
        """The proposed plan is the plan."""
        if self.proposed is not None:
            self._before, self.plan = self.plan, self.proposed
            self.work.plan = self.snapshots.plan = self.plan
            if self._retuning is not None:
                self._retuning.follow(self.plan)
        self.on_switch()

    def _fence(self, target: StageIndex, step: int, phase: Phase) -> Fence:
        role, incarnations = self.loaded.role, self.machine.succession.incarnations(step)
        return Fence(
            job=role.job,
            step=step,
            phase=phase,
            source=role.stage,
            target=target,
            sender=incarnations[role.stage],
            receiver=incarnations[target],
        )

    def _send(self, message: Data, payload: Buffer = b"") -> None:
        """Send ``message`` to the stage that it is for, unless somebody else does; keep it for replays."""
        fence = message.fence
        if fence.phase == "train" and not isinstance(message, StageReport):
            self.log.keep(message, payload)
        if self.machine.succession.is_live(fence.step):
            holder = PeerId(self.plan_at(fence.step).stages[fence.target].holder)
            self._context.send(holder, message, payload)

    def _send_tensor(self, action: SendTensor) -> None:
        acknowledges = action.phase == "evaluate" and action.direction == "backward"
        message = BoundaryTensor(
            fence=self._fence(action.target, action.step, action.phase),
            micro_batch=action.micro_batch,
            tensor=action.value,
            direction=action.direction,
            header=None,
        )
        apart = None if acknowledges else self._made.get(action.value)
        if apart is None:
            self._send(message)
        else:
            self._outbox.post(apart, partial(self._send_encoded, message))

    def _send_encoded(self, message: BoundaryTensor, encoded: Encoded) -> None:
        self._traffic.count(message.direction, encoded)
        self._send(coded_message(message, encoded), encoded.payload)

    def _send_shared(self, action: SendShared, encoded: Encoded) -> None:
        message = SharedTensor(
            fence=self._fence(action.target, action.step, "train"),
            parameter=action.parameter,
            operator=action.operator,
            direction=action.direction,
            header=encoded.header,
        )
        self._send(message, encoded.payload)

    def _send_report(self, action: SendReport) -> None:
        recorder = self.loaded.role.recorder
        report = StageReport(
            fence=self._fence(recorder, action.step, action.phase),
            squares=tuple(Square(s.parameter, measured(s.total)) for s in action.squares),
            losses=tuple(measured(loss) for loss in action.losses),
            fault=printable(action.fault),
            fault_forward=action.fault_forward,
            compute_seconds=self.work.take_seconds(),
        )
        if self.loaded.role.quality is not None:
            holders = [stage.holder for stage in self.plan_at(action.step).stages]
            rates = neighbour_rates(self._context, self.loaded.role, holders)
            report = RatedReport(**msgspec.structs.asdict(report) | {"rates": rates})
        self._send(report)

    def _send_record(self, action: SendRecord) -> None:
        role = self.loaded.role
        tuning, later = self._retune(action)
        codecs = self.encodings.of(action.step)
        fence = self._fence(role.stage, action.step, action.phase)
        coordinator = self.loaded.job.coordinator
        self._context.send(coordinator, progress_of(action, fence, tuning, later))
        if action.switch is not None:
            taken = PlanTaken(job=role.job, generation=action.switch, step=action.step + 1)
            self._context.send(coordinator, taken)
        latest = later or (self.encodings.latest if action.switch is not None else ())
        for target in range(len(role.incarnations)):
            fence = self._fence(StageIndex(target), action.step, action.phase)
            self._send(record_of(action, fence, codecs, latest))

    def _retune(self, action: SendRecord) -> tuple[Tuning | None, Codecs]:
        """What is new of the codecs, and those of the step after next; empty where they are fixed."""
        if self._retuning is None or action.settlement.outcome != "applied":
            return None, ()
        latest = self.encodings.latest
        tuning = self._retuning.heard(latest, action.reports)
        return tuning, latest if tuning is None else tuning.codecs

    def _refuse(self, action: Refuse, sender: PeerId | None) -> None:
        if sender is not None:
            fence, generation = action.message.fence, self.plan.generation
            self._context.send(sender, FenceRefused(fence=fence, generation=generation))
