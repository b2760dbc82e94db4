import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from swarm.schedule.spans import SpanBuilder

COUNT = 8
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["always", "across", "inside"]),
        st.integers(0, COUNT - 1),
        st.integers(-1, COUNT - 1),
        st.integers(1, 100),
    ),
    max_size=30,
)


@given(ENTRIES)
def test_every_run_counts_what_the_words_say(entries: list[tuple[str, int, int, int]]):
    builder = SpanBuilder(COUNT)
    sound = [(kind, at, min(before, at), size) for kind, at, before, size in entries]
    for kind, at, before, size in sound:
        match kind:
            case "always":
                builder.always(at, size)
            case "across":
                builder.across(at, before, size)
            case _:
                builder.inside(at, before, size)
    spans = builder.finish()
    for first in range(COUNT):
        row = spans.row(first)
        for last in range(first + 1, COUNT + 1):
            run = range(first, last)
            expected = sum(
                size
                for kind, at, before, size in sound
                if at in run
                and (
                    kind == "always"
                    or (kind == "across" and before not in run and before < first)
                    or (kind == "inside" and before in run)
                )
            )
            np.testing.assert_allclose(row[last], expected)
