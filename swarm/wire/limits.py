"""Every limit of the wire, with its unit and its reason. All are checked before memory is spent."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

MAX_MESSAGE_BYTES: Final = 1 * MIB
"""Bytes of one message's body. The largest is a plan for a thousand peers, about 200 KiB."""

MAX_PAYLOAD_BYTES: Final = 1 * GIB
"""Bytes of one payload (a boundary tensor, a block). Messages set lower limits of their own."""

MIN_DATA_FRAME_BYTES: Final = 16 * KIB
"""Smallest bulk frame: below it, header and record overhead are felt."""

MAX_DATA_FRAME_BYTES: Final = 256 * KIB
"""Largest bulk frame, whatever the rate: it bounds how long control waits behind bulk (decision D3)."""

MAX_OPEN_STREAMS: Final = 1024
"""Payloads that one link may have open towards us at a time."""

INITIAL_CREDIT_BYTES: Final = 1 * MIB
"""Payload bytes a sender may send on a new stream before it is granted more."""

MAX_RECEIVE_BUFFER_BYTES: Final = 4 * GIB
"""Payload bytes that one link may make us hold in unfinished streams."""

MAX_BLOCK_BYTES: Final = 16 * MIB
"""Bytes of one block: small enough to fetch again, large enough that its 52-character name is nothing."""

MAX_RECORD_BYTES: Final = 800
"""Bytes of one DHT record, so that an answer with one fits any path's datagram (decision D2)."""

MAX_ADDRESSES: Final = 8
"""Addresses that one peer may claim."""

MAX_ADDRESS_LENGTH: Final = 262
"""A host name of 253 characters, a colon and a port, and brackets."""

MAX_SENTENCE_LENGTH: Final = 1000
"""Characters of text that another peer may put on our screen."""

MAX_CERTIFICATE_BYTES: Final = 2 * KIB
"""Bytes of one DER certificate; ours have about 450."""

MAX_REVOCATION_LIST_BYTES: Final = 340 * KIB
"""Bytes of one revocation list: 10,000 ids. Three of them fit into one message."""

MAX_REVOCATION_LISTS: Final = 3
"""Revocation lists of an authority whose copies disagree; normally there is one."""

MAX_DIMENSIONS: Final = 16
"""Dimensions of a tensor."""

MAX_OPERATORS: Final = 50_000
"""Operators of one OP-DAG. A 100-layer transformer has about 5,000."""

MAX_TENSOR_BYTES: Final = 1024 * GIB
"""Bytes of one tensor of an OP-DAG: beyond any device, and small enough that sums of them are numbers."""

MAX_STAGES: Final = 1024
MAX_MICRO_BATCHES: Final = 4096
MAX_STEPS: Final = 2**40
MAX_SAMPLES: Final = 2**40

MAX_HELLO_BYTES: Final = 16 * KIB
"""Bytes of a message on a link that is not up yet: a hello with its certificates, admission and addresses."""

MAX_CREDIT_BYTES: Final = 1 * GIB
"""Payload bytes that one grant of credit may add; a stream never needs more than its payload."""

MAX_UNSENT_PONGS: Final = 8
"""Answers to pings that may wait to be sent. Who pings faster than it reads would make us hold them all."""

MAX_HANDSHAKES: Final = 64
"""Incoming connections that may be unfinished handshakes at a time, so that strangers cost bounded memory."""

MAX_HANDSHAKES_PER_ADDRESS: Final = 16
"""The same, from one address (IPv6: one /64; loopback apart), so that one stranger does not shut out all."""

MAX_LINKS: Final = 256
"""Links that one peer keeps."""

MAX_LACKS: Final = 1024
"""Operators and data types that a peer may say it lacks: more than there are."""

MAX_GRAPH_BYTES: Final = 8 * MIB
"""Bytes of one OP-DAG once decompressed: an operator takes about 150, so this is 50,000 of them. Decoded it
may take twenty-five times as much memory, which a job must not be able to ask of everybody."""

MAX_STATE_BYTES: Final = 8 * MIB
"""Bytes of the list of a job's state: five tensors of each that a manifest may name, with their blocks."""

MAX_MEMBER_RECORD_BYTES: Final = 4 * KIB
"""Bytes of one member record: eight long addresses and the capabilities. Ours have about 350."""

MAX_CREDENTIALS_BYTES: Final = 9 * KIB
"""Bytes of two certificates and an admission at their limits. Ours have about 2,000."""

MAX_GOSSIP_BITS: Final = 10
MAX_GOSSIP_BUCKETS: Final = 2**MAX_GOSSIP_BITS
"""Buckets of a digest: a few members in each, at the number that a node remembers."""

MAX_GOSSIP_SUMMARY: Final = 8192
"""Records, and credentials, that one summary may name: twice what a node remembers."""

MAX_GOSSIP_REQUEST: Final = 64
"""Records, and credentials, that one request may ask for: as many as an answer has room for."""

MAX_GOSSIP_ANSWER: Final = 16 * KIB
"""Bytes of an answer, but for the first piece in it: what takes a receiver some ten milliseconds to check."""
