"""Which version of the program this is."""

import importlib.metadata


def program_version() -> str:
    """Version of the installed distribution; ``unknown`` where the program runs from a bare clone."""
    try:
        return importlib.metadata.version("fusion-swarm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
