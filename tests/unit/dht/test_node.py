from collections.abc import Callable
from typing import Any

import pytest

from swarm.dht.addresses import Address
from swarm.dht.messages import Answer, Datagram, Pong, Reply, Request, Stored
from swarm.dht.node import Node
from swarm.dht.proof import answering_statement, make_proof
from swarm.dht.seal import Opened
from swarm.dht.table import Contact
from swarm.identity.keys import PrivateKey
from swarm.ids import SwarmId
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock


@pytest.mark.parametrize("answer", [Pong(), Stored(()), Stored((1, 2, 3)), None])
def test_a_node_that_does_not_say_what_it_holds_counts_as_holding_nothing(
    answer: Answer | None,
    swarm: SwarmId,
    epoch_key: bytes,
    make_key: Callable[[int], PrivateKey],
    make_record: Callable[..., bytes],
    make_insider: Any,
) -> None:
    async def main(clock: ManualClock) -> None:
        network = MemoryDatagrams()
        node = Node(make_key(1), swarm=swarm, storing="always", clock=clock)
        node.protocol.sealer.set_epoch(1, epoch_key)
        node.protocol.endpoint = await network.open(("10.0.0.1",), 7423, node.protocol.on_datagram)
        insider = make_insider(network, clock, number=66, host="10.9.9.9")

        def on(datagram: Datagram, opened: Opened, source: Address) -> None:
            assert isinstance(datagram, Request)
            statement = answering_statement(
                answering=insider.node,
                boot=insider.sealer.boot,
                asking=opened.sender,
                message=datagram.message,
            )
            proof = make_proof(insider.key, statement)
            if answer is not None:
                insider.send(
                    Reply(message=datagram.message, storing=True, proof=proof, answer=answer), source
                )

        await insider.open(on)
        contact = Contact(insider.node, insider.address, boot=insider.sealer.boot, storing=True)
        records = [make_record(100 + number, wall=clock.wall()) for number in range(2)]
        assert await node.store(contact, node.rendezvous.meeting, records) == [0, 0]

    run_on_manual_clock(main)


def test_many_records_are_handed_over_in_as_many_datagrams_as_they_need(
    swarm: SwarmId,
    epoch_key: bytes,
    make_key: Callable[[int], PrivateKey],
    make_record: Callable[..., bytes],
) -> None:
    async def main(clock: ManualClock) -> None:
        network = MemoryDatagrams()
        nodes = [Node(make_key(number), swarm=swarm, storing="always", clock=clock) for number in (1, 2)]
        for number, node in enumerate(nodes):
            node.protocol.sealer.set_epoch(1, epoch_key)
            node.protocol.endpoint = await network.open(
                (f"10.0.0.{number}",), 7423, node.protocol.on_datagram
            )
        contact = Contact(nodes[1].id, Address.of("10.0.0.1", 7423), boot=bytes(8), storing=True)
        records = [make_record(100 + number, wall=clock.wall()) for number in range(40)]
        sequence = int(clock.wall() * 1000)
        assert await nodes[0].store(contact, nodes[0].rendezvous.meeting, records) == [sequence] * 40
        assert 5 < nodes[0].protocol.calls.made < 40
        assert len(nodes[1].storage) == 40

    run_on_manual_clock(main)
