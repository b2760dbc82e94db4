import pytest

from swarm.schedule.units import format_bytes, format_seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (61.2 * 1024**2, "61.2 MiB"),
        (6 * 1024**3, "6.0 GiB"),
        (2**63, "8192.0 PiB"),
    ],
)
def test_bytes_are_shown_in_the_largest_unit_that_leaves_one(count: float, text: str):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 us"), (1e-9, "0.001 us"), (2.5e-5, "25 us"), (0.0123, "12.3 ms"), (61.5, "61.5 s")],
)
def test_durations_are_shown_to_three_digits(seconds: float, text: str):
    assert format_seconds(seconds) == text
