"""What the HTTP server of a node answers: status, metrics, dashboard, and the commands of its own user.

Loaded with the HTTP library when somebody asks for the first time: that is a seventh of a node's memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from swarm.errors import LocalError, MisuseError, SwarmError
from swarm.services.status.access import Access, judge_request
from swarm.services.status.dashboard import Dashboard, load_dashboard
from swarm.services.status.metrics import NodeMetrics
from swarm.services.status.openapi import (
    CancelRequest,
    ErrorReply,
    ExportRequest,
    PauseRequest,
    RevocationRequest,
    describe_endpoint,
)
from swarm.services.status.source import PauseReport, StatusSource
from swarm.services.version import program_version

MAX_REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a request's body; the longest holds revocation lists."""

SHUTDOWN_SECONDS: Final = 1.0
"""How long open requests may go on when the node ends; it has five seconds for everything."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Body = TypeVar("_Body", CancelRequest, ExportRequest, RevocationRequest, PauseRequest)


class StatusPages:
    """The pages of ``source``; ``allowed`` hears of the connections whose requests are answered."""

    def __init__(
        self, source: StatusSource, access: Access, *, allowed: Callable[[asyncio.BaseTransport | None], None]
    ) -> None:
        self._source = source
        self._access = access
        self._allowed = allowed
        self._metrics = NodeMetrics(source)
        self._dashboard: Dashboard = load_dashboard()
        self._description = describe_endpoint(program_version())

    async def runner(self) -> web.AppRunner:
        """What makes the protocols of connections, set up; whoever has it cleans it up."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        return runner

    def application(self) -> web.Application:
        """The routes, and what stands before them."""
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
                web.post("/control/pause", partial(self._set_paused, True)),
                web.post("/control/resume", partial(self._set_paused, False)),
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
        self._allowed(request.transport)
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

    async def _set_paused(self, paused: bool, request: web.Request) -> web.Response:
        async def set_paused(_: PauseRequest) -> msgspec.Struct:
            self._source.set_paused(paused=paused)
            return PauseReport.of(self._source.status().peer)

        return await _command(request, PauseRequest, set_paused)


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


def _json(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _error(status: int, sentence: str, *, misuse: bool = False) -> web.Response:
    return _json(ErrorReply(error=sentence, misuse=misuse), status)
