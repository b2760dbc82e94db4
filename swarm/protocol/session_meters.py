"""What a session measures: whether the other side is alive, the round-trip time, and the rates."""

from typing import Final, Literal

from swarm.wire.limits import MAX_DATA_FRAME_BYTES, MAX_UNSENT_PONGS, MIN_DATA_FRAME_BYTES

MISSED_HEARTBEATS: Final = 3
"""Heartbeats without a byte from the other side after which it counts as dead (decision D10)."""
LAST_BEAT: Final = 0.9
"""How much of a heartbeat the last of them lasts, so that three are not exceeded by what a timer is late."""
HEARTBEAT_SECONDS: Final = 3.0
"""Seconds of silence after which a sign of life is asked for, where round trips are short."""
RTT_SAMPLE_SECONDS: Final = 15.0
"""A round trip is measured at least this often, even while bytes flow."""
BULK_FRAME_SECONDS: Final = 0.05
"""How long one bulk frame may keep control waiting (decision D3), between 16 and 256 KiB."""
UNSENT_SECONDS: Final = 0.025
"""How long what the system holds unsent may keep control waiting, beside the bulk frame."""
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Above this, holding back costs fast links more than control gains."""
UNMEASURED_FRAME_BYTES: Final = 64 * 1024
"""Bulk frame length before a rate is known: 50 ms at 10 Mbit/s."""
TICKS_PER_SECOND: Final = 1_000_000
"""Of the clock in the tokens of pings."""
RATE_SPAN_SECONDS: Final = 0.05
"""Shortest busy span that gives a rate; kernel buffers blur shorter ones."""
RATE_BURST_BYTES: Final = 256 * 1024
"""A busy span that ends sooner counts where it moved this many bytes."""
RATE_GAIN: Final = 0.3
"""Weight of a new rate in the moving average."""


class Liveness:
    """Heartbeats and round-trip times (smoothed as in RFC 6298, section 2).

    Any received byte is a sign of life. Heartbeats are counted when their time comes, one at a time, so that
    this machine's own sleep or stall never makes the other side look dead.
    """

    def __init__(self, *, heartbeat: float, now: float) -> None:
        self.heartbeat = heartbeat
        self.interval = heartbeat
        """Seconds of one heartbeat, adapted to the round trip."""
        self.last_heard = now
        """When bytes came last: to be set whenever some do."""
        self.rtt = 0.0
        self.ping_wanted = False
        self._next_sample = now
        """When the last round trip is old."""
        self._variation = 0.0
        self._missed = 0
        self._beat = now
        self._began = now
        self._token = 0
        self._sent: dict[bytes, float] = {}
        self._probe: bytes | None = None
        self._probe_wanted = False

    @property
    def deadline(self) -> float:
        """When ``tick`` is due."""
        return min(self._beat_over, self._next_sample)

    @property
    def _beat_over(self) -> float:
        """When a heartbeat without a byte is over."""
        if self.last_heard >= self._beat:
            return self.last_heard + self.interval
        is_last = self._missed == MISSED_HEARTBEATS - 1
        return self._beat + self.interval * (LAST_BEAT if is_last else 1.0)

    def begin(self, now: float) -> None:
        """The link is up: measure a round trip at once."""
        self.last_heard = now
        self._ask(now)

    def tick(self, now: float) -> Literal["wait", "dead"]:
        """Count a heartbeat without a byte, if one is over; asks for a ping, or gives up."""
        if now >= self._next_sample:
            self._ask(now)
        if now < self._beat_over:
            return "wait"
        self._missed = 1 if self.last_heard >= self._beat else self._missed + 1
        if self._missed >= MISSED_HEARTBEATS:
            return "dead"
        self.ping_wanted = True
        self._beat = now
        return "wait"

    def probe(self) -> None:
        """Ask for a ping whose answer is reported."""
        self.ping_wanted = self._probe_wanted = True
        self._probe = None

    def _ask(self, now: float) -> None:
        """Ask for a ping that measures a round trip."""
        self.ping_wanted = True
        self._next_sample = now + RTT_SAMPLE_SECONDS

    def ping(self, now: float) -> bytes:
        """The token of the ping that goes out now: when that is, by a clock of this link alone."""
        self._token = max(self._token + 1, int((now - self._began) * TICKS_PER_SECOND))
        token = self._token.to_bytes(8, "big")
        self._sent[token] = now
        while len(self._sent) > MAX_UNSENT_PONGS:
            del self._sent[next(iter(self._sent))]
        if self._probe_wanted:
            self._probe, self._probe_wanted = token, False
        self.ping_wanted = False
        return token

    @staticmethod
    def sent_at(token: bytes) -> float:
        """When a ping with this token left, in seconds of the sender's clock."""
        return int.from_bytes(token, "big") / TICKS_PER_SECOND

    def awaits(self, token: bytes) -> bool:
        """Whether the ping with this token has no answer yet."""
        return token in self._sent

    def pong(self, token: bytes, now: float) -> bool:
        """The answer to a ping came; returns whether that was the last probe."""
        sample = max(now - self._sent.pop(token), 0.0)
        if self.rtt == 0.0:
            self.rtt, self._variation = sample, sample / 2
        else:
            self._variation += (abs(sample - self.rtt) - self._variation) / 4
            self.rtt += (sample - self.rtt) / 8
        self.interval = max(self.heartbeat, 2.0 * self.rtt + 4.0 * self._variation)
        self._next_sample = now + RTT_SAMPLE_SECONDS
        answered = token == self._probe
        if answered:
            self._probe = None
        return answered


class RateMeter:
    """Bytes a second over spans in which the path had work without a break; a moving average.

    ``rate`` is 0 before the first. ``frame_bytes`` and ``unsent_bytes`` follow from it.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self.frame_bytes = self.unsent_bytes = UNMEASURED_FRAME_BYTES
        self._start: tuple[int, float] | None = None

    def observe(self, total: int, *, busy: bool, now: float) -> None:
        """``total`` bytes have passed so far; ``busy`` says whether more follow without a break."""
        if self._start is None:
            if busy:
                self._start = total, now
            return
        moved, seconds = total - self._start[0], now - self._start[1]
        if seconds >= RATE_SPAN_SECONDS or (not busy and moved >= RATE_BURST_BYTES and seconds > 0):
            self._learn(moved / seconds)
            self._start = total, now
        if not busy:
            self._start = None

    def _learn(self, sample: float) -> None:
        self.rate = sample if self.rate == 0.0 else self.rate + RATE_GAIN * (sample - self.rate)
        self.frame_bytes = _rounded(self.rate * BULK_FRAME_SECONDS, MAX_DATA_FRAME_BYTES)
        self.unsent_bytes = _rounded(self.rate * UNSENT_SECONDS, MAX_UNSENT_BYTES)


def _rounded(wanted: float, largest: int) -> int:
    """A power of two of bytes near ``wanted``, between the smallest bulk frame and ``largest``."""
    return 1 << (int(min(max(wanted, MIN_DATA_FRAME_BYTES), largest)).bit_length() - 1)
