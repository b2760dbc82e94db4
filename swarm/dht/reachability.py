"""Whether others can start a datagram to this node: who cannot be reached must hold no records for others.

An answer proves nothing, since every router lets in answers to what was sent through it. What does is a
datagram of a member from an address and port that this node never sent to. Home and office networks have no
router between their hosts: towards those (:attr:`swarm.dht.addresses.Address.is_local`) no proof is asked for
(docs/decisions/0018-reached-by-strangers.md).
"""

from collections import OrderedDict
from typing import Final, Literal

from swarm.clock import Clock
from swarm.dht.addresses import Address
from swarm.dht.limits import MAX_SENT_TO, REACHED_SECONDS

Storing = Literal["always", "reachable", "never"]
"""When a node holds records for others."""


class Reachability:
    """What one node knows about being reached, and therefore tells each address about ``storing``."""

    def __init__(self, storing: Storing, *, clock: Clock) -> None:
        self._storing: Final = storing
        self._clock = clock
        self._sent_to: OrderedDict[Address, None] = OrderedDict()
        self._reached = -REACHED_SECONDS

    def stores_for(self, address: Address) -> bool:
        """Whether this node holds records for a node at ``address``."""
        if self._storing == "reachable":
            return address.is_local or self.is_reached
        return self._storing == "always"

    @property
    def is_reached(self) -> bool:
        """Whether a stranger's datagram has come in lately from beyond the local network."""
        return self._age < REACHED_SECONDS

    @property
    def _age(self) -> float:
        return self._clock.elapsed() - self._reached

    @property
    def wants_proof(self) -> bool:
        """Whether somebody should be asked to knock."""
        return self._storing == "reachable" and self._age > REACHED_SECONDS / 2

    def sent(self, address: Address) -> None:
        """A datagram goes to ``address``: from now on, what comes from there may be let in for that."""
        if self._storing != "reachable" or address.is_local:
            return
        self._sent_to[address] = None
        self._sent_to.move_to_end(address)
        if len(self._sent_to) > MAX_SENT_TO:
            self._sent_to.popitem(last=False)

    def heard(self, address: Address) -> None:
        """A member's datagram came from ``address``."""
        if not address.is_local and address not in self._sent_to:
            self._reached = self._clock.elapsed()
