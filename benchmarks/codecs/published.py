"""The table of what codecs cost, from runs in pairs: for people, and as the data that floors come from."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.codecs.training import Run
from swarm.wire.codecs import CodecSpec, parse_codec

NONE: Final = "none"
TABLE: Final = Path(__file__).parents[2] / "swarm" / "schedule" / "published.py"
"""What ``swarm.schedule.quality`` reads."""


def pairs_of(runs: Sequence[Run]) -> dict[str, dict[str, tuple[float, ...]]]:
    """By policy and model, for each seed: the held-out loss by the one without a codec, less 1.

    Where runs of a policy have different lengths, those of the longest.
    """
    plain = {(run.model, run.steps, run.seed): run.held_out for run in runs if run.policy == NONE}
    paired = [run for run in runs if (run.model, run.steps, run.seed) in plain]
    longest = {(run.policy, run.model): 0 for run in paired}
    for run in paired:
        longest[run.policy, run.model] = max(longest[run.policy, run.model], run.steps)
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for run in sorted(paired, key=lambda run: run.seed):
        if run.steps == longest[run.policy, run.model]:
            models = found.setdefault(run.policy, {})
            excess = run.held_out / plain[run.model, run.steps, run.seed] - 1
            models[run.model] = (*models.get(run.model, ()), excess)
    return {policy: found[policy] for policy in dict.fromkeys(run.policy for run in paired)}


def shown_table(runs: Sequence[Run]) -> str:
    """The table in Markdown: a line for each model, length and policy, in the order of the runs."""
    heads = ("model", "steps", "policy", "held out", "spread", "beside none", "without the codec", "bytes")
    rows = [_row(heads), _row(["---"] * len(heads))]
    for model, steps, policy in dict.fromkeys((run.model, run.steps, run.policy) for run in runs):
        alike = [run for run in runs if (run.model, run.steps) == (model, steps)]
        mine = [run for run in alike if run.policy == policy]
        losses = [run.held_out for run in mine]
        excess = pairs_of([run for run in alike if run.policy in {policy, NONE}]).get(policy, {}).get(model)
        sent, dense = _mean_sent(mine), _mean_sent([run for run in alike if run.policy == NONE])
        cells = (
            model,
            str(steps),
            policy + _codecs(mine[0]),
            f"{statistics.fmean(losses):.4f}",
            f"{max(losses) - min(losses):.4f}",
            f"{statistics.fmean(excess):+.2%} ± {_error(excess):.2%}" if excess else "",
            f"{statistics.fmean(run.held_out_plain for run in mine):.4f}",
            f"{sent / 1e6:,.1f} MB" + (f", {sent / dense:.1%}" if dense else ""),
        )
        rows.append(_row(cells))
    return "\n".join(rows)


def _mean_sent(runs: Sequence[Run]) -> float:
    return statistics.fmean(run.sent for run in runs) if runs else 0.0


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
