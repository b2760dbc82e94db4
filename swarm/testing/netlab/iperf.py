"""iperf3 between two hosts of a lab: how much payload TCP carries there."""

import re
import subprocess
from typing import Final

from swarm.errors import FailureError
from swarm.testing.netlab.running import RunningLab
from swarm.testing.netlab.shaping import FRAME

_SECOND: Final = re.compile(r"([\d.]+)-([\d.]+) +sec +[\d.]+ \w+ +([\d.]+) Kbits/sec *$")
_SHORTEST: Final = 0.5
"""Seconds of a line that counts: the last one may be a rest."""
_PAYLOAD: Final = 1448
"""Bytes that TCP, with its time stamps, carries in a full packet."""
_PATIENCE_SECONDS: Final = 100.0


class Iperf:
    """One transfer by TCP, measured by iperf3 where it arrives, second by second.

    The first second is left out, since the buffer before the link fills then, and so is what comes out of
    that buffer when the sender has stopped.
    """

    def __init__(self, lab: RunningLab, sender: str, receiver: str, *, port: int, seconds: int) -> None:
        serve = ["iperf3", "-s", "-1", "-p", str(port), "-f", "k", "--forceflush"]
        self._server = lab.popen(receiver, serve, stdout=subprocess.PIPE, text=True)
        output = self._server.stdout
        if output is None or not any("Server listening" in line for line in iter(output.readline, "")):
            raise FailureError(f"iperf3 does not listen on {receiver}")
        address = lab.address(receiver, seen_from=sender)
        send = ["iperf3", "-c", address, "-p", str(port), "-t", str(seconds), "-O", "1"]
        self._client = lab.popen(sender, send, stdout=subprocess.DEVNULL)

    def rate(self) -> float:
        """Bits a second of payload. Raises FailureError where nothing was measured."""
        if self._client.wait(_PATIENCE_SECONDS) != 0:
            raise FailureError("iperf3 failed")
        output, _ = self._server.communicate(timeout=10)
        found = [match for line in output.splitlines() if (match := _SECOND.search(line))]
        spans = [(float(match[2]) - float(match[1]), float(match[3]) * 1e3) for match in found]
        whole = [(span, rate) for span, rate in spans if span > _SHORTEST]
        if not whole:
            raise FailureError(f"iperf3 measured nothing: {output}")
        return sum(span * rate for span, rate in whole) / sum(span for span, _ in whole)

    def rate_on_the_wire(self) -> float:
        """The same with the headers of full packets, which the rates of a lab count."""
        return self.rate() * FRAME / _PAYLOAD

    def close(self) -> None:
        """End it, if it has not ended yet."""
        for process in (self._client, self._server):
            process.kill()
            process.communicate()
