"""Short runs of the benchmarks: that they do what they say they measure. Never how fast."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from benchmarks.at_rest import BootstrapBenchmarkOptions, table_of
from benchmarks.at_rest import measure as measure_bootstrap
from benchmarks.codec import CodecOptions
from benchmarks.codec import measure as measure_codecs
from benchmarks.codecs.published import pairs_of, published_module, shown_table
from benchmarks.codecs.training import OWN_MASKS, Run
from benchmarks.common import Versions
from benchmarks.convergence import ConvergenceOptions
from benchmarks.convergence import measure as measure_convergence
from benchmarks.dhts.contest import Outcome
from benchmarks.discovery import DiscoveryOptions, percentile
from benchmarks.discovery import measure as measure_discovery
from benchmarks.execution import Contest, ExecutionOptions
from benchmarks.execution import measure as measure_execution
from benchmarks.handover import moves_of
from benchmarks.handover import table_of as hand_overs_table
from benchmarks.lines.end import Moment
from benchmarks.lines.scenario import Turn
from benchmarks.lines.wide import Shape, wide_job
from benchmarks.link import LinkOptions
from benchmarks.link import measure as measure_links
from benchmarks.links import ours
from benchmarks.links.rival import prepare
from benchmarks.snapshots import table_of as snapshots_table
from benchmarks.soak import PAYLOADS, Sample, Soak, soak_bytes, soak_connections
from bootstrap.running import run
from swarm.errors import FailureError, MisuseError
from swarm.graph.operators import VIEWS
from swarm.services.training.author import prepare_job
from swarm.testing.zoo import ZOO
from swarm.train.job import TrainingJob
from swarm.wire.limits import MIB


@pytest.fixture
def members(tmp_path: Path) -> Path:
    ours.make_members(tmp_path, "far", "near")
    return tmp_path


async def test_links_that_come_and_go_leave_nothing(members: Path) -> None:
    soak = await soak_connections(members, cycles=60, samples=6)
    assert soak.done == 60
    assert len(soak.samples) == 6
    warm, *rest = soak.samples[1:]
    assert {sample.descriptors for sample in rest} == {warm.descriptors}
    assert {sample.tasks for sample in rest} == {warm.tasks}
    assert rest[-1].objects - warm.objects < 40, "less than one object for each link"


async def test_bytes_through_one_link_leave_nothing(members: Path) -> None:
    rounds = 3
    soak = await soak_bytes(members, total=rounds * sum(PAYLOADS), samples=rounds)
    assert soak.done == rounds * sum(PAYLOADS)
    assert len(soak.samples) == rounds
    first, *rest = soak.samples
    assert {sample.descriptors for sample in rest} == {first.descriptors}
    assert {sample.tasks for sample in rest} == {first.tasks}
    assert rest[-1].objects - first.objects < 20


def test_a_soak_is_judged_by_the_most_after_its_first_tenth() -> None:
    def sample(descriptors: int) -> Sample:
        return Sample(rss=50_000_000, descriptors=descriptors, tasks=3, objects=1000)

    grown = Soak(done=20, samples=[sample(n) for n in (5, 6, 6, 6, 9, 6, 6, 6, 6, 6)])
    rows = {row.what: row for row in grown.rows("links")}
    assert (rows["descriptors, links"].first, rows["descriptors, links"].second) == (6, 9)
    assert [what for what, row in rows.items() if row.missed] == ["descriptors, links"]


def test_codecs_are_measured_on_noise_and_on_what_models_send() -> None:
    table = measure_codecs(CodecOptions(elements=2**20, repetitions=1))
    rows = {row.what: row for row in table.rows}
    assert all(1 <= row.ratio < 1.2 for row in table.rows if row.unit == "bits")
    assert rows["topk:10%:8, gradient of gpt"].first < rows["topk:10%:8, activation of gpt"].first
    assert rows["int4, activation of resnet"].ratio < rows["int8, activation of gpt"].ratio < 0.3


def test_steps_of_a_stage_are_measured_beside_the_same_steps_of_eager_pytorch() -> None:
    contest = Contest(ZOO["resnet18"])
    losses = [(contest.ours(), contest.eager()) for _ in range(4)]
    assert all(ours == pytest.approx(eager, rel=1e-4) for ours, eager in losses)
    assert len({ours for ours, _ in losses}) == 4
    views = sum(operator.target in VIEWS for operator in contest.captured.graph.operators)
    assert 0 < views < len(contest.captured.graph.operators)
    assert len(contest.operator_microseconds()) == len(contest.captured.graph.operators) - views


def test_a_model_whose_loss_peers_compute_otherwise_is_also_measured_with_the_same_on_both_sides() -> None:
    table = measure_execution(ExecutionOptions(repetitions=1, model="deepspeech2", wide=False))
    measured, alike = table.rows
    assert (measured.target is None, alike.target is None) == (False, True)
    assert all(row.first > 0 and row.second > 0 for row in table.rows)
    with pytest.raises(MisuseError, match="--model gpt9 is not one of gpt2, "):
        measure_execution(ExecutionOptions(model="gpt9"))


SHORT = LinkOptions(repetitions=1, megabytes=9, hivemind=False)


def test_links_are_measured_beside_bare_tls_in_one_process_and_two() -> None:
    if importlib.util.find_spec("uvloop") is None:
        with pytest.raises(FailureError, match="uvloop"):
            run(lambda: measure_links(SHORT))
        return
    table = run(lambda: measure_links(SHORT))
    assert all(row.first > 0 and row.second > 0 and row.ratio > 0 for row in table.rows)
    assert [row.what.rsplit(", ")[-1] for row in table.rows if row.target is not None] == [
        *["two processes"] * 3,
        *["one process"] * 3,
    ]
    assert len([row for row in table.rows if row.target is None]) == 2
    assert len({row.what for row in table.rows}) == len(table.rows)
    assert {"uvloop", "OpenSSL"} <= set(table.versions.programs)


async def test_another_event_loop_is_not_taken_for_uvloop() -> None:
    with pytest.raises(FailureError, match="uvloop"):
        await measure_links(SHORT)


async def test_a_python_without_hivemind_is_named(tmp_path: Path) -> None:
    with pytest.raises(FailureError, match=r"python.*: [Nn]o such file"):
        await prepare(tmp_path)


async def test_discovery_is_measured_beside_the_bare_library_and_with_losses() -> None:
    table = await measure_discovery(
        DiscoveryOptions(nodes=6, repetitions=1, many=12, loss=0.2, hivemind=False)
    )
    assert len({row.what for row in table.rows}) == len(table.rows)
    counts = {row.what: (row.first, row.second) for row in table.rows if row.unit == ""}
    assert counts["records found, half have stopped, of those published"] == (2, 2)
    assert counts["joins, sets and gets before that"] == (18, 18)
    assert [counts[f"{step}, 12 nodes, 20% of datagrams lost"] for step in ("join", "set", "get")] == [
        (12, 12)
    ] * 3
    assert counts["publishers found by one of 12 nodes, 20% of datagrams lost"] == (12, 12)
    assert {"kademlia", "rpcudp"} <= set(table.versions.programs)


def test_a_wide_job_has_the_state_that_its_shape_says() -> None:
    shape = Shape(width=16, layers=3, batch=2)
    job = wide_job(shape)
    trained = sum(parameter.nbytes for parameter in job.model.parameters())
    assert shape.state_bytes == 3 * trained
    x, y = job.dataset
    assert x.nbytes == y.nbytes == shape.boundary_bytes


def test_steps_beside_lines_are_compared_with_the_turns_before_and_after() -> None:
    def turn(seconds: Sequence[float], *, lines: int) -> Turn:
        moments = [Moment(step=5 + n, at=at) for n, at in enumerate(accumulate(seconds, initial=1.0))]
        return Turn(moments=tuple(moments), lines=lines, sent=len(seconds) * MIB)

    kept = [turn([1, 1, 2, 1], lines=2), turn([2, 4, 4, 2], lines=2)]
    none = [turn(seconds, lines=0) for seconds in ([1, 1], [1, 1, 1], [2, 2, 3])]
    table = snapshots_table(Shape(width=16, layers=3, batch=2), kept, none, Versions.here())
    step, slowest, sent = table.rows
    assert (step.first, step.second) == pytest.approx((2.125, (1 + 5 / 3) / 2))
    assert step.ratio == pytest.approx((1.25 / 1 + 3 / (5 / 3)) / 2)
    assert step.missed
    assert (slowest.first, slowest.second) == (3, 1.5)
    assert (sent.first, sent.second) == (1, 1)
    assert any(remark.startswith("lines kept: 4, of ") for remark in table.remarks)


def test_a_percentile_is_one_of_the_times() -> None:
    outcomes = [Outcome(seconds=float(second), good=True) for second in range(1, 21)]
    assert [percentile(outcomes, share) for share in (0.5, 0.95, 1.0)] == [10, 19, 20]
    assert percentile(outcomes[:1], 0.5) == 1


async def test_a_bootstrap_nodes_memory_is_measured_on_a_real_one(tmp_path: Path) -> None:
    options = BootstrapBenchmarkOptions(known=12, links=3, further=2, callers=4)
    found = await measure_bootstrap(tmp_path, options)
    assert 0 < found.idle <= found.known
    assert len(found.visited) == 2
    table = table_of(found, options)
    assert [row.target is not None for row in table.rows] == [True] * 3
    assert table.rows[0].ratio == found.linked / 1e6


@pytest.mark.parametrize("program", sorted(Path("benchmarks").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_benchmark_runs_as_a_program(program: Path) -> None:
    source = program.read_text("utf-8")
    if "__main__" not in source:
        return
    told = subprocess.run([sys.executable, program, "--help"], capture_output=True, text=True, check=True)
    assert f"python benchmarks/{program.name}" in told.stdout


@pytest.mark.timeout(400)
def test_codecs_are_compared_by_what_training_comes_to(tmp_path: Path) -> None:
    policies = ("none", "int4", "topk:10%:8", OWN_MASKS, "deadline:any")
    options = ConvergenceOptions(seeds=1, share=0.02, model="resnet", runs=str(tmp_path / "runs.jsonl"))
    runs = {run.policy: run for run in measure_convergence(options, policies)}
    assert {run.steps for run in runs.values()} == {2}
    assert runs["none"].held_out == runs["none"].held_out_plain
    assert runs["int4"].held_out != runs["int4"].held_out_plain
    assert runs["int4"].sent < runs["none"].sent / 6
    assert runs["topk:10%:8"].sent < runs[OWN_MASKS].sent < runs["topk:10%:8"].sent * 1.5
    assert list(measure_convergence(options, policies)) == list(runs.values())
    assert len(shown_table(list(runs.values())).splitlines()) == 2 + len(runs)


def test_the_published_table_has_the_pairs_of_each_codec_that_ran_on_its_own() -> None:
    made = [
        Run(
            model="gpt",
            policy=policy,
            seed=seed,
            steps=1,
            codecs=("int6",),
            trained=1.0,
            held_out=loss,
            held_out_plain=loss,
            sent=1,
        )
        for policy, losses in {"none": (2.0, 4.0), "int6": (2.01, 4.0), OWN_MASKS: (9.0, 9.0)}.items()
        for seed, loss in enumerate(losses)
    ]
    assert pairs_of(made)["int6"] == {"gpt": (pytest.approx(0.005), 0.0)}
    *_, table = ast.parse(published_module(made)).body
    assert isinstance(table, ast.AnnAssign)
    assert ast.unparse(table.target) == "PUBLISHED"
    assert table.value is not None
    assert ast.literal_eval(table.value) == {"int6": {"gpt": (0.005, 0.0)}}
    assert "+0.25% ± 0.25%" in shown_table(made)


async def test_a_hand_over_is_measured_beside_the_steps_before(make_job: Callable[..., TrainingJob]) -> None:
    [move] = await moves_of(prepare_job(make_job(steps=5000)), 1)
    assert move.steps > 0
    assert 0 < move.usual < move.longest
    assert [row.ratio for row in hand_overs_table([move]).rows] == [move.pause / move.usual] * 2
