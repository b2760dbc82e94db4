"""Where the state of this user's nodes is kept, unless they say otherwise."""

from pathlib import Path

import platformdirs


def home_base(given: Path | None) -> Path:
    """The folder that ``--home`` or ``SWARM_HOME`` gave, or the system's place for a user's data."""
    if given is not None:
        return given.expanduser().absolute()
    return platformdirs.user_data_path("fusion-swarm", appauthor=False)
