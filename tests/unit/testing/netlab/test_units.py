"""Amounts as people write them."""

import pytest

from swarm.errors import MisuseError
from swarm.testing.netlab.units import format_rate, parse_duration, parse_rate, parse_share, parse_size


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "8Mbit", 8e6),
        (parse_rate, "1.5 Gbit/s", 1.5e9),
        (parse_rate, "9600", None),
        (parse_duration, "40ms", 0.04),
        (parse_duration, "-2h", -7200.0),
        (parse_size, "512MiB", 512 * 2**20),
        (parse_size, "4GB", 4e9),
        (parse_share, "1%", 0.01),
        (parse_share, "0.25", 0.25),
        (parse_rate, "8MB", None),
        (parse_duration, "40", None),
        (parse_size, "a lot", None),
        (parse_share, "1 percent", None),
    ],
)
def test_amounts_are_read_or_refused(parse: object, text: str, value: float | None) -> None:
    assert callable(parse)
    if value is None:
        with pytest.raises(MisuseError, match=f"'{text}' is not a"):
            parse(text)
    else:
        assert parse(text) == pytest.approx(value)


def test_rates_are_shown_in_the_largest_unit_that_leaves_one() -> None:
    rates = [format_rate(rate) for rate in (8e6, 1e9, 1e10, 5600.0, 56.0)]
    assert rates == ["8 Mbit/s", "1 Gbit/s", "10 Gbit/s", "5.6 kbit/s", "56 bit/s"]
