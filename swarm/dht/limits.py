"""Every limit of the DHT, with its unit and its reason."""

from typing import Final

MAX_DATAGRAM_BYTES: Final = 1200
"""Bytes of one UDP payload: what IPv6's least MTU of 1,280 leaves, so that no path has to fragment it."""

MAX_AGE_SECONDS: Final = 600.0
"""How old a datagram may be, and how far ahead its sender's clock: what links tolerate, so that a link names
a clock that is further off, before discovery fails without a word."""

MAX_SEEN: Final = 65_536
"""Datagrams that are remembered, twice, so that each counts once: 5 MB, enough for 50 a second."""

MAX_SENDERS: Final = 4096
"""Senders whose keys are remembered, about 1 KB each."""

MAX_PROVEN: Final = 2048
"""Peers that have shown their key; one that is forgotten shows it again."""

K: Final = 20
"""Nodes that hold a record, and contacts of a bucket (k of the Kademlia paper)."""

ALPHA: Final = 3
"""Calls that a lookup has under way (alpha of the Kademlia paper)."""

MAX_ALPHA: Final = 10
"""Calls that a lookup has under way while nodes leave it without an answer."""

MAX_LOOKUP_CALLS: Final = 200
"""Nodes that one lookup asks, whatever it is told: a thousand nodes need about forty."""

MAX_NODE_ADDRESSES: Final = 3
"""Addresses at which one lookup tries to reach one node."""

MAX_REPEATED_LOOKUPS: Final = 2
"""Times that a lookup begins anew where it knows fewer than k nodes and none has answered."""

LOOKUP_SECONDS: Final = 15.0
"""After this long a lookup makes do with what it has."""

MIN_PATIENCE_SECONDS: Final = 0.05
"""Least time after which a lookup turns to others as well, while it still waits for an answer."""

MIN_TIMEOUT_SECONDS: Final = 0.3
"""Least wait for an answer: below it, a busy interpreter at the other end looks like a lost datagram."""

MAX_TIMEOUT_SECONDS: Final = 1.5
"""Longest wait for an answer."""

FIRST_TIMEOUT_SECONDS: Final = 0.5
"""Wait for an answer before any round trip has been measured."""

TRANSMISSIONS: Final = 2
"""Datagrams of one call: the request, and once more after the first timeout."""

FRESH_SECONDS: Final = 30.0
"""How long a node's own round trips alone say how long to wait for it: later, everybody's count, too."""

MAX_LATE: Final = 128
"""Datagrams of ended calls whose answers are still known as such: of a few lookups, at 400 bytes each."""

MAX_SILENCES: Final = 2
"""Calls in a row without an answer after which a contact is dropped, where others did answer meanwhile."""

MAX_SILENCES_ALONE: Final = 10
"""The same where nobody answered, so that the fault may be our own line: lookups ask the few again then."""

SILENCE_SECONDS: Final = 30.0
"""How long lookups pass over a node that did not answer, where others did: it may come up in every reply."""

MAX_SILENT: Final = 1024
"""Nodes that lookups pass over at a time."""

MAX_PUBLISHERS: Final = 64
"""Records under one key on one node."""

MAX_KEYS: Final = 256
"""Keys on one node."""

MAX_STORED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of records on one node."""

MAX_KEYS_PER_PUBLISHER: Final = 8
"""Keys on one node under which one publisher has a record."""

MAX_PAGE_RECORDS: Final = 16
"""Records of one datagram; of the smallest, eight fit."""

MAX_KNOWN: Final = 90
"""Records that a reader can say it has in one request, at 8 bytes each."""

MAX_PAGES: Final = 64
"""Pages that a reader asks of one node."""

MAX_GIVEN: Final = 2 * MAX_PUBLISHERS
"""Records that a reader takes of one node: none holds more than half as many, but they change meanwhile."""

ADDRESS_RATE: Final = 50.0
ADDRESS_BURST: Final = 200.0
"""Requests a second that one address may make, and how many at once."""

PREFIX_RATE: Final = 500.0
PREFIX_BURST: Final = 2000.0
"""The same for all addresses of a /24 or /56, which one party may have: a tenth of what a core answers."""

MAX_SOURCES: Final = 4096
"""Addresses, and prefixes, whose requests are counted at a time."""

MAX_HAND_OVERS: Final = 256
"""Newcomers that wait to be handed records."""

MAX_KNOCKS: Final = 64
"""Contacts that wait to be knocked at."""

MAX_SENT_TO: Final = 8192
"""Addresses that a node remembers to have sent to, the last ones: a router forgets them within minutes."""

REACHED_SECONDS: Final = 1800.0
"""How long a node that a stranger reached takes itself for reachable; it asks again after half of that."""

MAX_REMEMBERED: Final = 64
"""Contacts in the state file."""
