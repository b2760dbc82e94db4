"""Hellos and accepts for sessions that nobody judges."""

from swarm.ids import peer_id, swarm_id
from swarm.wire.messages.hello import OLDEST_VERSION, PROTOCOL_VERSION, Accept, Capabilities, Hello

NO_CAPABILITIES = Capabilities(memory=0, device="", torch="", operators="", like="")


def plain_hello(*, newest: int = PROTOCOL_VERSION, boot: bytes = b"bootboot") -> Hello:
    """A hello of the right form, whose certificates are none."""
    return Hello(
        oldest=OLDEST_VERSION,
        newest=newest,
        program="test",
        swarm=swarm_id(b"swarm"),
        role="peer",
        chain=(b"delegate", b"leaf"),
        admission=b"",
        door=b"",
        boot=boot,
        wall=1_750_000_000.0,
        revocations=b"",
        addresses=(f"{peer_id(b'peer')}:7423",),
        capabilities=NO_CAPABILITIES,
    )


def plain_accept(*, version: int = PROTOCOL_VERSION) -> Accept:
    """An accept that brings nothing."""
    return Accept(version=version, observed="192.0.2.1:7423", admission=b"")
