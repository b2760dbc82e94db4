"""A small ResNet with BatchNorm reads handwritten digits: scikit-learn's 1,797 grey images of 8 by 8 pixels.

    pip install "fusion-swarm[examples]"
    swarm train examples/resnet.py --invite ...

A tenth is held out; this run ends near 0.05 nats on it, with 97 of 100 read correctly.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from swarm.train.job import TrainingJob
from swarm.train.optimizer import SGD, Cosine


def convolution(planes: int, width: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution and the normalisation of what it gives."""
    return nn.Sequential(nn.Conv2d(planes, width, size, stride, size // 2, bias=False), nn.BatchNorm2d(width))


class Residual(nn.Module):
    """Two convolutions, added to what came in; halves the image where ``stride`` is 2."""

    def __init__(self, planes: int, width: int, stride: int) -> None:
        super().__init__()
        first, second = convolution(planes, width, 3, stride), convolution(width, width, 3)
        self.body = nn.Sequential(first, nn.ReLU(), second)
        self.shortcut = nn.Identity() if stride == 1 else convolution(planes, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Sequential):
    """Images (batch, 1, 8, 8) in, scores of the ten digits (batch, 10) out."""

    def __init__(self) -> None:
        stem = nn.Sequential(convolution(1, 16, 3), nn.ReLU())
        blocks = (Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        super().__init__(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


pixels, labels = load_digits(return_X_y=True)
images = (pixels.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
held_out, trained = np.split(np.random.default_rng(0).permutation(len(labels)), [len(labels) // 10])
torch.manual_seed(0)
job = TrainingJob(
    name="resnet",
    model=ResNet(),
    loss=nn.functional.cross_entropy,
    dataset=(images[trained], labels[trained]),
    held_out=(images[held_out], labels[held_out]),
    optimizer=SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, schedule=Cosine(warmup=10)),
    micro_batch_size=16,
    micro_batches=4,
    steps=100,
)
