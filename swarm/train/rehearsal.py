"""The last look at a captured job before it is published: what peers would refuse, its author hears first.

Both graphs are judged as a peer judges them when it loads a stage, and small models run one micro-batch
forward and backward, because some operators (``linear`` among them) look at the types of their inputs only
when there are numbers.
"""

import contextlib
import copy
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import torch

from swarm.errors import CaptureError, FailureError, RemoteProtocolError, SwarmError
from swarm.graph.cut import cut
from swarm.graph.dag import Graph, check_graph, encode_graph
from swarm.graph.evaluation import evaluation_stages
from swarm.ids import OperatorIndex, ValueId
from swarm.schedule.cost import graph_costs
from swarm.train.capture.quiet import quiet
from swarm.train.failures import failing
from swarm.train.inference import check_operators
from swarm.train.job import CapturedJob, TrainingJob
from swarm.train.optimizer import SGD, to_manifest
from swarm.train.reference import held_out_loss
from swarm.train.samples import Array, field_names
from swarm.train.stage import StageExecutor, StageTask
from swarm.wire.limits import GIB, MAX_GRAPH_BYTES, MAX_OPERATORS

MOST_OPERATIONS: Final = 1.5e11
"""Floating-point operations of a micro-batch, forward and backward, above which it is not run: ten seconds of
one slow core."""

MOST_BYTES: Final = 1 * GIB
"""Bytes of the model's tensors above which it is not run: a stage has copies of them, and gradients."""

_CPU = torch.device("cpu")


def rehearse(captured: CapturedJob, fields: Sequence[torch.Tensor]) -> None:
    """Raise CaptureError, one line, where a peer could not run ``captured``.

    ``fields`` are one micro-batch of the real dataset, its first samples for example. The state of torch's
    random generator is left as it was. Runs on any thread, for seconds at most.
    """
    with _as_on_peers():
        try:
            for graph in (captured.train, captured.evaluate):
                _judge(graph)
        except (FailureError, RemoteProtocolError) as error:
            raise CaptureError(f"no peer could run this model: {error}") from error
        if _is_small(captured):
            _run(captured, fields)


def require_repeatable(job: TrainingJob, captured: CapturedJob, samples: Sequence[Array]) -> None:
    """Raise CaptureError where the author's own model gives another loss the second time that it is called.

    What ``forward`` counts or keeps outside of buffers was captured as it was at that moment, so that peers
    would train another model. Runs a copy of small models twice, in evaluation mode, on the first samples.
    """
    if not _is_small(captured):
        return
    try:
        model = copy.deepcopy(job.model)
    except (RuntimeError, TypeError):  # tensors of a graph, locks and files cannot be copied
        return
    first = [field[: job.micro_batch_size] for field in samples]
    losses = []
    for _ in range(2):
        with quiet(), failing("the model, called as it is,"), torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            names = field_names(job.dataset)
            losses.append(held_out_loss(model, job.loss, first, job.micro_batch_size, names))
    if repr(losses[0]) != repr(losses[1]):
        raise CaptureError(
            f"the model's loss is {losses[0]:.6g} for the first samples, and {losses[1]:.6g} for the same "
            "ones when it is called again: what forward counts or keeps cannot be captured, unless it is in "
            "a buffer of the model"
        )


def _is_small(captured: CapturedJob) -> bool:
    operations = float(graph_costs(captured.train).flops[-1])
    held = sum(tensor.nbytes for tensor in captured.tensors.values())
    return operations <= MOST_OPERATIONS and held <= MOST_BYTES


@contextlib.contextmanager
def _as_on_peers() -> Iterator[None]:
    """Let torch refuse what has no deterministic form, as it does there, and draw from a generator apart."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


def _judge(graph: Graph) -> None:
    check_graph(graph)
    size = len(encode_graph(graph))
    if len(graph.operators) > MAX_OPERATORS or size > MAX_GRAPH_BYTES:
        raise FailureError(
            f"its graph has {len(graph.operators)} operators in {size} bytes, and peers take {MAX_OPERATORS} "
            f"in {MAX_GRAPH_BYTES}; write loops over a tensor's elements as operations on the whole tensor"
        )
    check_operators(graph, [OperatorIndex(index) for index in range(len(graph.operators))])


def _run(captured: CapturedJob, fields: Sequence[torch.Tensor]) -> None:
    """One micro-batch as one stage: forward, backward, and the evaluation graph's forward."""
    train, evaluate = captured.train, captured.evaluate
    stages = cut(train, [0, len(train.operators)])
    (evaluation,) = evaluation_stages(train, stages, evaluate)
    task = StageTask(
        graph=train,
        stage=stages[0],
        evaluation=(evaluate, evaluation),
        optimizer=to_manifest(SGD(lr=0.0)),
        micro_batches=1,
        seed=0,
    )
    try:
        executor = StageExecutor(task, captured.tensors, _CPU)
        executor.forward(0, 0, _inputs(train, fields, stages[0].inputs), {})
        executor.backward(0, 0, {})
        executor.measure({})
        executor.abandon_step()
        executor.evaluate(0, _inputs(evaluate, fields, evaluation.inputs), {})
    except SwarmError as error:
        raise CaptureError(f"with samples of the dataset, {error}") from error


def _inputs(
    graph: Graph, fields: Sequence[torch.Tensor], read: Collection[ValueId]
) -> dict[ValueId, torch.Tensor]:
    """The fields as those of the graph's inputs that are ``read``."""
    given = dict(zip(graph.inputs(), fields, strict=True))
    return {value: field for value, field in given.items() if value in read}
