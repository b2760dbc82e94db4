"""Exporting a job's trained weights: fetched as blocks from whoever has them, written as safetensors."""

import asyncio
from functools import partial
from pathlib import Path

from swarm.errors import FailureError, MisuseError
from swarm.ids import Digest, short
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.status.source import ExportReport, Selection
from swarm.wire.records.manifest import averaged

NO_TORCH = 'this node has no torch, and cannot write weights: pip install "fusion-swarm[peer]"'


async def export_weights(job: Job, blocks: JobBlocks, path: Path, selection: Selection) -> ExportReport:
    """Write the trained tensors of ``job`` to ``path`` under the keys of the author's ``state_dict()``.

    ``selection`` says which of them.

    Raises MisuseError where a job without averages is asked for them, FailureError where blocks cannot be
    had, where the file cannot be written, or without torch.
    """
    try:
        from swarm.data.tensors import get_tensor  # noqa: PLC0415 - imports numpy
        from swarm.services.training.weights import write_weights  # noqa: PLC0415 - only where torch is
    except ImportError:
        raise FailureError(NO_TORCH) from None
    if selection.ema and job.manifest.optimizer.ema == 0:
        raise MisuseError(
            f"job {short(job.id)} keeps no average of its weights: leave out --ema, or give its TrainingJob "
            "an ema, such as 0.999, before it is trained"
        )
    tensors = {tensor.name: tensor for tensor in job.weights}
    frozen = set(job.manifest.frozen) if selection.only_trained else set()
    state = [(key, name) for key, name in job.manifest.state if name not in frozen]
    missing = [key for key, name in state if name not in tensors]
    if missing:
        raise FailureError(f"the trained weights lack {missing[0]}: export from a peer of a newer version")
    if selection.ema:
        state = [(key, averaged(name) if averaged(name) in tensors else name) for key, name in state]
    wanted = [tensors[name] for name in dict.fromkeys(name for _, name in state)]
    await blocks.fetch_weights(job, [tensor.blob for tensor in wanted])
    store = blocks.exchange.store
    arrays = {}
    for tensor in wanted:
        names = [Digest(name) for name in tensor.blob.blocks]
        array = await blocks.exchange.obtain(
            names, partial(get_tensor, store, tensor), sources=blocks.sources(job)
        )
        arrays[tensor.name] = (array, tensor.dtype)
    loop = asyncio.get_running_loop()
    size = await loop.run_in_executor(None, write_weights, path, state, arrays)
    return ExportReport(job=job.id, path=str(path), tensors=len(state), bytes=size)
