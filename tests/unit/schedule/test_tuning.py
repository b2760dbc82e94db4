"""Codecs that follow the rates of links, on a manual clock: a path changes under two stages that train."""

import random
from itertools import pairwise

import pytest

from swarm.graph.cut import cut
from swarm.graph.dag import activations
from swarm.ids import PeerId
from swarm.protocol.encodings import AHEAD, Encodings
from swarm.protocol.session_meters import RateMeter
from swarm.schedule.network import NetworkModel
from swarm.schedule.quality import LOSSLESS, Rung, admitted
from swarm.schedule.transfers import resources_of
from swarm.schedule.tuning import MARGIN, Sample, Tuner
from swarm.wire.codecs import CodecSpec, parse_codec

HERE, THERE = PeerId("h" * 32), PeerId("t" * 32)
FRAME = 16 * 1024
ELEMENTS = 512 * 256
DENSE = ELEMENTS * 4
LADDER = (
    LOSSLESS,
    *(
        Rung(codec=parse_codec(name) or CodecSpec(), distortion=distortion, quality=quality)
        for name, distortion, quality in (
            ("bf16", 0.0001, "faithful"),
            ("int8", 0.001, "faithful"),
            ("int6", 0.004, "faithful"),
            ("int4", 0.03, "tolerant"),
        )
    ),
)


