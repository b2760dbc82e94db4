"""A plan that gives one stage to another holder while its job trains (decision 0028)."""

from msgspec.structs import replace

from swarm.errors import CapacityError
from swarm.graph.dag import Graph
from swarm.graph.needs import needs
from swarm.ids import PeerId, short
from swarm.protocol.coordination_events import MakeSuccessor
from swarm.wire.records.plan import Plan


def made_successor(graphs: tuple[Graph, Graph], action: MakeSuccessor) -> Plan:
    """The plan to propose, without its number and the blob of the copy.

    Its codecs are those of the copy's step, from which the newcomer goes on. Raises CapacityError where no
    taker can run the stage.
    """
    plan, index, step = action.plan, action.stage, action.copy.step
    stage = plan.stages[index]
    train, evaluation = graphs
    of_training, of_evaluation = needs(train), needs(evaluation)
    wanted = frozenset().union(
        *of_training[stage.first : stage.last], *(of_evaluation[place] for place in stage.evaluation)
    )
    able = [taker for taker in action.takers if taker.lacks.isdisjoint(wanted)]
    if not able:
        raise CapacityError(f"no peer that has room for stage {index + 1} can run all of its operators")
    taker = able[0]
    moved = replace(stage, holder=taker.peer, incarnation=stage.incarnation + 1)
    stages = [*plan.stages[:index], moved, *plan.stages[index + 1 :]]
    stages = [replace(one, codec=codec) for one, codec in zip(stages, action.copy.codecs, strict=True)]
    told = f"stage {index + 1} moves from peer {short(PeerId(stage.holder))} to peer {short(taker.peer)}"
    return replace(plan, step=step, stages=tuple(stages), explanation=(told,))
