"""A bootstrap node runs where memory is small: what it does not load."""

import subprocess
import sys


def test_a_bootstrap_node_loads_neither_torch_nor_numpy_nor_networkx() -> None:
    heavy = ["torch", "numpy", "networkx", "safetensors", "zeroconf", "rich"]
    script = f"import sys, bootstrap.node, bootstrap.hosting; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
