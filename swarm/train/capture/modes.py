"""Training and evaluation mode of a module, the one meaning that capture and the eager reference share."""

from typing import Literal

from torch import nn

Mode = Literal["train", "evaluate"]


def set_mode(module: nn.Module, mode: Mode) -> None:
    """Put ``module`` into ``mode``.

    A module that is in training mode keeps the flags of its parts, so that an author may freeze the
    statistics of some BatchNorm with ``eval()``; one that is not (fresh from a checkpoint) is switched whole.
    """
    if mode == "evaluate":
        module.eval()
    elif not module.training:
        module.train()
