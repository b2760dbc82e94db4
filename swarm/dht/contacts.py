"""Who has shown its key, and where: the gate to the routing table."""

from collections import OrderedDict
from collections.abc import Callable

from swarm.clock import Clock
from swarm.dht.addresses import Address
from swarm.dht.limits import MAX_PROVEN, MAX_SILENT, SILENCE_SECONDS
from swarm.dht.seal import Opened
from swarm.dht.table import Contact, Table
from swarm.ids import PeerId


class Contacts:
    """Nodes that have proved their id from an address and for one run of their program.

    ``invite_of`` says by which invite a peer is a member, where that is known. ``on_new`` hears of each that
    enters, once it is known whether it stores for others.
    """

    def __init__(
        self, table: Table, *, clock: Clock, invite_of: Callable[[PeerId], str | None] = lambda _: None
    ) -> None:
        self._invite_of = invite_of
        self._table = table
        self._clock = clock
        self._proven: OrderedDict[tuple[bytes, Address], Contact] = OrderedDict()
        self._silent: OrderedDict[tuple[bytes, Address], float] = OrderedDict()
        self.on_new: Callable[[Contact], None] | None = None
        self.last_heard = -1.0
        """Elapsed time of the last datagram of any of them."""

    def find(self, node: bytes, address: Address) -> Contact | None:
        """The contact of ``node`` at ``address``."""
        contact = self._proven.get((node, address))
        if contact is None:
            listed = self._table.find(node)
            contact = listed if listed is not None and listed.address == address else None
        return contact

    def recognise(self, opened: Opened, address: Address) -> Contact | None:
        """The contact that a datagram came from, where it has proved itself since it started."""
        contact = self.find(opened.sender, address)
        return contact if contact is not None and contact.boot == opened.boot else None

    def admit(self, opened: Opened, address: Address, *, storing: bool) -> Contact:
        """Enter the sender of ``opened``, whose proof the caller has checked."""
        contact = Contact(opened.sender, address, boot=opened.boot, storing=storing)
        self._proven[opened.sender, address] = contact
        if len(self._proven) > MAX_PROVEN:
            self._proven.popitem(last=False)
        self.note(contact, opened, storing=storing)
        if self.on_new is not None:
            self.on_new(contact)
        return contact

    def note(self, contact: Contact, opened: Opened, *, storing: bool) -> None:
        """A datagram of ``contact`` came: it is alive, and in the table where it stores for others."""
        contact.heard = self.last_heard = self._clock.elapsed()
        contact.silences = 0
        self._silent.pop((contact.id, contact.address), None)
        contact.envelope = opened.envelope
        contact.storing = storing
        if contact.invite is None:
            contact.invite = self._invite_of(contact.peer)
        if (contact.id, contact.address) in self._proven:
            self._proven.move_to_end((contact.id, contact.address))
        listed = self._table.find(contact.id)
        if not storing:
            if listed is not None:
                self._table.remove_contact(listed)
        elif listed is None or listed is contact or _is_superseded(listed, contact):
            self._table.add_contact(contact)

    def silent(self, node: bytes | None, address: Address, *, since: float) -> None:
        """``node`` left a call unanswered that began at ``since`` (elapsed time)."""
        if node is None:
            return
        others_heard = self.last_heard > since
        listed = self._table.find(node)
        if listed is not None and listed.address == address:
            self._table.silent(listed, others_heard=others_heard)
        if others_heard:
            self._silent[node, address] = self._clock.elapsed()
            if len(self._silent) > MAX_SILENT:
                self._silent.popitem(last=False)

    def is_silent(self, node: bytes, address: Address) -> bool:
        """Whether ``node`` left a call unanswered just now, while others answered."""
        since = self._silent.get((node, address))
        return since is not None and self._clock.elapsed() - since < SILENCE_SECONDS

    def __len__(self) -> int:
        return len(self._proven)


def _is_superseded(listed: Contact, contact: Contact) -> bool:
    """Whether ``contact``, the same node elsewhere, takes the listed one's place: a node that answers at
    two addresses keeps the one it was listed with."""
    return listed.silences > 0 or listed.boot != contact.boot
