"""The errors of the program, split by whose fault they are.

::

    SwarmError
    +-- UserError                 the person can mend it; the text says how
    |   +-- MisuseError           wrong arguments or input                                (exit status 2)
    |   +-- FailureError          right arguments, but it did not work, and this is why   (exit status 1)
    |       +-- CaptureError      a model that cannot become an OP-DAG
    |       +-- CapacityError     the peers cannot hold the job; the text has the numbers
    |       +-- TrainingError     the job ended badly (loss became NaN, a holder left, cancelled)
    |           +-- DeviceMemoryError    a device has no memory left for a stage
    +-- LocalError                a bug in this program; ends its task group
    +-- RemoteError               charged to the other peer
        +-- RemoteProtocolError   its bytes break the protocol
        +-- RemoteRefusalError    it refused us, with a code and a sentence
        +-- LinkLostError         the link to it ended; ``reason`` says why we think so
        +-- RemoteTimeoutError    it did not answer within the deadline

A ``UserError``'s text is one line that tells the user what to do. Parsers raise ``RemoteProtocolError`` and
nothing else, whatever the bytes. The text of a ``RemoteError`` may repeat what the other peer sent, so it is
made fit for a screen, and cut, when the error is made.
"""

from typing import Any, Final

LONGEST_REMOTE_TEXT: Final = 8192
"""Characters of a RemoteError's text: a sentence for each address of a peer fits."""


class SwarmError(Exception):
    """Anything this program raises on purpose."""


class UserError(SwarmError):
    """Something that the person at the keyboard can mend."""

    exit_status = 1


class MisuseError(UserError):
    """Wrong arguments or input; nothing was done."""

    exit_status = 2


class FailureError(UserError):
    """The arguments were right, but it did not work; the text is the cause."""


class CaptureError(FailureError):
    """A model that cannot become an OP-DAG; names the operator or statement and a way out."""


class CapacityError(FailureError):
    """The peers together cannot hold the job; the text has the numbers."""


class TrainingError(FailureError):
    """A job ended before its last step; the text says at which step and why."""


class DeviceMemoryError(TrainingError):
    """A device has no memory left for what a stage does."""


class LocalError(SwarmError):
    """A bug in this program: a broken invariant, an impossible event."""


class RemoteError(SwarmError):
    """Something another peer did or failed to do."""

    def __init__(self, sentence: str = "") -> None:
        shown = sentence[:LONGEST_REMOTE_TEXT]
        super().__init__("".join(c if c.isprintable() else " " for c in shown))


class RemoteProtocolError(RemoteError):
    """Bytes that break the protocol, or claims that do not hold."""


class RemoteRefusalError(RemoteError):
    """The other peer refused us. ``code`` is for programs, the text for people."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.code, str(self)))


class LinkLostError(RemoteError):
    """The link ended. The text says why we think so."""


class RemoteTimeoutError(RemoteError):
    """The other peer did not answer within the deadline."""
