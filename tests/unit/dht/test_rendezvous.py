import random

from swarm.dht.rendezvous import SHARDS, Rendezvous
from swarm.ids import swarm_id


def test_each_swarm_has_keys_of_its_own() -> None:
    keys = [Rendezvous(swarm_id(bytes([number]) * 32)) for number in range(50)]
    everything = [key for one in keys for key in (one.meeting, *one.shards)]
    assert len(set(everything)) == len(everything) == 50 * (1 + SHARDS)
    assert {len(key) for key in everything} == {20}


def test_a_record_lies_at_the_meeting_point_and_in_one_shard_that_follows_from_its_publisher() -> None:
    rendezvous = Rendezvous(swarm_id(bytes(32)))
    source = random.Random(1)
    for publisher in (source.randbytes(20) for _ in range(200)):
        places = [key for key in (rendezvous.meeting, *rendezvous.shards) if rendezvous.has(key, publisher)]
        assert tuple(places) == rendezvous.keys_of(publisher)
        assert not rendezvous.has(source.randbytes(20), publisher)


def test_a_thousand_publishers_leave_room_in_every_shard() -> None:
    rendezvous = Rendezvous(swarm_id(bytes(32)))
    source = random.Random(2)
    shards = [rendezvous.shard_of(source.randbytes(20)) for _ in range(1000)]
    assert max(shards.count(shard) for shard in rendezvous.shards) < 40
