"""Memory that the links of a node share, so that what one peer can make it hold is bounded, and fair."""

from dataclasses import dataclass
from typing import Final

from swarm.protocol.session_memory import PayloadMemory
from swarm.wire.limits import MAX_RECEIVE_BUFFER_BYTES, MIB

CONTROL_BUDGET_BYTES: Final = 128 * MIB
"""Messages that wait for all peers together to read them. The longest queue to an honest one, the jobs of a
swarm for a newcomer, is a few MiB."""


class Budget:
    """Bytes for all links of a node together. Each may hold as much as is left over for others, and no more.

    One greedy link gets half, two a third each, n of them 1/(n + 1): whoever comes next finds as much again
    (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6 (2), 1998).
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def share(self) -> "Share":
        """The share of one more link."""
        return Share(self)


class Share:
    """What one link holds of a budget."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held = 0

    @property
    def largest(self) -> int:
        """The most that one link ever gets."""
        return self._budget.limit // 2

    def take(self, size: int) -> bool:
        """Hold ``size`` bytes more, where others are left as much as this link then holds; else False."""
        budget = self._budget
        if self.held + size > budget.limit - budget.held - size:
            return False
        self.held += size
        budget.held += size
        return True

    def give_back(self, size: int) -> None:
        """Hold ``size`` bytes less."""
        self.held -= size
        self._budget.held -= size

    def give_back_all(self) -> None:
        """Hold nothing."""
        self.give_back(self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMemory:
    """What one link may make its node hold."""

    begun: Share
    """Payloads on their way in: small ones, and of large ones what their sender may send unasked."""
    granted: Share
    """Large payloads that are given credit, each whole."""
    control: Share
    """Messages that the other side has not read."""
    mappings: PayloadMemory
    """Where the memory of payloads comes from, that of all links together."""


class NodeMemory:
    """What all links may make their node hold. ``payloads`` and ``control`` in bytes.

    A quarter of ``payloads`` is for those that begin, so that they find room while the rest is taken. Beside
    them a thirty-second may be kept for payloads to come.
    """

    def __init__(
        self, *, payloads: int = MAX_RECEIVE_BUFFER_BYTES, control: int = CONTROL_BUDGET_BYTES
    ) -> None:
        self._begun = Budget(payloads // 4)
        self._granted = Budget(payloads - payloads // 4)
        self._control = Budget(control)
        self._mappings = PayloadMemory(spare=payloads // 32)

    def link(self) -> LinkMemory:
        """The memory of one more link."""
        return LinkMemory(
            begun=self._begun.share(),
            granted=self._granted.share(),
            control=self._control.share(),
            mappings=self._mappings,
        )
