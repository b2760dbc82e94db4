"""The options of ``swarm demo``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bootstrap.commandline import parsed_by
from bootstrap.options import DebugOption, JsonOption
from peer.config import CompileOption
from swarm.errors import MisuseError

MODELS: Final = ("gpt", "resnet")
"""The examples that the demo can train."""


def parse_model(text: str) -> str:
    """The name of one of the demo's models."""
    if text not in MODELS:
        raise MisuseError(f"{text!r} is not a model of the demo: there are {' and '.join(MODELS)}")
    return text


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Train a small model on this machine with a whole swarm of processes, and show what happens.

    A bootstrap node and N peers start in temporary homes. Each peer offers so little memory that all of
    them are needed. Fails if the model did not learn.

    Example:
      swarm demo --peers 4 --verify
    """

    peers: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="How many peers hold the model.")] = 4
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Optimizer steps; by default as many as it takes.", show_default=False
        ),
    ] = None
    model: Annotated[
        str,
        typer.Option(
            parser=parsed_by(parse_model),
            metavar="gpt|resnet",
            help="A GPT on English text, or a ResNet with BatchNorm on pictures of digits.",
        ),
    ] = "gpt"
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare every step with plain PyTorch, and with one process of ours."),
    ] = False
    compile: CompileOption = False
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.safetensors",
            help="Where the trained weights go; by default swarm-demo-MODEL.safetensors here.",
            show_default=False,
        ),
    ] = None
    json: JsonOption = False
    debug: DebugOption = False
