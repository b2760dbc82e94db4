"""The status document: what ``GET /status`` answers (DESIGN section 5), as closed types.

Every node makes one on request. The dashboard, the terminal views, the metrics and ``/openapi.json`` all come
from these types, so a field that is added here appears in the schema too. Times are wall seconds since
1970 UTC, durations seconds, sizes bytes, rates bytes a second. Absent numbers are null, never NaN.
"""

from typing import Literal

from msgspec import Struct, field

from swarm.protocol.joining import Source
from swarm.wire.messages.hello import Role
from swarm.wire.messages.jobs import JobState

EventKind = Literal[
    "joined",
    "linked",
    "left",
    "job",
    "plan",
    "training",
    "refused",
    "revoked",
    "trouble",
    "paused",
    "resumed",
]

KnownBy = Literal["self", "link", "gossip", "met", "dht"]


class PeerStatus(Struct, frozen=True, kw_only=True):
    """The node that answers."""

    id: str
    name: str
    """The folder of its home, by which its owner knows it."""
    role: Role
    since: float
    """When the program started."""
    addresses: tuple[str, ...]
    """``host:port`` where it says it can be reached."""
    device: str
    """Where it computes (``cpu``, ``cuda:0``); empty where it does not."""
    memory: int
    """Bytes it offers to stages."""
    memory_used: int
    """Bytes of them that plans have given it."""
    stages: int = 0
    """How many stages it holds."""
    paused: float | None = None
    """Since when its user has it give itself to no job; null while it works."""


class SwarmStatus(Struct, frozen=True, kw_only=True):
    """The swarm that the node belongs to."""

    id: str
    name: str


class AttemptStatus(Struct, frozen=True, kw_only=True):
    """The last call that this node made to one address of a peer."""

    address: str
    answer: str
    """What it answered, with the address as its subject; empty where it gave the link."""
    seconds: float
    began: float


class MemberStatus(Struct, frozen=True, kw_only=True):
    """A peer that was admitted, as far as this node knows; the node itself is among them."""

    id: str
    role: Role
    invite: str
    """Id of the invite by which it came."""
    label: str
    linked: bool
    """True while there is a link to it, and for the node itself."""
    address: str
    device: str
    memory: int
    since: float
    """When this node first met it; of one that it has not met, as ``heard``."""
    attempts: tuple[AttemptStatus, ...] = ()
    """How it was called last where there is no link to it, the latest at the end."""
    waiting: str = ""
    """``for a relay`` where it is in the swarm and neither of the two can call the other; else empty."""
    known: KnownBy = "met"
    """By a link that is up, else by gossip, else since it was met once, or by what it has in the DHT only."""
    heard: float | None = None
    """When it signed what is known of it by gossip; null without that."""


class GroupStatus(Struct, frozen=True, kw_only=True):
    """An OP-Fence group: peers with high bandwidth among themselves, and the stages they own.

    Until rates are measured, the holders of a plan count as one group: so the planner treats them.
    """

    peers: tuple[str, ...]
    stages: tuple[int, ...]


class EncodingStatus(Struct, frozen=True, kw_only=True):
    """What a stage sends one way, by its codec. Measured every ten steps on one tensor; null until then."""

    direction: Literal["forward", "backward"]
    codec: str
    bytes: int
    """What all tensors so far have as they are."""
    sent: int
    """What they took on the link."""
    relative_error: float | None
    """Norm of what a tensor lost by its own norm."""
    cosine: float | None
    """Of the angle between what was sent and what arrived."""


class SnapshotStatus(Struct, frozen=True, kw_only=True):
    """The newest copy of a stage that its holder has on its disk."""

    step: int
    """What the stage was after so many steps."""
    bytes: int
    peers: tuple[str, ...]
    """Who has it, as far as this node knows: the holder, and the coordinator once it has told so here."""
    behind: int = 0
    """Steps that the job has made since: so many would be made again."""


class LogStatus(Struct, frozen=True, kw_only=True):
    """What a stage has sent to others, kept by its holder for whoever has to make their steps again."""

    first: int
    """The earliest step of which all is there."""
    memory: int
    """Bytes in memory."""
    disk: int
    """Bytes on disk."""


class StageStatus(Struct, frozen=True, kw_only=True):
    """One stage of a job and who holds it."""

    stage: int
    holder: str
    incarnation: int
    operators: int
    """How many operators of the OP-DAG it executes."""
    memory: int
    """Bytes that the plan counts for it."""
    ready: bool
    """True once the holder has loaded it."""
    predicted_seconds: float
    """Compute per micro-batch, as the planner predicts it."""
    codec: str = "fp32"
    """Of what it sends forward, and of the gradients that come back."""
    encodings: tuple[EncodingStatus, ...] = ()
    """Where this node holds it and has sent something."""
    snapshot: SnapshotStatus | None = None
    """Where this node holds it and has kept one."""
    log: LogStatus | None = None
    """Where this node holds it."""


