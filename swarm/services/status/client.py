"""Asking a node's status endpoint, from the commands."""

from pathlib import Path
from typing import Final, Self, TypeVar

import aiohttp
import msgspec

from swarm.errors import FailureError, LocalError, MisuseError
from swarm.services.status.document import StatusDocument
from swarm.services.status.openapi import (
    CancelRequest,
    ErrorReply,
    ExportRequest,
    PauseRequest,
    RevocationRequest,
)
from swarm.services.status.source import (
    WHOLE,
    CancelReport,
    ExportReport,
    PauseReport,
    RevocationReport,
    Selection,
)

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 15.0
"""A status is made without waiting, so a node that is silent for this long is stuck."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""A status of a thousand members and two hundred links has less than 1 MB."""

_Reply = TypeVar("_Reply", CancelReport, ExportReport, RevocationReport, PauseReport)


class StatusClient:
    """A session with the endpoint at ``url``. All methods raise FailureError where it cannot be had."""

    def __init__(self, url: str, *, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def fetch(self) -> tuple[StatusDocument, bytes]:
        """The status, and the JSON that it came as."""
        body = await self._ask("GET", "/status", b"", ANSWER_SECONDS)
        try:
            return msgspec.json.decode(body, type=StatusDocument), body
        except msgspec.DecodeError as error:
            raise FailureError(
                f"what answers at {self._url} is no status of this version ({error}): give a node's address"
            ) from None

    async def cancel(self, job: str) -> CancelReport:
        """End a job; raises MisuseError where the prefix fits none, or several."""
        return await self._command("cancel", CancelRequest(job=job), CancelReport, ANSWER_SECONDS)

    async def export(self, job: str, path: Path, selection: Selection = WHOLE) -> ExportReport:
        """Let the node write a job's weights; raises like ``cancel``.

        There is no deadline: fetching a large model takes hours on a slow line, the node has deadlines of its
        own for that, and it is on this machine, so that its end is noticed at once.
        """
        request = ExportRequest(job=job, path=str(path), selection=selection)
        return await self._command("export", request, ExportReport, None)

    async def revoke(self, lists: tuple[bytes, ...], epoch_key: bytes) -> RevocationReport:
        """Let the node tell the swarm who was revoked; raises like ``cancel``."""
        request = RevocationRequest(lists=lists, epoch_key=epoch_key)
        return await self._command("revoke", request, RevocationReport, ANSWER_SECONDS)

    async def pause(self) -> PauseReport:
        """Let the peer give itself to no job; raises MisuseError where the node is none that could."""
        return await self._command("pause", PauseRequest(), PauseReport, ANSWER_SECONDS)

    async def resume(self) -> PauseReport:
        """Let the peer give itself to jobs again; raises like ``pause``."""
        return await self._command("resume", PauseRequest(), PauseReport, ANSWER_SECONDS)

    async def _command(
        self, name: str, request: msgspec.Struct, reply: type[_Reply], seconds: float | None
    ) -> _Reply:
        body = await self._ask("POST", f"/control/{name}", msgspec.json.encode(request), seconds)
        try:
            return msgspec.json.decode(body, type=reply)
        except msgspec.DecodeError as error:
            raise FailureError(f"the program at {self._url} is of another version: {error}") from None

    async def _ask(self, method: str, path: str, body: bytes, seconds: float | None) -> bytes:
        if self._session is None:
            raise LocalError("the client is used outside its context")
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.request(
                method, self._url + path, data=body or None, timeout=timeout, allow_redirects=False
            ) as response:
                answer = bytearray()
                async for chunk in response.content.iter_any():
                    answer += chunk
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise FailureError(f"what answers at {self._url} sends too much for a status")
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            raise MisuseError(f"{self._url} is not an address: write http://HOST:PORT") from None
        except TimeoutError:
            raise FailureError(f"nothing answers at {self._url} within {seconds or 0:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise FailureError(f"nothing answers at {self._url} ({_cause(error)}): is it running?") from None
        if response.status != 200:
            raise self._refusal(response.status, answer)
        return bytes(answer)

    def _refusal(self, status: int, answer: bytearray) -> FailureError | MisuseError:
        try:
            reply = msgspec.json.decode(answer, type=ErrorReply)
        except msgspec.DecodeError:
            return FailureError(f"{self._url} answered with status {status}: give a node's status address")
        if status == 404:
            return FailureError(
                f"the program at {self._url} is of another version, and cannot: start it again"
            )
        if status == 401:
            return MisuseError(f"{reply.error}: give --token")
        return MisuseError(reply.error) if reply.misuse else FailureError(reply.error)


def _cause(error: BaseException) -> str:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return " ".join((reason or type(error).__name__).split())
