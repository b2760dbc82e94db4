from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.data.blocks import Blocks, BlockStore, MemoryBlockStore


@pytest.fixture(params=["disk", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Blocks]:
    """Either kind of store, by its limit in bytes."""
    if request.param == "disk":
        return lambda limit: BlockStore(tmp_path / "blocks", limit)
    return MemoryBlockStore


@pytest.fixture
def store() -> MemoryBlockStore:
    return MemoryBlockStore(1 << 30)