class PlanStatus(Struct, frozen=True, kw_only=True):
    """The plan of a job: stages to holders from ``step`` on, and why."""

    job: str
    generation: int
    step: int
    stages: tuple[StageStatus, ...]
    explanation: tuple[str, ...]


class CurvePoint(Struct, frozen=True, kw_only=True):
    """The loss of one step."""

    step: int
    loss: float


class ValidationPoint(Struct, frozen=True, kw_only=True):
    """What the held-out samples came to after so many steps."""

    step: int
    loss: float
    metric: float | None = None
    """What the author's metric came to; null without one."""


class SpotCheckStatus(Struct, frozen=True, kw_only=True):
    """The loss of one held-out micro-batch that travelled twice, when samples were last evaluated."""

    encoded: float
    """With the codecs of the step."""
    lossless: float
    """With every element as it is."""
    difference: float
    """What codecs add to the loss, relative to it."""


class JobStatus(Struct, frozen=True, kw_only=True):
    """One training run, as far as this node knows."""

    id: str
    name: str
    author: str
    coordinator: str
    state: JobState
    sentence: str
    """What it waits for, or why it ended; empty while there is nothing to say."""
    since: float
    """When this state began."""
    until: float | None
    """When waiting ends in failure; null where it does not."""
    step: int
    """Steps done."""
    steps: int
    loss: float | None
    held_out: float | None
    tokens_per_second: float | None
    eta: float | None
    """Seconds to the last step at the present speed."""
    replicas: int
    """Peers beside the author that hold every block that the job needs."""
    kept: int | None
    """Steps after which this node, the job's coordinator, has all of its state; null elsewhere."""
    stages: tuple[StageStatus, ...]
    curve: tuple[CurvePoint, ...] = ()
    """The loss so far, thinned (``swarm.services.status.curve``)."""
    validations: tuple[ValidationPoint, ...] = ()
    """The held-out loss so far, as often as the job measures it; the newest where there are many."""
    spot_check: SpotCheckStatus | None = None
    """What codecs do to the loss; null without codecs or held-out samples, and before the first look."""


class LinkStatus(Struct, frozen=True, kw_only=True):
    """A link to another peer."""

    peer: str
    address: str
    path: str
    """How the peer is reached: ``direct``, or through what."""
    dialed: bool
    """True where this node opened the link."""
    since: float
    rtt: float | None
    bytes_sent: int
    bytes_received: int
    rate_up: float | None
    rate_down: float | None
    attempts: tuple[AttemptStatus, ...] = ()
    """How the peer was called, address by address; empty where it was the one to call."""


class DoorStatus(Struct, frozen=True, kw_only=True):
    """What came of calling one address on the way into the swarm."""

    seed: str
    """The address as it is known: ``host:port``, the host perhaps a name."""
    source: Source
    """How it is known: from the invite, from an earlier run, from a neighbour, or by referral."""
    address: str
    """The numeric address that was called; empty where none is known yet."""
    family: str
    """``IPv4`` or ``IPv6``; empty likewise."""
    answer: str
    elapsed: float
    """Seconds until the answer."""
    calls: int
    """How often it was called since links were lost, or since the start."""


class WaitingStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the node, or a job it knows, waits for."""

    reason: str = field(name="for")
    job: str
    """The job that waits; empty where it is the node itself."""
    since: float
    until: float | None
    """When the waiting ends in failure; null where it does not."""
    doors: tuple[DoorStatus, ...] = ()
    """While nobody of the swarm is linked: what each address answered; else left out."""


class EventStatus(Struct, frozen=True, kw_only=True):
    """Something that happened: above all, who left and why."""

    time: float
    kind: EventKind
    peer: str
    """The peer it is about; empty where it is about none."""
    sentence: str


class StatusDocument(Struct, frozen=True, kw_only=True):
    """All that a node knows of itself, its swarm and its jobs."""

    version: str
    """Version of the program."""
    peer: PeerStatus
    swarm: SwarmStatus
    members: tuple[MemberStatus, ...]
    groups: tuple[GroupStatus, ...]
    jobs: tuple[JobStatus, ...]
    """Newest first."""
    plan: PlanStatus | None
    """Of the newest job that runs; null where none has a plan."""
    links: tuple[LinkStatus, ...]
    waiting: WaitingStatus | None
    events: tuple[EventStatus, ...]
    """Newest last, a bounded number."""
