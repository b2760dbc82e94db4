"""Blobs: byte strings of any length as lists of blocks (``swarm.wire.records.blobs``), graphs among them.

Every block of a blob has the same length but for the last one, which may be shorter. Readers return None
where a block is not in the store (never fetched, evicted, or damaged): fetch it and read again.
"""

from collections.abc import Iterator
from typing import Final

import zstandard

from swarm.data.blocks import Blocks, Buffer, Keeps
from swarm.errors import RemoteProtocolError
from swarm.graph.dag import Graph, decode_graph, encode_graph
from swarm.ids import Digest
from swarm.wire.limits import MAX_BLOCK_BYTES, MAX_GRAPH_BYTES, MIB
from swarm.wire.records.blobs import Blob

USUAL_BLOCK_BYTES: Final = 1 * MIB
"""A block's length where nothing asks for more: a second at 8 Mbit/s, so little is lost with a link."""

USUAL_BLOCKS: Final = 4096
"""Blocks of one blob above which they grow, so that a manifest that lists them stays small."""

_GRAPH_LEVEL: Final = 10
"""zstandard's level for graphs: a GPT's OP-DAG shrinks twenty-fold in milliseconds."""


def block_length(size: int, unit: int = 1, *, most: int = USUAL_BLOCKS) -> int:
    """Bytes a block for a blob of ``size`` bytes whose blocks hold whole units of ``unit`` bytes.

    About 1 MiB, growing once that makes more than ``most`` blocks, up to what one block may have. The same
    everywhere, so that the same bytes always become the same blocks.
    """
    wanted = min(max(USUAL_BLOCK_BYTES, -(-size // most)), MAX_BLOCK_BYTES)
    return max(wanted // unit, 1) * unit


def split(data: Buffer, length: int) -> Iterator[memoryview]:
    """The blocks of ``data``, each of ``length`` bytes but the last, without copying."""
    view = memoryview(data).cast("B")
    for start in range(0, view.nbytes, length):
        yield view[start : start + length]


def put_blob(store: Keeps, data: Buffer, *, unit: int = 1, most: int = USUAL_BLOCKS) -> Blob:
    """Keep ``data`` as blocks (see :func:`block_length`). Raises FailureError where they do not fit."""
    size = memoryview(data).nbytes
    blocks = tuple(store.put(block) for block in split(data, block_length(size, unit, most=most)))
    return Blob(size=size, blocks=blocks)


def get_blob(store: Blocks, blob: Blob, *, limit: int) -> bytearray | None:
    """The bytes of ``blob``, or None where a block is missing.

    Raises RemoteProtocolError where its blocks do not have the lengths that its size calls for, or where it
    is larger than ``limit`` bytes; that is decided before memory is spent.
    """
    if blob.size > limit:
        raise RemoteProtocolError(f"a blob of {blob.size} bytes is over the limit of {limit}")
    lengths = [store.length(Digest(name)) for name in blob.blocks]
    if None in lengths:
        return None
    _check_lengths(blob, [length for length in lengths if length is not None])
    joined = bytearray(blob.size)
    at = 0
    for name in blob.blocks:
        block = store.get(Digest(name))
        if block is None:
            return None
        joined[at : at + len(block)] = block
        at += len(block)
    return joined


def expected_block_bytes(blob: Blob) -> int:
    """The most bytes that a block of ``blob`` may have, judged by its size and number of blocks alone."""
    if len(blob.blocks) < 2:
        return min(blob.size, MAX_BLOCK_BYTES)
    return min(-(-blob.size // (len(blob.blocks) - 1)), MAX_BLOCK_BYTES)


def put_graph(store: Keeps, graph: Graph) -> Blob:
    """Keep an OP-DAG, compressed. Raises FailureError where it does not fit."""
    return put_blob(store, zstandard.ZstdCompressor(level=_GRAPH_LEVEL).compress(encode_graph(graph)))


def get_graph(store: Blocks, blob: Blob) -> Graph | None:
    """The OP-DAG that :func:`put_graph` kept as ``blob``, or None where a block is missing.

    Raises RemoteProtocolError for anything that is not an OP-DAG of at most MAX_GRAPH_BYTES.
    """
    packed = get_blob(store, blob, limit=MAX_GRAPH_BYTES)
    return None if packed is None else decode_graph(_decompress(bytes(packed)))


def _decompress(packed: bytes) -> bytes:
    try:
        facts = zstandard.get_frame_parameters(packed)
        if facts.content_size > MAX_GRAPH_BYTES:  # also where the frame does not say
            raise RemoteProtocolError(
                f"a graph is over the limit of {MAX_GRAPH_BYTES} bytes, or hides its size"
            )
        return zstandard.ZstdDecompressor(max_window_size=_window(facts.content_size)).decompress(
            packed, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(f"a graph does not decompress: {error}") from None


def _window(content_size: int) -> int:
    """The largest window that a frame of this content may ask for: the next power of two, at least 1 KiB."""
    return max(1 << max(content_size - 1, 1).bit_length(), 1024)


def _check_lengths(blob: Blob, lengths: list[int]) -> None:
    if sum(lengths) != blob.size or (lengths and lengths[-1] == 0):
        raise RemoteProtocolError("the blocks of a blob do not add up to its size")
    if any(length != lengths[0] for length in lengths[:-1]) or (lengths and lengths[-1] > lengths[0]):
        raise RemoteProtocolError("the blocks of a blob differ in length")
