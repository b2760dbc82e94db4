"""The metrics of a node for Prometheus, made from its status document whenever they are asked for.

Each node has a registry of its own, so that several nodes in one process do not mix.
"""

from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from swarm.ids import short
from swarm.services.status.document import JobStatus, LinkStatus, StatusDocument
from swarm.services.status.source import StatusSource
from swarm.wire.messages.jobs import JobState


class NodeMetrics(Collector):
    """The registry of one node. ``render`` writes it in the format that the scraper accepts."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry must not ask the node before it runs."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        document = self._source.status()
        yield from _node_metrics(document)
        yield from _link_metrics(document.links)
        yield from _job_metrics(document.jobs)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type, for a request's ``Accept`` header."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _gauge(name: str, text: str, labels: list[str], rows: Iterable[tuple[list[str], float | None]]) -> Metric:
    family = GaugeMetricFamily(f"swarm_{name}", text, labels=labels)
    for values, number in rows:
        if number is not None:
            family.add_metric(values, number)
    return family


def _counter(name: str, text: str, labels: list[str], rows: Iterable[tuple[list[str], float]]) -> Metric:
    family = CounterMetricFamily(f"swarm_{name}", text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _node_metrics(document: StatusDocument) -> Iterator[Metric]:
    peer = document.peer
    names = ["peer", "role", "swarm", "version"]
    values = [peer.id, peer.role, document.swarm.name, document.version]
    linked = sum(member.linked for member in document.members)
    yield _gauge("node_info", "This node; always 1.", names, [(values, 1)])
    yield _gauge("start_time_seconds", "When the program started, since 1970 UTC.", [], [([], peer.since)])
    yield _gauge("memory_offered_bytes", "Memory offered to stages.", [], [([], peer.memory)])
    yield _gauge("memory_used_bytes", "Memory that plans have given away.", [], [([], peer.memory_used)])
    yield _gauge("stages", "Stages that it holds.", [], [([], peer.stages)])
    yield _gauge("paused", "1 while its user has it paused.", [], [([], peer.paused is not None)])
    yield _gauge("paused_since_seconds", "Since when it is paused, since 1970 UTC.", [], [([], peer.paused)])
    yield _gauge("members", "Members this node knows, itself included.", [], [([], len(document.members))])
    yield _gauge("members_linked", "Members with a link, this node included.", [], [([], linked)])
    yield _gauge(
        "waiting", "1 while the node or a job of it waits.", [], [([], document.waiting is not None)]
    )


def _link_metrics(links: tuple[LinkStatus, ...]) -> Iterator[Metric]:
    rows = [([short(link.peer), link.path], link) for link in links]
    names = ["peer", "path"]
    yield _counter("link_sent_bytes", "Bytes sent.", names, [(v, link.bytes_sent) for v, link in rows])
    yield _counter(
        "link_received_bytes", "Bytes received.", names, [(v, link.bytes_received) for v, link in rows]
    )
    yield _gauge("link_rtt_seconds", "Round-trip time.", names, [(v, link.rtt) for v, link in rows])
    yield _gauge(
        "link_up_bytes_per_second", "Measured rate up.", names, [(v, link.rate_up) for v, link in rows]
    )
    yield _gauge(
        "link_down_bytes_per_second", "Measured rate down.", names, [(v, link.rate_down) for v, link in rows]
    )


def _job_metrics(jobs: tuple[JobStatus, ...]) -> Iterator[Metric]:
    rows = [([short(job.id), job.name], job) for job in jobs]
    names = ["job", "name"]
    states = [
        ([*v, state], float(job.state == state)) for v, job in rows for state in sorted(get_args(JobState))
    ]
    stages = [
        ([short(job.id), str(stage.stage), short(stage.holder)], stage)
        for job in jobs
        for stage in job.stages
    ]
    stage_names = ["job", "stage", "holder"]
    yield _gauge("job_state", "1 for the state the job is in.", [*names, "state"], states)
    yield _gauge("job_step", "Steps done.", names, [(v, job.step) for v, job in rows])
    yield _gauge("job_steps", "Steps of the whole run.", names, [(v, job.steps) for v, job in rows])
    yield _gauge("job_loss", "Training loss of the last step.", names, [(v, job.loss) for v, job in rows])
    yield _gauge("job_held_out_loss", "Held-out loss.", names, [(v, job.held_out) for v, job in rows])
    yield _gauge(
        "job_tokens_per_second", "Training speed.", names, [(v, job.tokens_per_second) for v, job in rows]
    )
    yield _gauge("stage_memory_bytes", "Planned memory.", stage_names, [(v, s.memory) for v, s in stages])
    yield _gauge(
        "stage_predicted_seconds",
        "Compute per micro-batch, as planned.",
        stage_names,
        [(v, s.predicted_seconds) for v, s in stages],
    )
