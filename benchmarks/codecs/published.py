"""The table of what codecs cost, from runs in pairs: for people, and as the data that floors come from."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.codecs.training import Run
from swarm.schedule.quality import shown
from swarm.wire.codecs import CodecSpec, parse_codec

NONE: Final = "none"
TABLE: Final = Path(__file__).parents[2] / "swarm" / "schedule" / "published.py"
"""What ``swarm.schedule.quality`` reads."""

Pairs = Mapping[str, Mapping[str, tuple[float, ...]]]


def pairs_of(runs: Sequence[Run]) -> dict[str, dict[str, tuple[float, ...]]]:
    """By policy and model, for each seed: the held-out loss by the one without a codec, less 1."""
    plain = {(run.model, run.seed): run.held_out for run in runs if run.policy == NONE}
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        beside = plain.get((run.model, run.seed))
        if beside is not None:
            models = found.setdefault(run.policy, {})
            models[run.model] = (*models.get(run.model, ()), run.held_out / beside - 1)
    return found


def shown_table(runs: Sequence[Run]) -> str:
    """The table in Markdown, a line for each model and policy, in the order of the runs."""
    heads = (
        "model",
        "policy",
        "held out",
        "spread",
        "more than none",
        "shown",
        "without the codec",
        "trained",
    )
    rows = [_row((*heads, "bytes")), _row(["---"] * (len(heads) + 1))]
    pairs = pairs_of(runs)
    for model, policy in dict.fromkeys((run.model, run.policy) for run in runs):
        mine = [run for run in runs if (run.model, run.policy) == (model, policy)]
        losses = [run.held_out for run in mine]
        excess = pairs.get(policy, {}).get(model, ())
        sent = statistics.fmean(run.sent for run in mine)
        dense = [run.sent for run in runs if (run.model, run.policy) == (model, NONE)]
        share = f", {sent / statistics.fmean(dense):.1%}" if dense else ""
        rows.append(
            _row(
                (
                    model,
                    policy + _codecs(mine[0]),
                    f"{statistics.fmean(losses):.4f}",
                    f"{max(losses) - min(losses):.4f}",
                    f"{statistics.fmean(excess):+.2%} ± {_error(excess):.2%}" if excess else "",
                    f"{shown([excess]):.2%}" if excess else "",
                    f"{statistics.fmean(run.held_out_plain for run in mine):.4f}",
                    f"{statistics.fmean(run.trained for run in mine):.4f}",
                    f"{sent / 1e6:,.1f} MB{share}",
                )
            )
        )
    return "\n".join(rows)


def published_module(runs: Sequence[Run]) -> str:
    """The source of ``swarm/schedule/published.py``: pairs of every codec that ran on its own."""
    lines = []
    for policy, models in pairs_of(runs).items():
        codec = parse_codec(policy)
        if codec is None or codec == CodecSpec():
            continue
        lines.append(f'    "{policy}": {{')
        for model, pairs in models.items():
            lines.append(f'        "{model}": ({" ".join(f"{pair:.6f}," for pair in pairs)[:-1]}),')
        lines.append("    },")
    head, _, _ = TABLE.read_text("utf-8").partition("PUBLISHED: Final")
    return (
        head
        + "PUBLISHED: Final[Excess] = {"
        + "".join(f"\n{line}" for line in lines)
        + ("\n}\n" if lines else "}\n")
    )


def _codecs(run: Run) -> str:
    """What a policy chose, where its name does not say it."""
    chosen = [codec for codec in run.codecs[:-1] if codec != run.policy]
    fixed = parse_codec(run.policy.split(",", maxsplit=1)[0]) is not None or run.policy == NONE
    return "" if fixed or not chosen else f": {', '.join(run.codecs[:-1])}"


def _error(pairs: Sequence[float]) -> float:
    """Of their mean."""
    return statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else 0.0


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
