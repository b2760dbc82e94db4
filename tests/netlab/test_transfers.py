"""A stage's snapshot is fetched from several peers at once, of whom some leave, lie or are slow."""

from collections.abc import Callable

from benchmarks.transfers import scenario
from swarm.testing.netlab.plugin import StartLab
from swarm.testing.netlab.punctuality import Bounds, Machine
from swarm.wire.limits import MIB

SIZE = 24 * MIB
Settled = Callable[[Callable[[], float], Callable[[], Bounds]], float]


def test_a_transfer_outlives_a_donor_that_leaves_and_one_that_lies_and_names_the_liar(
    netlab: StartLab, settled: Settled, machine: Machine
) -> None:
    lab = netlab(scenario.make_lab("40Mbit", {"a": "60Mbit", "b": "30Mbit", "c": "30Mbit"}))

    def once() -> float:
        with scenario.ends(lab, {"a": "donor", "b": "donor", "c": "liar"}, size=SIZE) as ends:
            machine.forget()
            ends.begin()
            ends.wait(0.3)
            ends.donors["b"].close()
            found = ends.finish()
            assert found.given.keys() == {ends.peers[donor] for donor in "abc"}
            blamed = {told.split(" for block ")[0] for told in found.trouble if "bytes" in told}
            assert blamed == {f"peer {ends.peers['c'][:8]} sent other bytes"}
            assert found.given[ends.peers["c"]] <= 2 * MIB
            return ends.size / found.seconds * 8

    def bounds() -> Bounds:
        return machine.rate(0.9 * 40e6, rel=0.12)

    assert settled(once, bounds) in bounds()


def test_a_receiver_that_was_killed_fetches_what_it_lacks_and_more_of_it_from_who_is_faster(
    netlab: StartLab,
) -> None:
    lab = netlab(scenario.make_lab("60Mbit", {"fast": "40Mbit", "slow": "8Mbit"}))
    with scenario.ends(lab, {"fast": "donor", "slow": "donor"}, size=SIZE) as ends:
        ends.begin()
        kept = ends.wait(0.5)
        with scenario.started_again(ends) as again:
            again.begin()
            found = again.finish()
            assert kept <= found.before < again.size
            assert sum(found.given.values()) == again.size - found.before
            assert found.given[ends.peers["fast"]] > 2 * found.given.get(ends.peers["slow"], 0)
