"""Homes of nodes that have joined, without a node that runs."""

from swarm.clock import wall
from swarm.identity.invite import read_invite
from swarm.identity.membership import Identity
from swarm.identity.opening import open_identity
from swarm.services.home import Home


def enter_swarm(home: Home, source: str | None) -> Identity:
    """The home's place in its swarm, by the invite that ``source`` names or the one it joined by.

    Raises MisuseError for a bad invite, one of another swarm, or none at all.
    """
    invite = None if source is None else read_invite(source)
    return open_identity(home.folder, invite=invite, now=wall())
