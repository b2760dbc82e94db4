"""Metrics are the status document in the format of Prometheus."""

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from swarm.services.status.metrics import NodeMetrics
from swarm.testing.status import MOMENT, SampleSource


def scrape(source: SampleSource) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    body, content_type = NodeMetrics(source).render("text/plain")
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_values_are_those_of_the_document() -> None:
    values = scrape(SampleSource())
    link = (("path", "direct"), ("peer", "bbbbbbbb"))
    job = (("job", "jjjjjjjj"), ("name", "gpt"))
    assert values["swarm_link_sent_bytes_total", link] == 5000
    assert values["swarm_link_received_bytes_total", link] == 7000
    assert values["swarm_link_rtt_seconds", link] == 0.0125
    assert values["swarm_link_up_bytes_per_second", link] == 1e6
    assert ("swarm_link_down_bytes_per_second", link) not in values
    assert values["swarm_job_step", job] == 30
    assert values["swarm_job_steps", job] == 200
    assert values["swarm_job_loss", job] == 2.5
    assert ("swarm_job_held_out_loss", job) not in values
    assert values["swarm_job_state", (*job, ("state", "training"))] == 1
    assert values["swarm_job_state", (*job, ("state", "failed"))] == 0
    assert values["swarm_members", ()] == 2
    assert values["swarm_members_linked", ()] == 1
    assert values["swarm_waiting", ()] == 1
    assert values["swarm_stages", ()] == 1
    assert values["swarm_paused", ()] == 0
    assert ("swarm_paused_since_seconds", ()) not in values
    stage = (("holder", "aaaaaaaa"), ("job", "jjjjjjjj"), ("stage", "0"))
    assert values["swarm_stage_predicted_seconds", stage] == 0.25


def test_a_pause_has_its_beginning() -> None:
    source = SampleSource()
    source.set_paused(paused=True)
    values = scrape(source)
    assert (values["swarm_paused", ()], values["swarm_paused_since_seconds", ()]) == (1, MOMENT)


def test_two_nodes_in_one_process_do_not_mix() -> None:
    first, second = SampleSource(), SampleSource()
    second.replace(links=(), jobs=(), waiting=None)
    NodeMetrics(first)
    values = scrape(second)
    assert not [name for name, _ in values if name.startswith(("swarm_link_", "swarm_job_"))]
    assert values["swarm_waiting", ()] == 0


def test_labels_from_strangers_are_escaped() -> None:
    source = SampleSource()
    [job] = source.document.jobs
    source.replace(jobs=(msgspec.structs.replace(job, name='x"} 1\nevil{a="\\'),))
    names = {name for name, _ in scrape(source)}
    assert "evil" not in names


def test_open_metrics_is_spoken_to_those_who_ask() -> None:
    body, content_type = NodeMetrics(SampleSource()).render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