class Path:
    """Two stages on two peers, and a path between them that carries ``rate`` bytes a second each way."""

    def __init__(
        self, sketch, *, compute: float, rate: float, quality: str = "tolerant", noise: float = 0.0
    ) -> None:
        h = sketch.leaf("input", 512, 256)
        for _ in range(2):
            h = sketch.op("linear.default", [h, sketch.leaf("parameter", 256, 256)], 512, 256)
        sketch.op("sum.default", [h])
        graph = sketch.graph()
        self.stages = cut(graph, [0, 1, len(graph.operators)])
        self.graph, self.compute, self.rate, self.now = graph, compute, rate, 0.0
        self.meters = {(HERE, THERE): RateMeter(), (THERE, HERE): RateMeter()}
        self.tuner = Tuner(graph, self.stages, [HERE, THERE], quality=quality, rungs=LADDER)
        self.encodings = Encodings([CodecSpec(), CodecSpec()])
        self.used: list[str] = []
        self.said: list[str] = []
        self._draw, self._noise = random.Random(0), noise
        self._carried = 0

    def step(self) -> None:
        """Four micro-batches there and back, measured as links do; then the record of the step."""
        step = len(self.used)
        codec = self.encodings.of(step)[0]
        self.used.append(str(codec))
        rung = next(rung for rung in LADDER if rung.codec == codec)
        for meter in self.meters.values():
            for _ in range(4):
                # a byte a second: seconds are bytes
                resource = resources_of(
                    self.graph, self.stages, [HERE, THERE], NetworkModel(default=1.0), activations(self.graph)
                )[0]
                self._carry(meter, round(resource[0].seconds(rung)))
                self.now += self.compute
        compute = self.compute * self._vary()
        rates = {pair: meter.rate for pair, meter in self.meters.items() if meter.rate}
        tuning = self.tuner.heard(self.encodings.latest, Sample(compute=[compute, compute], rates=rates))
        if tuning is not None:
            self.said.append(tuning.hiding)
        self.encodings.agree(step, self.encodings.latest if tuning is None else tuning.codecs)

    def _carry(self, meter: RateMeter, size: int) -> None:
        """One tensor in frames, without a break."""
        frames = [FRAME] * (size // FRAME) + [size % FRAME]
        rate = self.rate * self._vary()
        meter.observe(self._carried, busy=True, now=self.now)
        for number, frame in enumerate(frames, 1):
            self.now += frame / rate
            self._carried += frame
            meter.observe(self._carried, busy=number < len(frames), now=self.now)

    def _vary(self) -> float:
        return 1 + self._draw.uniform(-self._noise, self._noise)

    def steps(self, count: int) -> list[str]:
        """The codecs of so many more steps."""
        for _ in range(count):
            self.step()
        return self.used[-count:]


def test_a_path_on_which_all_hides_is_left_alone(sketch):
    path = Path(sketch, compute=1.0, rate=DENSE * 1.05)
    assert set(path.steps(20)) == {"fp32"}
    assert path.said == ["communication hides: 952 ms of a micro-batch on the busiest link, 1 s of computing"]


def test_a_slow_path_is_found_in_the_first_steps(sketch):
    path = Path(sketch, compute=1.0, rate=DENSE / 3)
    assert path.steps(6) == ["fp32"] * 3 + ["int8"] * 3
    assert path.encodings.latest == (CodecSpec("int8"), CodecSpec())


def test_a_path_that_halves_and_recovers_is_followed_within_three_steps_without_swinging(sketch):
    path = Path(sketch, compute=1.0, rate=DENSE / 1.6)
    before = path.steps(10)
    assert before[3:] == ["bf16"] * 7
    path.rate /= 2
    halved = path.steps(12)
    assert halved == ["bf16"] * 3 + ["int8"] * 9
    path.rate *= 2
    recovered = path.steps(12)
    assert recovered == ["int8"] * 3 + ["bf16"] * 9


@pytest.mark.parametrize("times", [0.8, 0.95, 1.0, 1.05, 1.3, 2.0, 3.9, 5.0, 8.0])
def test_rates_that_vary_by_less_than_the_margin_swing_nothing(sketch, times):
    path = Path(sketch, compute=1.0, rate=DENSE / times, noise=MARGIN / 3)
    used = path.steps(60)
    assert sum(a != b for a, b in pairwise(used[4:])) <= 1


def test_a_single_odd_step_changes_nothing(sketch):
    path = Path(sketch, compute=1.0, rate=DENSE * 1.5)
    path.steps(5)
    path.rate /= 20
    path.step()
    path.rate *= 20
    assert set(path.steps(10)) == {"fp32"}


def test_at_its_floor_it_says_what_does_not_hide(sketch):
    path = Path(sketch, compute=0.1, rate=DENSE, quality="faithful")
    path.steps(8)
    assert path.used[-1] == "int6"
    assert len(path.said) == 1
    assert path.said[0].startswith("at quality faithful a micro-batch takes 195 ms on the busiest link")
    assert "int4, of quality tolerant, would bring that to 133 ms" in path.said[0]


def test_lossless_stays_lossless_and_says_what_that_costs(sketch):
    path = Path(sketch, compute=0.1, rate=DENSE, quality="lossless")
    assert set(path.steps(8)) == {"fp32"}
    assert "so 900 ms do not hide; bf16, of quality faithful, would bring that to 500 ms" in path.said[0]


def test_a_codec_that_no_table_here_knows_is_left_as_soon_as_there_is_a_finer_one(sketch):
    path = Path(sketch, compute=1.0, rate=DENSE * 2)
    path.encodings = Encodings([CodecSpec("topk", 20_000, 4), CodecSpec()])
    tuning = None
    rates = {(HERE, THERE): 2.0 * DENSE, (THERE, HERE): 2.0 * DENSE}
    for _ in range(2):
        tuning = path.tuner.heard(path.encodings.latest, Sample(compute=[1.0, 1.0], rates=rates))
    assert tuning is not None
    assert tuning.codecs == (CodecSpec(), CodecSpec())


def test_nothing_is_changed_where_nothing_was_measured(sketch):
    path = Path(sketch, compute=1.0, rate=1.0)
    for _ in range(5):
        assert path.tuner.heard(path.encodings.latest, Sample(compute=[1.0, 1.0], rates={})) is None


def test_a_step_is_made_with_the_codecs_that_the_record_two_before_it_agreed_on():
    encodings = Encodings([CodecSpec()])
    for step in range(6):
        encodings.agree(step, [CodecSpec("int8") if step >= 2 else CodecSpec()])
    assert [str(encodings.of(step)[0]) for step in range(2, 8)] == ["fp32"] * 2 + ["int8"] * 4
    assert AHEAD == 2
    assert admitted(LADDER, "lossless") == (LOSSLESS,)
