import pytest

from swarm.schedule.published import PUBLISHED
from swarm.schedule.quality import LIMITS, LOSSLESS, admitted, ladder, shown
from swarm.wire.codecs import CodecSpec, parse_codec

TABLE = {
    "topk:3%:8": {"gpt": (0.2, 0.22)},
    "int4": {"gpt": (0.03, 0.03)},
    "none": {"gpt": (0.0, 0.0)},
    "bf16": {"gpt": (0.0, 0.0)},
    "int8": {"gpt": (0.001, 0.001)},
    "topk:10%:8": {"gpt": (0.08, 0.08)},
    "int6": {"gpt": (-0.002, -0.002)},
    "topk:10%:8, gradients on masks of their own": {"gpt": (0.9, 0.9)},
    "adatopk:10": {"gpt": (0.0, 0.0)},
}


def names(rungs):
    return [str(rung.codec) for rung in rungs]


def test_only_codecs_with_a_row_are_on_the_ladder_from_the_finest_to_the_coarsest():
    assert names(ladder(TABLE)) == ["fp32", "bf16", "int8", "int6", "int4", "topk:10%:8", "topk:3%:8"]
    assert ladder({}) == (LOSSLESS,)


def test_a_coarser_codec_never_counts_less_than_a_finer_one():
    distortions = [rung.distortion for rung in ladder(TABLE)]
    assert distortions == sorted(set(distortions))
    assert distortions == pytest.approx([0, 0, 0.001, 0.001, 0.03, 0.08, 0.21], abs=1e-6)


@pytest.mark.parametrize(
    ("quality", "coarsest"),
    [("lossless", "fp32"), ("faithful", "int6"), ("tolerant", "int4"), ("any", "topk:3%:8")],
)
def test_a_quality_admits_what_the_table_does_not_show_beyond_its_limit(quality, coarsest):
    found = admitted(ladder(TABLE), quality)
    assert names(found)[-1] == coarsest
    assert all(rung.distortion <= LIMITS[quality] for rung in found)


def test_what_the_finest_codec_does_too_is_chance():
    table = {
        "bf16": {"gpt": (0.001, -0.001, 0.001, -0.001), "resnet": (0.2, -0.2, 0.2, -0.2)},
        "int6": {"gpt": (0.004,) * 4, "resnet": (0.15, 0.05, 0.1, 0.1)},
        "int4": {"gpt": (0.001,) * 4, "resnet": (0.5,) * 4},
    }
    assert shown("bf16", table) == 0
    assert shown("int6", table) == pytest.approx(0.004 - 2 * 0.001 / 2)
    assert shown("int4", table) == pytest.approx(0.5 - 2 * 0.2 / 2)


def test_a_codec_without_a_row_of_each_model_is_not_eligible():
    table = {"bf16": {"gpt": (0.0,), "resnet": (0.0,)}, "int8": {"gpt": (0.0,)}, "int6": {"resnet": (0.0,)}}
    assert names(ladder(table)) == ["fp32", "bf16"]


def test_the_published_table_has_codecs_that_exist_with_runs_in_pairs():
    for name, models in PUBLISHED.items():
        assert parse_codec(name) not in {None, CodecSpec()}
        assert models
        assert all(len(pairs) >= 3 for pairs in models.values())
