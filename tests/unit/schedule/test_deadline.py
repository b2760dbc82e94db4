"""The policy deadline against every choice there is, and against sums that a reader can check."""

import itertools
import random

import pytest

from swarm.schedule.deadline import Deadline, Transfer, busiest, choose, distortion
from swarm.schedule.hiding import what_hides
from swarm.schedule.quality import LOSSLESS, Rung, admitted, fitted
from swarm.wire.codecs import parse_codec

MEGABYTE = 1e6


def rung(name, distortion, quality, coding=0.0):
    codec = parse_codec(name)
    assert codec is not None
    return Rung(codec=codec, distortion=distortion, quality=quality, coding=coding)


LADDER = (
    LOSSLESS,
    rung("bf16", 0.0001, "faithful"),
    rung("int8", 0.001, "faithful"),
    rung("int6", 0.004, "faithful"),
    rung("int4", 0.03, "tolerant"),
    rung("topk:10%:8", 0.1, "any"),
)
FAITHFUL = admitted(LADDER, "faithful")


def transfer(boundary, rate, *, backward=False, elements=250_000, lossy=True):
    return Transfer(boundary=boundary, backward=backward, elements=elements, width=4, rate=rate, lossy=lossy)


def names(chosen):
    return [str(rung.codec) for rung in chosen]


def test_nothing_is_compressed_that_hides_dense():
    deadline = Deadline(boundaries=2, resources=[(transfer(0, MEGABYTE),)], compute=1.0)
    choice = choose(deadline, LADDER)
    assert names(choice) == ["fp32", "fp32"]
    assert busiest(deadline.resources, choice) == 1.0  # 250,000 elements of 4 bytes at 1 MB/s


@pytest.mark.parametrize(
    ("compute", "codec"), [(1.0, "fp32"), (0.99, "bf16"), (0.49, "int8"), (0.24, "int6"), (0.19, "int6")]
)
def test_the_finest_codec_that_hides_is_chosen(compute, codec):
    deadline = Deadline(boundaries=1, resources=[(transfer(0, MEGABYTE),)], compute=compute)
    assert names(choose(deadline, FAITHFUL)) == [codec]


def test_at_its_floor_the_busiest_link_sets_the_pace_and_others_are_not_distorted_for_more():
    slow, fast = (transfer(0, MEGABYTE),), (transfer(1, 4 * MEGABYTE),)
    choice = choose(Deadline(boundaries=2, resources=[slow, fast], compute=0.01), FAITHFUL)
    assert names(choice) == [
        "int6",
        "bf16",
    ]  # the slow one takes 0.195 s, and 0.25 s dense are too long for that
    assert busiest([slow, fast], choice) == pytest.approx(0.25 * (6 + 16 / 64) / 8)


def test_a_peers_uplink_is_busy_with_activations_and_gradients_together():
    """A stage in the middle sends its activation, and the gradient of what it received."""
    uplink = (transfer(1, MEGABYTE), transfer(0, MEGABYTE, backward=True))
    assert names(choose(Deadline(boundaries=3, resources=[uplink], compute=2.0), FAITHFUL)) == ["fp32"] * 3
    assert names(choose(Deadline(boundaries=3, resources=[uplink], compute=1.5), FAITHFUL)).count("bf16") == 1


def test_what_no_codec_takes_is_counted_as_it_is():
    plain = transfer(0, MEGABYTE, lossy=False)
    choice = choose(Deadline(boundaries=1, resources=[(plain,)], compute=0.1), LADDER)
    assert names(choice) == ["fp32"]
    assert busiest([(plain,)], choice) == 1.0


def test_a_codec_that_takes_longer_to_code_than_it_saves_is_not_used():
    deadline = Deadline(boundaries=1, resources=[(transfer(0, 100 * MEGABYTE),)], compute=0.001)
    slow = fitted(LADDER, {r.codec: 1e-7 for r in LADDER[1:]})
    assert names(choose(deadline, LADDER)) == ["topk:10%:8"]
    assert names(choose(deadline, slow)) == ["fp32"]


def test_gradients_of_top_k_need_no_positions():
    topk = LADDER[-1]
    assert transfer(0, 1.0, backward=True).seconds(topk) < 0.7 * transfer(0, 1.0).seconds(topk)


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_meets_the_deadline_with_less_distortion(seed):
    draw = random.Random(seed)
    boundaries = draw.randint(1, 4)
    rungs = (LADDER[0], *(r for r in LADDER[1:] if draw.random() < 0.7))
    resources = [
        tuple(
            transfer(
                draw.randrange(boundaries),
                draw.choice([0.3, 1.0, 4.0, 30.0]) * MEGABYTE,
                backward=draw.random() < 0.5,
                elements=draw.randint(1, 400_000),
                lossy=draw.random() < 0.9,
            )
            for _ in range(draw.randint(1, 3))
        )
        for _ in range(draw.randint(1, 5))
    ]
    compute = draw.choice([0.0, 0.05, 0.2, 0.8])
    choice = choose(Deadline(boundaries=boundaries, resources=resources, compute=compute), rungs)
    every = list(itertools.product(rungs, repeat=boundaries))
    latest = max(compute, min(busiest(resources, each) for each in every)) * (1 + 1e-6)
    least = min(distortion(each) for each in every if busiest(resources, each) <= latest)
    assert busiest(resources, choice) <= latest
    assert distortion(choice) == pytest.approx(least)


def test_a_long_chain_is_chosen_at_once():
    resources = []
    for stage in range(64):
        uplink = [transfer(stage, (1 + stage % 7) * MEGABYTE)]
        if stage:
            uplink.append(transfer(stage - 1, (1 + stage % 5) * MEGABYTE, backward=True))
        resources.append(tuple(uplink))
    choice = choose(Deadline(boundaries=64, resources=resources, compute=0.3), LADDER)
    assert len(choice) == 64
    assert busiest(resources, choice) <= 0.3


def test_with_a_margin_all_is_done_earlier_that_can_be():
    slow, fast = (transfer(0, MEGABYTE),), (transfer(1, 4.6 * MEGABYTE),)
    deadline = Deadline(boundaries=2, resources=[slow, fast], compute=0.22)
    assert names(choose(deadline, FAITHFUL)) == ["int6", "fp32"]  # 0.195 s and 0.217 s
    assert names(choose(deadline, FAITHFUL, margin=0.15)) == ["int6", "bf16"]  # 0.191 s, but for int6


def said(compute, quality):
    deadline = Deadline(boundaries=2, resources=[(transfer(0, MEGABYTE),)], compute=compute)
    return what_hides(deadline, choose(deadline, admitted(LADDER, quality)), quality, LADDER)[0]


def test_what_does_not_hide_is_said_with_what_the_next_rung_would_bring_and_cost():
    assert said(2.0, "faithful") == (
        "communication hides: 1 s of a micro-batch on the busiest link, 2 s of computing"
    )
    assert said(0.1, "faithful") == (
        "at quality faithful a micro-batch takes 195 ms on the busiest link and 100 ms of computing, so "
        "95.3 ms do not hide; int4, of quality tolerant, would bring that to 133 ms, and the published table "
        "shows 3.0% more loss"
    )
    assert said(0.01, "any").endswith("no coarser codec has a row in the published table that would help")


def test_nothing_is_said_to_hide_where_no_rate_is_known():
    deadline = Deadline(boundaries=2, resources=[], compute=1.0)
    choice = choose(deadline, LADDER)
    assert names(choice) == ["fp32", "fp32"]
    assert what_hides(deadline, choice, "any", LADDER) == (
        "no rate between these peers is known yet: nothing is compressed",
    )
