"""The books of the block machine (``swarm.protocol.blocks``): which blocks are wanted, and by whom."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from swarm.errors import LocalError
from swarm.ids import Digest, PeerId
from swarm.protocol.blocks_events import Seek, SeekerNumber, SourceNumber


@dataclass(slots=True)
class Want:
    """One block that is not here, and how its sources have failed it so far."""

    digest: Digest
    size: int
    seekers: dict[SeekerNumber, None] = field(default_factory=dict)
    request: int | None = None
    """The open request for it; None where it is not asked for."""
    keeping: bool = False
    starved: float | None = None
    """Since when every source has failed it; None where one may not have."""
    tries: dict[SourceNumber, int] = field(default_factory=dict)
    again: dict[SourceNumber, float] = field(default_factory=dict)
    """When a source that failed it may be asked again."""
    failed: dict[PeerId, str] = field(default_factory=dict)
    """How each peer failed it last, for people."""


@dataclass(slots=True)
class Seeker:
    """One call that waits for blocks, those it still lacks, and whom it may ask."""

    patience: float
    gentle: bool
    left: set[Digest]
    sources: tuple[SourceNumber, ...] = ()


class Wants:
    """All wants and seekers. A want that is neither asked for nor being kept is either queued or starving."""

    __slots__ = ("_queued", "_starving", "seekers", "wants")

    def __init__(self) -> None:
        self.wants: dict[Digest, Want] = {}
        self.seekers: dict[SeekerNumber, Seeker] = {}
        self._queued: dict[Digest, None] = {}
        self._starving: dict[Digest, None] = {}

    def queued(self) -> tuple[Want, ...]:
        """The wants that wait for a source with room, in the order in which they came."""
        return tuple(self.wants[digest] for digest in self._queued)

    def waiting(self) -> tuple[Want, ...]:
        """The queued wants, then the starving ones."""
        return tuple(self.wants[digest] for digest in (*self._queued, *self._starving))

    def find(self, digest: Digest, request: int) -> Want | None:
        """The want of a block, where this request is the open one for it."""
        want = self.wants.get(digest)
        return want if want is not None and want.request == request else None

    def seek(self, event: Seek) -> None:
        """Add a seeker; its blocks become wants where they are not yet."""
        self.seekers[event.seeker] = Seeker(event.patience, event.gentle, set(event.blocks))
        for digest, size in event.blocks.items():
            if digest not in self.wants:
                self.wants[digest] = Want(digest, size)
                self._queued[digest] = None
            self.wants[digest].seekers[event.seeker] = None

    def forget(self, number: SeekerNumber) -> None:
        """Remove a seeker, if it is still there, and the wants of nobody else."""
        seeker = self.seekers.pop(number, None)
        for digest in seeker.left if seeker else ():
            del self.wants[digest].seekers[number]
            if not self.wants[digest].seekers:
                self._remove(digest)

    def fulfil(self, digest: Digest) -> list[SeekerNumber]:
        """The block is here. Returns the seekers that lack nothing more; they are removed."""
        if digest not in self.wants:
            return []
        done = []
        for number in self.wants[digest].seekers:
            self.seekers[number].left.discard(digest)
            if not self.seekers[number].left:
                del self.seekers[number]
                done.append(number)
        self._remove(digest)
        return done

    def hold(self, want: Want) -> None:
        """The want is asked for or being kept."""
        self._queued.pop(want.digest, None)
        self._starving.pop(want.digest, None)

    def requeue(self, want: Want) -> None:
        """Queue the want, unless it is still asked for or being kept."""
        if want.request is None and not want.keeping:
            self._queued[want.digest] = None

    def sort(self, want: Want, *, hopeful: bool) -> None:
        """Let a waiting want be queued where there is hope, else starving."""
        source, target = (self._starving, self._queued) if hopeful else (self._queued, self._starving)
        if want.digest in source:
            del source[want.digest]
            target[want.digest] = None

    def sources(self, want: Want) -> Iterable[SourceNumber]:
        """Whom the want's seekers may ask, in their order of preference."""
        return dict.fromkeys(number for seeker in want.seekers for number in self.seekers[seeker].sources)

    def is_gentle(self, want: Want) -> bool:
        """Whether nobody who wants it is in a hurry."""
        return all(self.seekers[number].gentle for number in want.seekers)

    def impatient(self, now: float) -> Iterator[tuple[SeekerNumber, Want]]:
        """Seekers with a want that has starved for all of their patience, and that want."""
        for digest in self._starving:
            want = self.wants[digest]
            for number in want.seekers:
                if want.starved is not None and now - want.starved >= self.seekers[number].patience:
                    yield number, want

    def check(self) -> None:
        """Raise LocalError where wants and seekers do not fit each other."""
        for want in self.wants.values():
            waits = (want.digest in self._queued) + (want.digest in self._starving)
            busy = want.request is not None or want.keeping
            if waits + busy != 1 or not want.seekers:
                raise LocalError(
                    f"a wanted block is in {waits + busy} places, for {len(want.seekers)} seekers"
                )
        wanted = {(number, want.digest) for want in self.wants.values() for number in want.seekers}
        lacked = {(number, digest) for number, seeker in self.seekers.items() for digest in seeker.left}
        if wanted != lacked or not self.wants.keys() >= self._queued.keys() | self._starving.keys():
            raise LocalError("the wanted blocks are not those that seekers lack")

    def _remove(self, digest: Digest) -> None:
        del self.wants[digest]
        self._queued.pop(digest, None)
        self._starving.pop(digest, None)
