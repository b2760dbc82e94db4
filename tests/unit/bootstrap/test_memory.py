"""A bootstrap node runs where memory is small: what it does not load."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bootstrap.parsing import CAN_READ_APART
from swarm.testing.shell import LOOPBACK, Shell


def test_a_bootstrap_node_loads_neither_torch_nor_numpy_nor_networkx() -> None:
    heavy = ["torch", "numpy", "networkx", "safetensors", "zeroconf", "rich", "aiohttp", "prometheus_client"]
    script = f"import sys, bootstrap.node, bootstrap.hosting; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.skipif(not CAN_READ_APART, reason="the command line is read in the process itself here")
@pytest.mark.parametrize("words", [("bootstrap",), ("peer", "bootstrap")])
def test_a_running_one_keeps_nothing_of_the_option_parser_and_http(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    shell = Shell(tmp_path)
    try:
        node = shell.start(*words, "--invite", str(shell.create()), "--listen", LOOPBACK, "--json")
        assert node.stdout is not None
        assert node.stdout.readline() == "{\n"
        maps = {Path(mapped.path).name for mapped in psutil.Process(node.pid).memory_maps()}
    finally:
        shell.close()
    libraries = ("_ssl", "_pydantic_core", "_http_parser")
    assert [name for name in libraries if any(path.startswith(name) for path in maps)] == ["_ssl"]
