"""An expert without compute, and calls to it, in hivemind. Runs in a virtual environment of its own.

    expert.py serve                   prints its addresses as JSON; ends with its standard input
    expert.py call ADDRESSES BYTES    makes one call for each line of standard input, and prints its seconds

The tensor comes back as it went. Nothing of this repository can be imported here.
"""

import json
import os
import sys
import time
from typing import Any

import hivemind
import torch
from hivemind.moe import Server, get_experts, register_expert_class

WIDTH = 1024
"""Numbers in one row of the tensor; float32."""
NAME = "untouched"


@register_expert_class(NAME, lambda rows, width: torch.empty((rows, width)))
class Untouched(torch.nn.Module):
    """Returns what it is given."""

    def __init__(self, hid_dim: int) -> None:
        super().__init__()

    def forward(self, rows: Any) -> Any:
        """No compute."""
        return rows


def serve() -> None:
    """Run the server until nobody is there any more who started it."""
    server = Server.create(
        expert_uids=[f"{NAME}.0"],
        expert_cls=NAME,
        hidden_dim=WIDTH,
        num_handlers=1,
        max_batch_size=1 << 20,
        optim_cls=None,
        device="cpu",
        start=True,
    )
    print(json.dumps([str(address) for address in server.dht.get_visible_maddrs()]), flush=True)
    sys.stdin.read()
    server.shutdown()


def call(addresses: str, size: int) -> None:
    """Measure calls with a tensor of ``size`` bytes."""
    dht = hivemind.DHT(initial_peers=json.loads(addresses), client_mode=True, start=True)
    (expert,) = get_experts(dht, [f"{NAME}.0"])
    rows = torch.randn(size // (4 * WIDTH), WIDTH)
    with torch.no_grad():
        for _ in sys.stdin:
            began = time.perf_counter()
            returned = expert(rows)
            seconds = time.perf_counter() - began
            assert torch.equal(rows, returned)
            print(seconds, flush=True)
    dht.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        call(sys.argv[2], int(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # the interpreter's own end stumbles over the library's event loops
