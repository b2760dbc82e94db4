"""Image models: residual networks with BatchNorm, a vision transformer, and the U-Net of diffusion.

Shapes are suffixes: B batch, C channels, H height, W width, E embedding.
"""
# ruff: noqa: N803, N806

import importlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from swarm.testing.zoo.entry import Fields, ZooModel

CLASSES: Final = 7
BATCH: Final = 3
SMALL: Final = 0.1
"""Weight of the last normalisation of a residual block, at first: rounding then grows more slowly in deep
networks. Source: Goyal et al., arXiv 1706.02677, section 5.1, which has 0."""


class Basic(nn.Module):
    """Two convolutions, added to what came in. Source: He et al., arXiv 1512.03385, figure 2."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, width, stride)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to (B, width, H / stride, W / stride)."""
        y_BCHW = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x_BCHW)))))
        y_BCHW += x_BCHW if self.downsample is None else self.downsample(x_BCHW)
        result_BCHW: torch.Tensor = self.relu(y_BCHW)
        return result_BCHW


class Bottleneck(nn.Module):
    """A narrow convolution between two of single pixels. Source: He et al., figure 5."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, 4 * width, stride)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to (B, 4 width, H / stride, W / stride)."""
        y_BCHW = self.relu(self.bn1(self.conv1(x_BCHW)))
        y_BCHW = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y_BCHW)))))
        y_BCHW += x_BCHW if self.downsample is None else self.downsample(x_BCHW)
        result_BCHW: torch.Tensor = self.relu(y_BCHW)
        return result_BCHW


def _shortcut(channels: int, width: int, stride: int) -> nn.Module | None:
    if stride == 1 and channels == width:
        return None
    return nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))


class ResNet(nn.Module):
    """The residual network of He et al., table 1, with ``width`` channels in its first stage of four."""

    def __init__(self, block: type[Basic | Bottleneck], depths: Sequence[int], width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels, stages = width, []
        for stage, depth in enumerate(depths):
            blocks = []
            for index in range(depth):
                blocks.append(block(channels, width << stage, 2 if stage and not index else 1))
                channels = (width << stage) * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        for part in self.stages.modules():
            if isinstance(part, Basic | Bottleneck):
                last = part.bn2 if isinstance(part, Basic) else part.bn3
                nn.init.constant_(last.weight, SMALL)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, CLASSES)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) to scores (B, CLASSES)."""
        x_BCHW = self.stages(self.maxpool(self.relu(self.bn1(self.conv1(x_BCHW)))))
        scores: torch.Tensor = self.fc(torch.flatten(self.avgpool(x_BCHW), 1))
        return scores


class Residual(nn.Module):
    """A block of the U-Net: two normalised convolutions, the time added between them."""

    def __init__(self, channels: int, width: int, embedding: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, channels), nn.Conv2d(channels, width, 3, 1, 1)
        self.time = nn.Linear(embedding, width)
        self.norm2, self.conv2 = nn.GroupNorm(2, width), nn.Conv2d(width, width, 3, 1, 1)
        self.skip = nn.Conv2d(channels, width, 1) if channels != width else nn.Identity()

    def forward(self, x_BCHW: torch.Tensor, time_BE: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) and (B, E) to (B, width, H, W)."""
        y_BCHW = self.conv1(functional.silu(self.norm1(x_BCHW)))
        y_BCHW = y_BCHW + self.time(functional.silu(time_BE))[:, :, None, None]
        y_BCHW = self.conv2(functional.silu(self.norm2(y_BCHW)))
        result_BCHW: torch.Tensor = y_BCHW + self.skip(x_BCHW)
        return result_BCHW


class Attention(nn.Module):
    """Every pixel looks at all others, through ``nn.MultiheadAttention``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.attention = nn.MultiheadAttention(channels, 2, batch_first=True)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to the same."""
        flat = self.norm(x_BCHW).flatten(2).transpose(1, 2)
        mixed, _ = self.attention(flat, flat, flat, need_weights=False)
        result_BCHW: torch.Tensor = x_BCHW + mixed.transpose(1, 2).reshape(x_BCHW.shape)
        return result_BCHW


