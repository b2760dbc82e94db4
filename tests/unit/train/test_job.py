"""What an author writes is checked when it is written, and every mistake is one line with a way out."""

import dataclasses
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from swarm.errors import FailureError, MisuseError, UserError
from swarm.graph.dag import check_graph
from swarm.train.job import TrainingJob, capture_job, load_job, prepare_samples
from swarm.train.optimizer import SGD
from swarm.wire.limits import MAX_MICRO_BATCHES

EXAMPLES = Path(__file__).parents[3] / "examples"
EXTRA = '; what the examples need comes with pip install "fusion-swarm[examples]"'


def samples(count: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(count * 4.0).reshape(count, 4) / 100, torch.arange(count) % 3


def make(**changes: Any) -> TrainingJob:
    settings: dict[str, Any] = {
        "model": nn.Linear(4, 3),
        "loss": functional.cross_entropy,
        "dataset": samples(),
        "optimizer": SGD(lr=0.1),
        "micro_batch_size": 8,
        "micro_batches": 4,
        "steps": 2,
    }
    return TrainingJob(**(settings | changes))


class Listed(Dataset[Any]):
    """A map-style dataset of the given items."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Noisy(Listed):
    """Returns another item at every read."""

    reads = 0

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return (torch.tensor([float(self.reads)]), 0)


class Failing(Listed):
    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise OSError("no such image")
        return (0.0, 0)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([])


DATASETS = "give a dataset with __len__ and __getitem__, or a tuple of arrays"
FIELDS = (
    "give numbers, arrays or tensors of bool, float16, float32, float64, int16, int32, int64, int8, uint8"
)


def sentence(make_it: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        make_it()
    assert "\n" not in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_dataset_smaller_than_one_step_is_refused_with_the_numbers() -> None:
    assert sentence(lambda: make(dataset=samples(12))) == (
        "MisuseError: the dataset has 12 samples, one step needs 32 (4 micro-batches of 8)"
    )
    assert sentence(lambda: make(held_out=samples(3))) == (
        "MisuseError: the held-out set has 3 samples, one micro-batch needs 8"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metric": functional.l1_loss}, "the metric is that of held-out samples: give held_out"),
        (
            {"metric": 3, "held_out": samples(16)},
            "the metric is of type int, and must be a function of (outputs, target)",
        ),
        (
            {"metric": nn.Linear(3, 1), "held_out": samples(16)},
            "the metric has tensors of its own, and must be a function of (outputs, target)",
        ),
        ({"validate_every": 5}, "validate_every needs held-out samples: give held_out"),
        ({"validate_every": -1}, f"validate_every is a whole number from 0 to {2**40}, and not -1"),
        (
            {"validate_batches": 3, "held_out": samples(16)},
            "validate_batches bounds what validate_every measures: give that, too",
        ),
        (
            {"validate_every": 5, "validate_batches": 1.5, "held_out": samples(16)},
            f"validate_batches is a whole number from 0 to {MAX_MICRO_BATCHES}, and not 1.5",
        ),
    ],
)
def test_validation_that_could_not_be_done_is_refused(changes: dict[str, Any], expected: str) -> None:
    assert sentence(lambda: make(**changes)) == f"MisuseError: {expected}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": len}, "the model is of type builtin_function_or_method, and must be an nn.Module"),
        ({"loss": 3}, "the loss is of type int, and must be a function of (outputs, target)"),
        (
            {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)])},
            (
                "the optimizer is of type torch.optim.sgd.SGD, and must be SGD(...), Adam(...) or "
                "AdamW(...) of swarm.train.optimizer"
            ),
        ),
        ({"steps": 0}, "steps is a whole number from 1 to 1099511627776, and not 0"),
        ({"steps": 1.5}, "steps is a whole number from 1 to 1099511627776, and not 1.5"),
        ({"micro_batches": True}, "micro_batches is a whole number from 1 to 4096, and not True"),
        ({"micro_batch_size": -1}, "micro_batch_size is a whole number from 1 to 1048576, and not -1"),
        ({"seed": -1}, "seed is a whole number from 0 to 9223372036854775807, and not -1"),
        ({"ema": 1.0}, "ema must be a number of at least 0 and below 1, and not 1.0"),
        ({"ema": True}, "ema must be a number of at least 0 and below 1, and not True"),
        ({"patience": -1}, "patience is a number of seconds, 0 or more, and not -1"),
        ({"name": "x" * 201}, "name is one printable line of at most 200 characters"),
        (
            {"dataset": np.zeros((99, 4))},
            f"the dataset is of type ndarray; {DATASETS}",
        ),
        (
            {"dataset": 5},
            f"the dataset is of type int; {DATASETS}",
        ),
        ({"dataset": Stream()}, "the dataset can only be iterated; give one with __len__ and __getitem__"),
        (
            {"dataset": ([1, 2], [3, 4])},
            "the dataset is not made of arrays or tensors alone; give one array for each field",
        ),
        (
            {"dataset": (np.zeros((9, 4)), np.zeros(8))},
            "the dataset's fields have 9, 8 items; each needs one for every sample",
        ),
    ],
)
def test_mistakes_are_told_when_the_job_is_made(changes: dict[str, Any], expected: str) -> None:
    assert sentence(lambda: make(**changes)) == f"MisuseError: {expected}"


def test_the_name_is_the_models_class_unless_given() -> None:
    assert (make().name, make(name="digits").name) == ("Linear", "digits")


@pytest.mark.parametrize(
    "dataset",
    [
        samples(5),
        TensorDataset(*samples(5)),
        Listed([(x.numpy(), int(y)) for x, y in zip(*samples(5), strict=True)]),
    ],
)
def test_samples_are_the_same_arrays_however_they_are_given(dataset: Any) -> None:
    inputs, targets = prepare_samples(dataset)
    assert (inputs.dtype, targets.dtype) == (np.dtype("float32"), np.dtype("int64"))
    assert np.array_equal(inputs, samples(5)[0].numpy())
    assert targets.tolist() == [0, 1, 2, 0, 1]


def test_single_values_become_one_field_and_numbers_have_torchs_types() -> None:
    (only,) = prepare_samples(Listed([1.5, 2.5]))
    assert (only.dtype, only.tolist()) == (np.dtype("float32"), [1.5, 2.5])
    flags, wide = prepare_samples(Listed([(True, np.float64(1)), (False, np.float64(2))]))
    assert (flags.dtype, wide.dtype) == (np.dtype("bool"), np.dtype("float64"))


def named_samples(kind: str) -> Any:
    x, y = samples()
    match kind:
        case "arrays":
            return {"labels": y, "input": x}
        case "items":
            return Listed([{"labels": int(b), "input": a.tolist()} for a, b in zip(x, y, strict=True)])
        case _:
            pairs = enumerate(zip(x.numpy(), y.numpy(), strict=True))
            return Listed(
                [{"input": a, "labels": b} if i % 2 else {"labels": b, "input": a} for i, (a, b) in pairs]
            )


@pytest.mark.parametrize("kind", ["arrays", "items", "in any order"])
def test_samples_may_have_names_and_their_target_comes_last(kind: str) -> None:
    inputs, targets = prepare_samples(named_samples(kind))
    assert np.array_equal(inputs, samples()[0].numpy())
    assert (inputs.dtype, targets.dtype) == (np.dtype("float32"), np.dtype("int64"))
    assert targets.tolist() == samples()[1].tolist()
    job = make(dataset=named_samples(kind), held_out=named_samples("arrays"))
    named, plain = capture_job(job), capture_job(make())
    assert (named.train, named.evaluate) == (plain.train, plain.evaluate)


def test_example_inputs_may_have_names_too() -> None:
    job = make(dataset=named_samples("arrays"), example_inputs={"input": samples(1)[0]})
    assert capture_job(job).train.values[0].spec.shape == (8, 4)
    assert sentence(lambda: capture_job(make(example_inputs={"input": samples(1)[0]}))) == (
        "MisuseError: the example inputs input are not fields of the dataset's samples"
    )


def test_held_out_samples_have_the_datasets_names() -> None:
    other = dict(zip(("x", "labels"), samples(), strict=True))
    assert sentence(lambda: capture_job(make(dataset=named_samples("arrays"), held_out=other))) == (
        "MisuseError: the held-out set's samples have other fields than the dataset's"
    )


@pytest.mark.parametrize(
    ("metric", "kinds"),
    [
        (lambda scores, target: (scores.argmax(1) == target).float().mean(), "float32"),
        (lambda scores, target: (scores.argmax(1) == target).sum(), "float32"),
        (functional.cross_entropy, "float32"),
        (lambda scores, target: scores.double().sum(), "float64"),
    ],
    ids=["share", "count", "the loss itself", "double"],
)
def test_a_metric_is_a_value_of_the_evaluation_graph_alone(metric: Any, kinds: str) -> None:
    plain = capture_job(make(held_out=samples(16)))
    captured = capture_job(make(held_out=samples(16), metric=metric))
    assert captured.train == plain.train
    assert captured.evaluate.metric is not None
    assert captured.evaluate.metric != captured.evaluate.loss
    assert captured.evaluate.values[captured.evaluate.metric].spec.dtype == kinds
    check_graph(captured.evaluate)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (lambda scores, target: scores.argmax(1) == target, "metric: it is of shape (8,), and must be"),
        (lambda scores, target: 1.0, "metric: it is no tensor, and must be a tensor with one number"),
    ],
)
def test_a_metric_that_is_not_one_number_is_refused(metric: Any, expected: str) -> None:
    assert expected in sentence(lambda: capture_job(make(held_out=samples(16), metric=metric)))


def test_foreign_byte_order_and_strides_do_not_reach_the_blocks() -> None:
    (field,) = prepare_samples((np.arange(6, dtype=">i4").reshape(3, 2)[:, ::-1],))
    assert field.dtype == np.dtype("=i4")
    assert field.flags.c_contiguous
    assert field.tolist() == [[1, 0], [3, 2], [5, 4]]


def test_a_dataset_whose_items_change_between_reads_is_refused() -> None:
    assert sentence(lambda: prepare_samples(Noisy([None] * 4))) == (
        "MisuseError: the dataset's items change between reads (item 0 did): every peer must see the same "
        "samples, so give it without random transforms"
    )


def test_not_a_number_is_equal_to_itself_between_reads() -> None:
    (field,) = prepare_samples(Listed([float("nan"), 1.0]))
    assert np.isnan(field[0])


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (
            [(np.zeros(3, np.float32),), (np.zeros(4, np.float32),)],
            (
                "field 0 of the dataset's item 1 is float32[4], and that of item 0 is float32[3]; "
                "pad or cut all items to one shape"
            ),
        ),
        ([(0, 1), (0,)], "the dataset's item 1 has 1 fields, and item 0 has 2"),
        (["text"], f"field 0 of the dataset's item 0 is of type str; {FIELDS}"),
        ([np.zeros(2, np.uint16)], f"field 0 of the dataset's item 0 is an array of uint16; {FIELDS}"),
        ([({"x": 1},)], f"field 0 of the dataset's item 0 is of type dict; {FIELDS}"),
        ([{"x": 1, "y": 2}, {"x": 1}], "the dataset's item 1 has other fields than item 0: x, y"),
        ([{"x": 1}, (1,)], "the dataset's item 1 has other fields than item 0: x"),
        ([([1, "2"],)], f"field 0 of the dataset's item 0 is of type list; {FIELDS}"),
        (
            [torch.zeros(2, dtype=torch.complex64)],
            f"field 0 of the dataset's item 0 is an array of torch.complex64; {FIELDS}",
        ),
        (
            [torch.zeros(2, dtype=torch.bfloat16)],
            f"field 0 of the dataset's item 0 is an array of torch.bfloat16; {FIELDS}",
        ),
    ],
)
def test_items_that_cannot_be_kept_are_refused(items: list[Any], expected: str) -> None:
    assert sentence(lambda: prepare_samples(Listed(items))) == f"MisuseError: {expected}"


def test_an_item_that_cannot_be_read_says_which_and_why() -> None:
    said = sentence(lambda: prepare_samples(Failing([None] * 4)))
    assert said.startswith(
        "FailureError: reading item 2 of the dataset raised OSError: no such image (test_job.py:"
    )


def test_capture_makes_both_graphs_over_one_set_of_tensors() -> None:
    job = make(model=nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)))
    captured = capture_job(job)
    for graph in (captured.train, captured.evaluate):
        check_graph(graph)
        assert {graph.values[value].spec.shape for value in graph.inputs()} == {(8, 4), (8,)}
    names = [
        [value.name for value in graph.values if value.kind in {"parameter", "buffer"}]
        for graph in (captured.train, captured.evaluate)
    ]
    assert names[0] == names[1] == list(captured.tensors)
    assert list(captured.state_dict) == list(job.model.state_dict())
    assert any(operator.random for operator in captured.train.operators)
    assert not any(operator.random for operator in captured.evaluate.operators)
    assert captured.train.updates
    assert not captured.evaluate.updates


def test_constants_of_both_modes_do_not_take_each_others_names() -> None:
    class TwoFaced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = torch.tensor([1.0, 2.0, 3.0] if self.training else [4.0, 5.0, 6.0])
            return self.layer(x) * scale

    captured = capture_job(make(model=TwoFaced()))
    for graph, expected in ((captured.train, [1.0, 2.0, 3.0]), (captured.evaluate, [4.0, 5.0, 6.0])):
        (constant,) = graph.of_kind("constant")
        assert captured.tensors[graph.values[constant].name].tolist() == expected


def test_example_inputs_may_have_any_batch_size_and_leave_out_the_target() -> None:
    for example_inputs in ((samples(3)[0],), samples(3), [samples(20)[0]]):
        captured = capture_job(make(example_inputs=example_inputs))
        shapes = [captured.train.values[value].spec.shape for value in captured.train.inputs()]
        assert shapes == [(8, 4), (8,)]


@pytest.mark.parametrize(
    ("example_inputs", "expected"),
    [
        ((), "there are 0 example inputs for samples of 2 fields"),
        (
            (torch.zeros(2, 4, dtype=torch.float64),),
            "example input 0 has items of torch.float64 [4], and the dataset of torch.float32 [4]",
        ),
        ((torch.tensor(1.0),), "example input 0 is not a batch; give a tensor with one item or more"),
    ],
)
def test_example_inputs_that_do_not_fit_the_samples_are_refused(example_inputs: Any, expected: str) -> None:
    assert sentence(lambda: capture_job(make(example_inputs=example_inputs))) == f"MisuseError: {expected}"


def test_a_held_out_set_of_another_kind_is_refused() -> None:
    other = (torch.zeros(8, 5), torch.zeros(8, dtype=torch.int64))
    assert sentence(lambda: capture_job(make(held_out=other))) == (
        "MisuseError: the held-out set's samples have torch.float32 [5] and torch.int64 [], and the "
        "dataset's torch.float32 [4] and torch.int64 []"
    )


def test_an_example_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert sentence(lambda: load_job(EXAMPLES / "resnet.py")) == (
        "FailureError: resnet.py needs the module sklearn.datasets, which is neither installed nor beside it "
        f"(resnet.py:11){EXTRA}"
    )


def test_examples_are_short() -> None:
    lines = {file.stem: len(file.read_text("utf-8").splitlines()) for file in EXAMPLES.glob("*.py")}
    assert set(lines) == {"gpt", "resnet", "finetune", "huggingface"}
    assert max(lines.values()) < 60, lines


@pytest.mark.parametrize("name", ["gpt", "resnet"])
def test_examples_are_jobs_whose_steps_a_caller_may_change(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    job = dataclasses.replace(load_job(EXAMPLES / f"{name}.py"), steps=3)
    assert (job.name, job.steps) == (name, 3)
    assert len(capture_job(job).train.operators) >= 24


GOOD = """
    import torch
    from swarm.train.job import TrainingJob
    from swarm.train.optimizer import SGD
    import {neighbour}

    job = TrainingJob(
        model={neighbour}.Net(), loss=torch.nn.functional.mse_loss,
        dataset=(torch.ones(4, 2), torch.ones(4, 1)),
        optimizer=SGD(lr=0.1), micro_batch_size=2, micro_batches=2, steps=1,
    )
"""
NEIGHBOUR = """
    import torch
    class Net(torch.nn.Linear):
        def __init__(self):
            super().__init__(2, 1)
"""


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def test_a_file_with_neighbours_gives_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    write(tmp_path / "own_net.py", NEIGHBOUR)
    job = load_job(write(tmp_path / "train_me.py", GOOD.format(neighbour="own_net")))
    assert job.name == "Net"
    assert len(capture_job(job).train.operators) > 0


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("x = 1", MisuseError, "FILE has no job; write job = TrainingJob(...) at its top level"),
        ("job = 3", MisuseError, "job in FILE is of type int, and must be a TrainingJob"),
        ("x = 1\ny = 1 / 0", FailureError, "FILE raised ZeroDivisionError: division by zero (FILE:2)"),
        ("x = (", FailureError, "FILE line 1: '(' was never closed"),
        (
            "import no_such_thing",
            FailureError,
            f"FILE needs the module no_such_thing, which is neither installed nor beside it (FILE:1){EXTRA}",
        ),
        ("raise SystemExit('needs scikit-learn')", FailureError, "FILE: needs scikit-learn"),
        ("raise SystemExit(3)", FailureError, "FILE: it ended itself with exit status 3"),
        ("raise ValueError", FailureError, "FILE raised ValueError (FILE:1)"),
        (
            "from swarm.train.optimizer import SGD\nSGD(lr=-1)",
            MisuseError,
            "FILE: lr must be a number of at least 0 and at most 1e+300, and not -1",
        ),
    ],
)
def test_a_file_that_gives_no_job_says_why(
    text: str, kind: type[UserError], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    path = write(tmp_path / "mine.py", text)
    assert sentence(lambda: load_job(path)) == f"{kind.__name__}: {expected.replace('FILE', 'mine.py')}"


def test_a_missing_file_is_misuse(tmp_path: Path) -> None:
    path = tmp_path / "none.py"
    assert sentence(lambda: load_job(path)) == f"MisuseError: there is no file {path}"
