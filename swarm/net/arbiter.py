"""The arbiter: carries out what the roster decides about links, and minds its deadline."""

import asyncio
import contextlib
import math
from typing import assert_never

from swarm.clock import Clock
from swarm.errors import LocalError
from swarm.ids import PeerId
from swarm.net.link import Link
from swarm.protocol.roster import (
    Action,
    Admit,
    AskForLife,
    Called,
    Dismiss,
    Elapsed,
    Event,
    Gone,
    Introduced,
    LinkKey,
    Replace,
    Risen,
    Roster,
    SignOfLife,
    TurnAway,
)
from swarm.protocol.session_events import Close, Refuse, Welcome
from swarm.wire.frames import CloseCode
from swarm.wire.messages.hello import Accept


class Arbiter:
    """Names links for the roster, and feeds its decisions to them."""

    def __init__(self, roster: Roster, *, clock: Clock) -> None:
        self._roster = roster
        self._clock = clock
        self._changed = asyncio.Event()
        self._keys: dict[Link, LinkKey] = {}
        self._links: dict[LinkKey, Link] = {}
        self._accepts: dict[LinkKey, Accept] = {}
        self._last_key = 0

    def add(self, link: Link, peer: PeerId) -> None:
        """``link`` has shaken hands with ``peer``."""
        self._last_key += 1
        key = LinkKey(self._last_key)
        self._keys[link], self._links[key] = key, link
        if link.dialed:
            self._handle(Called(key, peer))

    def introduced(self, link: Link, *, accept: Accept) -> None:
        """The hello on ``link`` is good; ``accept`` answers it if there is room for the link."""
        key = self._keys[link]
        self._accepts[key] = accept
        self._handle(
            Introduced(
                link=key,
                peer=link.peer,
                boot=link.hello.boot,
                dialed=link.dialed,
                invite=link.member.invite,
            )
        )

    def risen(self, link: Link) -> None:
        """``link`` is up."""
        self._handle(Risen(self._keys[link]))

    def sign_of_life(self, link: Link) -> None:
        """``link`` has answered."""
        self._handle(SignOfLife(self._keys[link]))

    def remove(self, link: Link) -> None:
        """``link`` carries nothing any more."""
        key = self._keys.pop(link)
        del self._links[key]
        self._accepts.pop(key, None)
        self._handle(Gone(key))

    async def run(self) -> None:
        """Mind the deadline, for ever."""
        while True:
            self._changed.clear()
            left = self._roster.deadline - self._clock.elapsed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left if math.isfinite(left) else None):
                    await self._changed.wait()
            if self._clock.elapsed() >= self._roster.deadline:
                self._handle(Elapsed())

    def _handle(self, event: Event) -> None:
        for action in self._roster.handle(event, now=self._clock.elapsed()):
            link = self._links.get(action.link)
            if link is not None:
                self._perform(link, action)
        self._changed.set()

    def _perform(self, link: Link, action: Action) -> None:
        match action:
            case Admit():
                accept = self._accepts.get(action.link)
                if accept is None:
                    raise LocalError("a link was admitted whose hello was not judged")
                link.feed(Welcome(accept))
            case TurnAway():
                link.feed(Refuse(action.code, action.sentence))
            case AskForLife():
                link.probe()
            case Dismiss():
                link.feed(Close(CloseCode.LEAVING, action.sentence))
            case Replace():
                link.feed(Close(CloseCode.DUPLICATE, action.sentence))
            case _:
                assert_never(action)
