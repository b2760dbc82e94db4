"""What programs say: results on standard output, everything else on standard error."""

import json
import sys
from typing import Any


def print_line(text: str) -> None:
    """A result, for people and for pipes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_json(document: Any) -> None:
    """The one document of ``--json``."""
    print_line(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def say(text: str) -> None:
    """A word to the person at the keyboard."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