class UNet(nn.Module):
    """Predicts the noise in an image. Source: Ho et al., arXiv 2006.11239, appendix B.

    The time goes into every block, and what each block on the way down makes is kept for one on the way up.
    """

    def __init__(self, width: int = 8, levels: int = 3) -> None:
        super().__init__()
        self.width, embedding = width, 2 * width
        self.time = nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.start = nn.Conv2d(3, width, 3, 1, 1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        channels = width
        for level in range(levels):
            self.down.append(Residual(channels, width << level, embedding))
            channels = width << level
            self.shrink.append(nn.Conv2d(channels, channels, 3, 2, 1))
        self.middle = Residual(channels, channels, embedding)
        self.attention = Attention(channels)
        for level in reversed(range(levels)):
            self.grow.append(nn.ConvTranspose2d(channels, channels, 4, 2, 1))
            self.up.append(Residual(channels + (width << level), width << level, embedding))
            channels = width << level
        self.end = nn.Sequential(nn.GroupNorm(2, width), nn.SiLU(), nn.Conv2d(width, 3, 3, 1, 1))

    def forward(self, x_BCHW: torch.Tensor, time_B: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) and its time (B,) to the noise (B, 3, H, W)."""
        half = self.width // 2
        rates = torch.exp(-math.log(10_000) * torch.arange(half, device=x_BCHW.device) / half)
        angles = time_B[:, None] * rates
        time_BE = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        x_BCHW, kept = self.start(x_BCHW), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x_BCHW = block(x_BCHW, time_BE)
            kept.append(x_BCHW)
            x_BCHW = shrink(x_BCHW)
        x_BCHW = self.attention(self.middle(x_BCHW, time_BE))
        for grow, block in zip(self.grow, self.up, strict=True):
            x_BCHW = block(torch.cat([grow(x_BCHW), kept.pop()], dim=1), time_BE)
        noise: torch.Tensor = self.end(x_BCHW)
        return noise


def resnet18() -> nn.Module:
    """ResNet-18: 8 blocks, 20 normalisations that keep running statistics."""
    return ResNet(Basic, (2, 2, 2, 2), width=4)


def resnet101() -> nn.Module:
    """ResNet-101: 33 bottlenecks, 104 normalisations."""
    return ResNet(Bottleneck, (3, 4, 23, 3), width=2)


def vit() -> nn.Module:
    """The vision transformer of ``transformers``: patches, a class token, learned positions."""
    library = importlib.import_module("transformers")
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    configuration = library.ViTConfig(
        **sizes, image_size=16, patch_size=4, num_labels=CLASSES,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    module: nn.Module = library.ViTForImageClassification(configuration)
    return module


def images(chance: torch.Generator, *, size: int, names: tuple[str, str]) -> Fields:
    """Images and their classes."""
    x_BCHW = torch.randn(BATCH, 3, size, size, generator=chance)
    target_B = torch.randint(0, CLASSES, (BATCH,), generator=chance)
    return dict(zip(names, (x_BCHW, target_B), strict=True))


def noisy(chance: torch.Generator) -> Fields:
    """Images, the times to which noise was added, and that noise."""
    noise = torch.randn(BATCH, 3, 16, 16, generator=chance)
    time = torch.randint(0, 1000, (BATCH,), generator=chance)
    clean = torch.randn(BATCH, 3, 16, 16, generator=chance)
    share = (time / 1000).sqrt()[:, None, None, None]
    return {"x_BCHW": clean * (1 - share) + noise * share, "time_B": time.float(), "noise": noise}


_CLASSES: Final[Callable[[torch.Generator], Fields]] = partial(images, size=64, names=("x_BCHW", "target"))

MODELS: Final = {
    "resnet18": ZooModel(make=resnet18, loss=functional.cross_entropy, sample=_CLASSES),
    "resnet101": ZooModel(make=resnet101, loss=functional.cross_entropy, sample=_CLASSES),
    "vit": ZooModel(make=vit, loss=None, sample=partial(images, size=16, names=("pixel_values", "labels"))),
    "unet": ZooModel(make=UNet, loss=functional.mse_loss, sample=noisy),
}
