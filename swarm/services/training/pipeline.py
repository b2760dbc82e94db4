"""One stage at work: asks ``protocol/pipeline`` what to do, and does it on the device and over links.

The device runs one piece of work at a time; while it runs, what the last one made is on its way, and what the
next one needs arrives.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

import msgspec

from swarm.compress.boundaries import Direction
from swarm.compress.ladder import Encoded, TakenApart, read
from swarm.ids import PeerId, StageIndex, ValueId
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
    Measure,
    Measured,
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
    TensorArrived,
    Update,
    Updated,
)
from swarm.schedule.tuning import Tuning
from swarm.services.context import Context
from swarm.services.status.document import EncodingStatus
from swarm.services.training.loading import LoadedStage
from swarm.services.training.outbox import Outbox
from swarm.services.training.retuning import Retuning, neighbour_rates
from swarm.services.training.snapshots import Snapshots
from swarm.services.training.stage_work import Made, StageWork
from swarm.train.device import DeviceThread
from swarm.wire.codecs import Codecs
from swarm.wire.messages.jobs import JobProgress, JobSpotCheck, JobTuning, JobValidation
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
    TunedRecord,
)
from swarm.wire.numbers import measured
from swarm.wire.text import printable

Work = Forward | Backward | Measure | Update | AdoptShared | SendShared | Fail
Deed = Work | SendTensor | SendReport | SendRecord | Finish
Data = BoundaryTensor | SharedTensor | StageReport | StepRecord


@dataclass(slots=True)
class _Traffic:
    """Bytes of boundary tensors, one way."""

    dense: int = 0
    """As they are."""
    sent: int = 0
    """As they were sent."""


class StagePipeline:
    """One loaded stage."""

    def __init__(
        self,
        loaded: LoadedStage,
        *,
        context: Context,
        device: DeviceThread,
        snapshots: Snapshots,
    ) -> None:
        self.loaded = loaded
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
        self._todo: asyncio.Queue[Work | Finish | BaseException] = asyncio.Queue()
        self._made: Mapping[ValueId, TakenApart] = {}
        self._outbox = Outbox(self._todo.put_nowait)
        self._traffic: dict[Direction, _Traffic] = {}

    @property
    def stage(self) -> StageIndex:
        """Which stage of its job this is."""
        return self.loaded.role.stage

    def sent(self) -> tuple[EncodingStatus, ...]:
        """What was sent each way so far, and what codecs lost of it."""
        role, agreed = self.loaded.role, self.encodings.of(self.machine.statistics().step)
        before = role.train.incoming[0].stage if role.train.incoming else role.stage
        codecs = {"forward": agreed[role.stage], "backward": agreed[before]}
        found = []
        for direction, traffic in sorted(self._traffic.items()):
            looked_at = self.work.fidelity(direction)
            error = looked_at.relative_error if looked_at is not None else math.nan
            cosine = looked_at.cosine if looked_at is not None else math.nan
            found.append(
                EncodingStatus(
                    direction=direction,
                    codec=str(codecs[direction]),
                    bytes=traffic.dense,
                    sent=traffic.sent,
                    relative_error=error if math.isfinite(error) else None,
                    cosine=cosine if math.isfinite(cosine) else None,
                )
            )
        return tuple(found)

    async def run(self) -> None:
        """Do the device's work until the last step is done. Raises whatever goes wrong in this stage."""
        try:
            if self._retuning is not None:
                await self._retuning.fit(self._device)
            while not isinstance(work := await self._todo.get(), Finish):
                if isinstance(work, BaseException):
                    raise work
                await self._do(work)
        finally:
            self._outbox.close()

    def start(self) -> None:
        """Every stage of the plan is loaded."""
        self._feed(Start())
        self.started.set()

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
                self._feed(TensorArrived(message=message, payload=_reading(message, payload)), sender)
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
                if (work.phase, work.micro_batch) == ("train", 0) and self.snapshots.is_due(work.step):
                    self.snapshots.keep(work.step, await self._device.run(self.work.snapshot))
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
            case Forward() | Backward() | Measure() | AdoptShared() | SendShared() | Fail() | Finish():
                self._todo.put_nowait(action)
            case SendTensor():
                self._send_tensor(action)
            case SendReport():
                self._send_report(action)
            case SendRecord():
                self._send_record(action)
            case _:
                assert_never(action)

    def _fence(self, target: StageIndex, step: int, phase: Phase) -> Fence:
        role = self.loaded.role
        return Fence(
            job=role.job,
            step=step,
            phase=phase,
            source=role.stage,
            target=target,
            sender=role.incarnations[role.stage],
            receiver=role.incarnations[target],
        )

    def _holder(self, stage: int) -> PeerId:
        return PeerId(self.loaded.plan.stages[stage].holder)

    def _send_tensor(self, action: SendTensor) -> None:
        acknowledges = action.phase == "evaluate" and action.direction == "backward"
        message = BoundaryTensor(
            fence=self._fence(action.target, action.step, action.phase),
            micro_batch=action.micro_batch,
            tensor=action.value,
            direction=action.direction,
            header=None,
        )
        holder = self._holder(action.target)
        apart = None if acknowledges else self._made.get(action.value)
        if apart is None:
            self._context.send(holder, message, b"")
        else:
            self._outbox.post(apart, partial(self._send_encoded, holder, message))

    def _send_encoded(self, holder: PeerId, message: BoundaryTensor, encoded: Encoded) -> None:
        traffic = self._traffic.setdefault(message.direction, _Traffic())
        traffic.dense += encoded.header.payload_bytes
        traffic.sent += encoded.payload.nbytes
        self._context.send(holder, _message(message, encoded), encoded.payload)

    def _send_shared(self, action: SendShared, encoded: Encoded) -> None:
        message = SharedTensor(
            fence=self._fence(action.target, action.step, "train"),
            parameter=action.parameter,
            operator=action.operator,
            direction=action.direction,
            header=encoded.header,
        )
        self._context.send(self._holder(action.target), message, encoded.payload)

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
            holders = [stage.holder for stage in self.loaded.plan.stages]
            rates = neighbour_rates(self._context, self.loaded.role, holders)
            report = RatedReport(**msgspec.structs.asdict(report) | {"rates": rates})
        self._context.send(self._holder(recorder), report)

    def _send_record(self, action: SendRecord) -> None:
        role, found = self.loaded.role, action.settlement
        progress = JobProgress(
            job=role.job,
            incarnation=role.incarnations[role.stage],
            step=action.step,
            outcome=found.outcome,
            clip=found.clip,
            norm=measured(found.norm),
            loss=measured(found.loss),
            cause=printable(found.cause),
        )
        fields = msgspec.structs.asdict(progress)
        if found.metric is not None or found.spot_check is not None:
            fields["metric"] = measured(math.inf if found.metric is None else found.metric)
            progress = JobValidation(**fields)
        if found.spot_check is not None:
            losses = {"encoded": found.spot_check.encoded, "lossless": found.spot_check.lossless}
            progress = JobSpotCheck(**fields | {name: measured(loss) for name, loss in losses.items()})
        tuning, later = self._retune(action)
        if tuning is not None:
            progress = JobTuning(**fields | {"later": later, "hiding": printable(tuning.hiding)})
        self._context.send(self.loaded.job.coordinator, progress)
        for target in range(len(role.incarnations)):
            record = StepRecord(
                fence=self._fence(StageIndex(target), action.step, action.phase),
                outcome=found.outcome,
                clip=found.clip,
                norm=measured(found.norm),
                loss=measured(found.loss),
                cause=printable(found.cause),
            )
            if later:
                codecs = {"codecs": self.encodings.of(action.step), "later": later}
                record = TunedRecord(**msgspec.structs.asdict(record) | codecs)
            self._context.send(self._holder(target), record)

    def _retune(self, action: SendRecord) -> tuple[Tuning | None, Codecs]:
        """What is new of the codecs, and those of the step after next; empty where they are fixed."""
        if self._retuning is None or action.settlement.outcome != "applied":
            return None, ()
        latest = self.encodings.latest
        tuning = self._retuning.heard(latest, action.reports)
        return tuning, latest if tuning is None else tuning.codecs

    def _refuse(self, action: Refuse, sender: PeerId | None) -> None:
        if sender is not None:
            fence, generation = action.message.fence, self.loaded.plan.generation
            self._context.send(sender, FenceRefused(fence=fence, generation=generation))


def _message(message: BoundaryTensor, encoded: Encoded) -> BoundaryTensor:
    """``message`` with what describes its payload."""
    if encoded.coding is None:
        return msgspec.structs.replace(message, header=encoded.header)
    fields = msgspec.structs.asdict(message) | {"header": encoded.header, "coding": encoded.coding}
    return CodedTensor(**fields)


def _reading(message: BoundaryTensor, payload: memoryview) -> object:
    """The payload as the machine keeps it: what arrived, or the task that decodes its bytes."""
    if message.header is None:
        return None
    if not isinstance(message, CodedTensor):
        return Encoded(header=message.header, payload=payload)
    encoded = Encoded(header=message.header, payload=payload, coding=message.coding)
    reading = asyncio.get_running_loop().run_in_executor(None, read, encoded)
    reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may never be waited for
    return reading
