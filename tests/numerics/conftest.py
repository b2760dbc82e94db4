"""The settings of like machines, and how long the search for a cut that changes a bit may take."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from swarm.train.device import configure_device

settings.register_profile("nightly", max_examples=40, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def like_machine() -> Iterator[None]:
    """For as long as a module's tests run."""
    threads = torch.get_num_threads()
    configure_device(torch.device("cpu"))
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
