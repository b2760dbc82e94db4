"""How a member of a DHT answers a node that challenges it (``swarm.dht.proof``)."""

import msgspec

from swarm.dht.messages import Challenge, Request, decode_body
from swarm.dht.proof import asking_statement, make_proof, node_id
from swarm.dht.seal import Opened, Sealer
from swarm.errors import LocalError
from swarm.identity.keys import PrivateKey


def proven(ask: Request, challenge: bytes, *, key: PrivateKey, sealer: Sealer, node: bytes) -> Request:
    """``ask`` again, with the proof that the datagram ``challenge`` of ``node`` wants from the member."""
    opened = sealer.open(challenge)
    body = decode_body(opened.body) if isinstance(opened, Opened) else None
    if not isinstance(body, Challenge):
        raise LocalError("the node did not challenge the member")
    statement = asking_statement(
        asking=node_id(key.public), boot=sealer.boot, answering=node, cookie=body.cookie
    )
    return msgspec.structs.replace(ask, cookie=body.cookie, proof=make_proof(key, statement))
