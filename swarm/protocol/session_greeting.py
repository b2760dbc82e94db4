"""The greeting of a session: both hellos, and what each side said of the other's."""

from swarm.errors import LocalError, RemoteProtocolError
from swarm.wire.messages.hello import Accept, Hello


class Greeting:
    """Both must accept, in any order; a hello comes before what is said of it."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.peer_hello: Hello | None = None
        self.accepted = False
        """Whether this side has accepted."""
        self.accept: Accept | None = None
        """What the other side accepted with."""

    @property
    def agreed(self) -> Accept | None:
        """The other side's Accept, once both have accepted."""
        return self.accept if self.accepted else None

    @property
    def version(self) -> int:
        """The protocol version to speak; 0 before the other's hello."""
        return min(self.hello.newest, self.peer_hello.newest) if self.peer_hello is not None else 0

    def take(self, message: Hello | Accept) -> None:
        """A message of the other side; raises RemoteProtocolError for one out of turn."""
        if isinstance(message, Hello):
            if self.peer_hello is not None:
                raise RemoteProtocolError("a second hello")
            self.peer_hello = message
            return
        if self.accept is not None or self.peer_hello is None:
            raise RemoteProtocolError("an accept out of turn")
        if message.version != self.version:
            raise RemoteProtocolError(f"protocol version {message.version} was not the one to agree on")
        self.accept = message

    def expect_verdict(self) -> None:
        """Raise LocalError unless there is a hello that was not judged yet."""
        if self.peer_hello is None or self.accepted:
            raise LocalError("a hello was judged that did not come, or twice")

    def check(self) -> None:
        """Raise LocalError where an invariant is broken."""
        if self.peer_hello is None and (self.accepted or self.accept is not None):
            raise LocalError("somebody accepted what was not said")
