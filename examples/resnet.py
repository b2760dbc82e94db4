"""A small ResNet with BatchNorm that reads handwritten digits.

    pip install "fusion-swarm[examples]"
    swarm train examples/resnet.py --invite ...

The images are scikit-learn's ``load_digits``: 1,797 grey images of 8 by 8 pixels. A tenth is held out;
this run ends near 0.05 nats on it, with 97 of 100 read correctly.

Shapes are suffixes: B batch, C channels, H height, W width, K classes.
"""
# ruff: noqa: N803, N806

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from swarm.train.job import TrainingJob
from swarm.train.optimizer import SGD, Cosine

try:
    from sklearn.datasets import load_digits
except ImportError as missing:
    raise SystemExit(
        'scikit-learn is missing; install it with: pip install "fusion-swarm[examples]"'
    ) from missing

CLASSES = 10
WIDTHS = (16, 32, 64)


class Residual(nn.Module):
    """Two convolutions, added to what came in; halves the image where ``stride`` is 2."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.convolution2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut.append(nn.Conv2d(channels, width, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(width))

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to (B, width, H / stride, W / stride)."""
        y_BCHW = functional.relu(self.norm1(self.convolution1(x_BCHW)))
        y_BCHW = self.norm2(self.convolution2(y_BCHW))
        return functional.relu(y_BCHW + self.shortcut(x_BCHW))


class ResNet(nn.Module):
    """Images in, scores of the ten digits out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, WIDTHS[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(inplace=True),
        )
        steps = zip((WIDTHS[0], *WIDTHS), WIDTHS, (1, 2, 2), strict=False)
        self.blocks = nn.Sequential(*(Residual(channels, width, stride) for channels, width, stride in steps))
        self.head = nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, 1, 8, 8) to (B, K) scores."""
        y_BCHW = self.blocks(self.stem(images_BCHW))
        scores_BK: torch.Tensor = self.head(y_BCHW.mean(dim=(2, 3)))
        return scores_BK


digits = load_digits()
images = (digits.images[:, np.newaxis] / 16).astype(np.float32)
labels = digits.target.astype(np.int64)
order = np.random.default_rng(0).permutation(len(labels))
held_out, trained = np.split(order, [len(order) // 10])
torch.manual_seed(0)

job = TrainingJob(
    name="resnet",
    model=ResNet(),
    loss=functional.cross_entropy,
    dataset=(images[trained], labels[trained]),
    held_out=(images[held_out], labels[held_out]),
    optimizer=SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, schedule=Cosine(warmup=10)),
    micro_batch_size=16,
    micro_batches=4,
    steps=100,
)
