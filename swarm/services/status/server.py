"""The HTTP server of a node: status, metrics, dashboard, and the commands of its own user.

The server is an auxiliary service: a fault in an answer becomes status 500 and a log line, never more.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec
from aiohttp import web

from swarm.errors import FailureError, LocalError, MisuseError, SwarmError
from swarm.services.status.access import Access, judge_request
from swarm.services.status.connections import Connections
from swarm.services.status.dashboard import Dashboard, load_dashboard
from swarm.services.status.metrics import NodeMetrics
from swarm.services.status.openapi import (
    CancelRequest,
    ErrorReply,
    ExportRequest,
    RevocationRequest,
    describe_endpoint,
)
from swarm.services.status.source import StatusSource
from swarm.services.version import program_version

MAX_REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a request's body; the longest holds revocation lists."""

SHUTDOWN_SECONDS: Final = 1.0
"""How long open requests may go on when the node ends; it has five seconds for everything."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Body = TypeVar("_Body", CancelRequest, ExportRequest, RevocationRequest)


class StatusServer:
    """Serves ``source`` on ``host``:``port`` (0: a free port) from ``__aenter__`` to ``__aexit__``.

    Entering raises FailureError where the address cannot be had.
    """

    def __init__(self, source: StatusSource, *, host: str, port: int, access: Access) -> None:
        self._source = source
        self._host = host
        self._port = port
        self._access = access
        self._metrics = NodeMetrics(source)
        self._dashboard: Dashboard = load_dashboard()
        self._description = describe_endpoint(program_version())
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._connections: Connections | None = None

    async def __aenter__(self) -> Self:
        runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        async with contextlib.AsyncExitStack() as undo:
            await runner.setup()
            undo.push_async_callback(runner.cleanup)
            if runner.server is None:
                raise LocalError("the HTTP library has made no server")
            self._connections = Connections(runner.server)
            try:
                self._listener = await asyncio.get_running_loop().create_server(
                    self._connections.accept, self._host or None, self._port
                )
            except OSError as error:
                raise FailureError(
                    f"the status address {self._host}:{self._port} cannot be used "
                    f"({_cause(error)}): give another one with --status HOST:PORT"
                ) from error
            undo.pop_all()
        self._runner = runner
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None and self._runner is not None:
            self._listener.close()
            await self._runner.cleanup()
            self._listener = self._runner = None

    @property
    def url(self) -> str:
        """Where a program on this machine reaches the server; raises LocalError outside its life."""
        if self._listener is None:
            raise LocalError("the status server is not running")
        addresses = [sock.getsockname() for sock in self._listener.sockets]
        host, port = next((a for a in addresses if ":" not in a[0]), addresses[0])[:2]
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guard], client_max_size=MAX_REQUEST_BYTES)
        application.add_routes(
            [
                web.get("/status", self._status),
                web.get("/metrics", self._render_metrics),
                web.get("/healthz", self._health),
                web.get("/", self._page),
                web.get("/openapi.json", self._describe),
                web.post("/control/cancel", self._cancel),
                web.post("/control/export", self._export),
                web.post("/control/revoke", self._revoke),
            ]
        )
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        denial = judge_request(
            self._access,
            path=request.path,
            host=request.headers.get("Host", "") if request.raw_path.startswith("/") else "",
            authorization=request.headers.get("Authorization", ""),
        )
        if denial is not None:
            refusal = _error(denial.status, denial.sentence)
            if denial.challenge:
                refusal.headers.add("WWW-Authenticate", 'Basic realm="swarm: the token is the password"')
                refusal.headers.add("WWW-Authenticate", "Bearer")
            return refusal
        if self._connections is not None:
            self._connections.allowed(request.transport)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            return _error(error.status, f"{request.method} {request.path}: {error.reason.lower()}")
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    async def _status(self, _: web.Request) -> web.Response:
        return _json(self._source.status())

    async def _render_metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._dashboard.html, headers=self._dashboard.headers)

    async def _describe(self, _: web.Request) -> web.Response:
        return web.Response(body=self._description, content_type="application/json")

    async def _cancel(self, request: web.Request) -> web.Response:
        async def cancel(body: CancelRequest) -> msgspec.Struct:
            return await self._source.cancel(body.job)

        return await _command(request, CancelRequest, cancel)

    async def _export(self, request: web.Request) -> web.Response:
        async def export(body: ExportRequest) -> msgspec.Struct:
            path = Path(body.path)
            if not path.is_absolute():
                raise MisuseError(f"the path {body.path} is not absolute")
            return await self._source.export(body.job, path, body.selection)

        return await _command(request, ExportRequest, export)

    async def _revoke(self, request: web.Request) -> web.Response:
        async def revoke(body: RevocationRequest) -> msgspec.Struct:
            return await self._source.revoke(body.lists, body.epoch_key)

        return await _command(request, RevocationRequest, revoke)


async def _command(
    request: web.Request, kind: type[_Body], act: Callable[[_Body], Awaitable[msgspec.Struct]]
) -> web.Response:
    try:
        body = msgspec.json.decode(await request.read(), type=kind)
    except msgspec.DecodeError as error:
        return _error(400, f"the request does not parse: {error}", misuse=True)
    try:
        return _json(await act(body))
    except MisuseError as error:
        return _error(400, str(error), misuse=True)
    except LocalError:
        raise
    except SwarmError as error:
        return _error(409, str(error))


def _cause(error: OSError) -> str:
    """The system's own words: asyncio's repeat the address."""
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)


def _json(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _error(status: int, sentence: str, *, misuse: bool = False) -> web.Response:
    return _json(ErrorReply(error=sentence, misuse=misuse), status)
