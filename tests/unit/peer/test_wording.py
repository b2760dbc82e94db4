"""Foreign text is harmless on a terminal; amounts read the way people write them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.wording import clean, shown_clock, shown_date, shown_number, shown_rate, shown_span


@given(st.text())
def test_cleaned_text_cannot_steer_a_terminal(text: str) -> None:
    result = clean(text)
    assert len(result) == len(text)
    assert not {unicodedata.category(c) for c in result} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert clean(result) == result


def test_ordinary_text_stays_as_it_is() -> None:
    assert clean("Ann's läptop № 7 漢字") == "Ann's läptop № 7 漢字"
    assert clean("a\x1b[2Jb\u202ec\n") == "a\ufffd[2Jb\ufffdc\ufffd"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (-3, "0 s"), (0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3599.6, "1 h 0 min"),
     (7260, "2 h 1 min"), (172800, "2 d 0 h"), (200000, "2 d 7 h")],
)  # fmt: skip
def test_spans(seconds: float | None, text: str) -> None:
    assert shown_span(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "-"),
        (0, "0 bit/s"),
        (125, "1 kbit/s"),
        (1e6, "8 Mbit/s"),
        (1.25e9, "10 Gbit/s"),
        (1e12, "8e+03 Gbit/s"),
    ],
)
def test_rates_are_in_bits(rate: float | None, text: str) -> None:
    assert shown_rate(rate) == text


def test_numbers() -> None:
    assert shown_number(None) == "-"
    assert shown_number(2.34567) == "2.3457"
    assert shown_number(1234.5, 0) == "1234"


@given(st.floats(allow_nan=False))
def test_any_wall_time_can_be_shown(wall: float) -> None:
    assert len(shown_clock(wall)) == 8
    assert shown_date(wall).endswith("UTC")


def test_dates_are_utc() -> None:
    assert shown_date(1_700_000_000) == "2023-11-14 22:13 UTC"
