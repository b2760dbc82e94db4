"""The status endpoint over real HTTP: answers, tokens, host names, faults."""

import asyncio
import base64
import contextlib
import importlib.util
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import msgspec
import pytest

from swarm.errors import FailureError, LocalError
from swarm.services.status.access import Access
from swarm.services.status.client import StatusClient
from swarm.services.status.connections import MAX_CONNECTIONS
from swarm.services.status.document import StatusDocument
from swarm.services.status.openapi import PauseRequest
from swarm.services.status.pages import MAX_REQUEST_BYTES
from swarm.services.status.server import StatusServer
from swarm.services.status.source import PauseReport
from swarm.testing.status import JOB, SampleSource

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if importlib.util.find_spec("uvloop") is not None:
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop

KEYS = {"version", "peer", "swarm", "members", "groups", "jobs", "plan", "links", "waiting", "events"}
CONTROL = {"Authorization": "Bearer control"}
EVERYWHERE = "0.0.0.0"
PASSWORD = {"Authorization": "Basic " + base64.b64encode(b":read").decode()}
PATHS = ("/status", "/metrics", "/healthz", "/", "/openapi.json")


def access(*, loopback: bool = True) -> Access:
    return Access(loopback=loopback, read="read", control="control")


@asynccontextmanager
async def serving(source: SampleSource, *, loopback: bool = True) -> AsyncIterator[str]:
    async with StatusServer(source, host="127.0.0.1", port=0, access=access(loopback=loopback)) as server:
        yield server.url.rstrip("/")


async def ask(url: str, method: str = "GET", **options: Any) -> tuple[int, Any, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, allow_redirects=False, **options) as response,
    ):
        return response.status, response.headers, await response.read()


async def test_status_has_exactly_the_promised_keys() -> None:
    async with serving(SampleSource()) as url:
        status, headers, body = await ask(url + "/status")
    assert status == 200
    assert headers["Content-Type"].startswith("application/json")
    assert headers["Cache-Control"] == "no-store"
    document = json.loads(body)
    assert set(document) == KEYS
    assert set(document["waiting"]) == {"for", "job", "since", "until"}
    assert document["events"][-1]["sentence"] == "bbbbbbbb left: Ctrl+C"


async def test_the_other_pages_answer() -> None:
    async with serving(SampleSource()) as url:
        assert (await ask(url + "/healthz"))[2] == b"ok\n"
        status, headers, body = await ask(url + "/")
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert body.startswith(b"<!doctype html>")
        assert b"swarm_job_loss" in (await ask(url + "/metrics"))[2]


@pytest.mark.parametrize("path", PATHS)
async def test_off_loopback_nothing_is_read_without_the_token(path: str) -> None:
    async with serving(SampleSource(), loopback=False) as url:
        status, headers, body = await ask(url + path)
        assert status == 401
        assert any(value.startswith("Basic") for value in headers.getall("WWW-Authenticate"))
        assert b"lab" not in body
        assert (await ask(url + path, headers={"Authorization": "Bearer wrong"}))[0] == 401
        assert (await ask(url + path, headers={"Authorization": "Bearer read"}))[0] == 200
        assert (await ask(url + path, headers=PASSWORD))[0] == 200


@pytest.mark.parametrize("path", PATHS)
async def test_a_rebound_host_name_gets_nothing(path: str) -> None:
    async with serving(SampleSource()) as url:
        status, _, body = await ask(url + path, headers={"Host": "evil.example"})
    assert status == 421
    assert b"lab" not in body


async def test_commands_need_the_control_token_and_do_their_work(tmp_path: Path) -> None:
    source = SampleSource()
    async with serving(source) as url:
        body = json.dumps({"job": "jj"})
        assert (await ask(url + "/control/cancel", "POST", data=body))[0] == 401
        assert (
            await ask(url + "/control/cancel", "POST", data=body, headers={"Authorization": "Bearer read"})
        )[0] == 401
        assert source.commands == []
        status, _, reply = await ask(url + "/control/cancel", "POST", data=body, headers=CONTROL)
        assert (status, json.loads(reply)) == (200, {"job": JOB})
        assert (await ask(url + "/control/cancel", "GET", headers=CONTROL))[0] == 405
        body = json.dumps({"job": "jj", "path": str(tmp_path / "w.safetensors")})
        assert (await ask(url + "/control/export", "POST", data=body, headers=CONTROL))[0] == 200
        for command in ("pause", "resume"):
            for headers in ({}, {"Authorization": "Bearer read"}):
                assert (await ask(f"{url}/control/{command}", "POST", data="{}", headers=headers))[0] == 401
            status, _, reply = await ask(f"{url}/control/{command}", "POST", data="{}", headers=CONTROL)
            assert status == 200
            assert (json.loads(reply)["paused"] is not None) is (command == "pause")
    assert source.commands == [("cancel", "jj"), ("export", "jj"), ("pause", ""), ("resume", "")]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"job": 1}', b'{"job": "j", "more": 1}', b"\xff", b'{"job":"\xff"}']
)
async def test_a_mangled_command_is_misuse_and_changes_nothing(body: bytes) -> None:
    source = SampleSource()
    async with serving(source) as url:
        status, _, reply = await ask(url + "/control/cancel", "POST", data=body, headers=CONTROL)
        assert status == 400
        assert json.loads(reply)["misuse"] is True
        status, _, reply = await ask(
            url + "/control/cancel", "POST", data=BytesIO(b"x" * (MAX_REQUEST_BYTES + 1)), headers=CONTROL
        )
        assert status == 413
    assert source.commands == []


async def test_errors_of_the_node_keep_their_sentence_and_kind(tmp_path: Path) -> None:
    async with serving(SampleSource()) as url:
        body = json.dumps({"job": "unknown"})
        status, _, reply = await ask(url + "/control/cancel", "POST", data=body, headers=CONTROL)
        assert (status, json.loads(reply)) == (400, {"error": "no job begins with unknown", "misuse": True})
        body = json.dumps({"job": "j", "path": str(tmp_path / "no" / "w")})
        status, _, reply = await ask(url + "/control/export", "POST", data=body, headers=CONTROL)
        assert status == 409
        assert "no such folder" in json.loads(reply)["error"]
        body = json.dumps({"job": "j", "path": "relative"})
        assert (await ask(url + "/control/export", "POST", data=body, headers=CONTROL))[0] == 400


async def test_a_fault_in_the_source_is_one_bad_answer_not_the_end() -> None:
    source = SampleSource()
    answers: list[Callable[[], StatusDocument]] = [source.status, source.status]

    class Faulty(SampleSource):
        def status(self) -> StatusDocument:
            if not answers:
                raise LocalError("a bug")
            return answers.pop()()

    async with serving(Faulty()) as url:
        assert (await ask(url + "/status"))[0] == 200
        assert (await ask(url + "/status"))[0] == 200
        assert (await ask(url + "/status"))[0] == 500
        assert (await ask(url + "/healthz"))[0] == 200


async def test_an_unknown_page_is_an_error_in_json() -> None:
    async with serving(SampleSource()) as url:
        status, _, body = await ask(url + "/nothing")
    assert status == 404
    assert json.loads(body)["error"] == "GET /nothing: not found"


def resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if not reference:
        return schema
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def conforms(document: dict[str, Any], schema: dict[str, Any], value: Any) -> bool:
    """Whether ``value`` fits the JSON schema, for the keywords that the description uses."""
    schema = resolve(document, schema)
    if "anyOf" in schema:
        return any(conforms(document, choice, value) for choice in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}
    if schema["type"] in kinds:
        return isinstance(value, kinds[schema["type"]]) and (
            schema["type"] == "boolean" or not isinstance(value, bool)
        )
    if schema["type"] == "array":
        return isinstance(value, list) and all(conforms(document, schema["items"], item) for item in value)
    properties = schema["properties"]
    return (
        isinstance(value, dict)
        and set(schema["required"]) <= set(value) <= set(properties)
        and all(conforms(document, properties[key], item) for key, item in value.items())
    )


async def test_openapi_describes_the_real_answers(tmp_path: Path) -> None:
    async with serving(SampleSource()) as url:
        description = json.loads((await ask(url + "/openapi.json"))[2])
        assert description["openapi"].startswith("3.1")
        status = json.loads((await ask(url + "/status"))[2])
        schemas = {"$ref": "#/components/schemas/StatusDocument"}
        assert conforms(description, schemas, status)
        assert not conforms(description, schemas, status | {"more": 1})
        assert not conforms(description, schemas, status | {"links": [{}]})
        for path, methods in description["paths"].items():
            for method, operation in methods.items():
                fields: dict[str, Any] = {"job": "j"}
                if "export" in path:
                    fields["path"] = str(tmp_path / "w")
                if "revoke" in path:
                    fields = {"lists": ["bGlzdA=="], "epoch_key": "a2V5"}
                if path in {"/control/pause", "/control/resume"}:
                    fields = {}
                body = json.dumps(fields)
                options = {"data": body, "headers": CONTROL} if method == "post" else {}
                code, headers, answer = await ask(url + path, method.upper(), **options)
                assert code == 200
                [(kind, content)] = operation["responses"]["200"]["content"].items()
                assert headers["Content-Type"].split(";")[0] == kind
                if kind == "application/json" and "$ref" in content["schema"]:
                    assert conforms(description, content["schema"], json.loads(answer))


async def test_the_document_survives_its_own_json() -> None:
    document = SampleSource().status()
    assert msgspec.json.decode(msgspec.json.encode(document), type=StatusDocument) == document


async def test_a_taken_port_is_one_line_that_names_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(FailureError) as failure:
            async with StatusServer(SampleSource(), host="127.0.0.1", port=port, access=access()):
                pass
    assert f"127.0.0.1:{port}" in str(failure.value)
    assert "--status HOST:PORT" in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("host", [EVERYWHERE, "127.0.0.1", "localhost", ""])
async def test_the_url_is_one_that_this_machine_can_ask(host: str) -> None:
    async with StatusServer(SampleSource(), host=host, port=0, access=access()) as server:
        assert (await ask(server.url + "healthz"))[0] == 200


async def test_the_port_is_free_again_at_once() -> None:
    async with StatusServer(SampleSource(), host="127.0.0.1", port=0, access=access()) as server:
        url = server.url
        async with aiohttp.ClientSession() as session, session.get(url + "status") as response:
            await response.read()
    port = int(url.rsplit(":", 1)[1].rstrip("/"))
    async with StatusServer(SampleSource(), host="127.0.0.1", port=port, access=access()):
        pass


class TestClient:
    """The commands' side."""

    async def test_reads_and_commands(self, tmp_path: Path) -> None:
        source = SampleSource()
        async with serving(source, loopback=False) as url, StatusClient(url, token="control") as client:
            document, body = await client.fetch()
            assert document == source.document
            assert json.loads(body)["swarm"]["name"] == "lab"
            assert (await client.cancel("j")).job == JOB
            assert (await client.export("j", tmp_path / "w")).tensors == 3

    async def test_errors_come_back_as_they_were_raised(self, tmp_path: Path) -> None:
        async with serving(SampleSource()) as url, StatusClient(url, token="control") as client:
            with pytest.raises(FailureError, match="no such folder"):
                await client.export("j", tmp_path / "missing" / "w")
            with pytest.raises(Exception, match="no job begins with x") as misuse:
                await client.cancel("x")
            assert getattr(misuse.value, "exit_status", None) == 2

    async def test_a_program_that_does_not_know_a_command_is_named_as_of_another_version(self) -> None:
        async with serving(SampleSource()) as url, StatusClient(url, token="control") as client:
            with pytest.raises(FailureError, match="of another version, and cannot: start it again"):
                await client._command("dance", PauseRequest(), PauseReport, None)

    async def test_a_wrong_token_says_where_the_right_one_is(self) -> None:
        async with serving(SampleSource(), loopback=False) as url, StatusClient(url) as client:
            with pytest.raises(Exception, match="status-token of the program's home: give --token"):
                await client.fetch()

    @pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nothing.invalid:7"])
    async def test_nobody_there_is_one_line(self, url: str) -> None:
        async with StatusClient(url) as client:
            with pytest.raises(FailureError, match="nothing answers at ") as failure:
                await client.fetch()
        assert "\n" not in str(failure.value)

    async def test_something_else_there_is_one_line(self) -> None:
        async def reply(text: str, kind: str) -> str:
            application = aiohttp.web.Application()

            async def answer(_: aiohttp.web.Request) -> aiohttp.web.Response:
                return aiohttp.web.Response(text=text, content_type=kind)

            application.router.add_get("/status", answer)
            runner = aiohttp.web.AppRunner(application)
            await runner.setup()
            try:
                await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
                async with StatusClient(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
                    with pytest.raises(FailureError) as failure:
                        await client.fetch()
                    return str(failure.value)
            finally:
                await runner.cleanup()

        checks: list[Awaitable[str]] = [
            reply("<html>", "text/html"),
            reply('{"version": 1}', "application/json"),
        ]
        for check in checks:
            sentence = await check
            assert "is no status of this version" in sentence
            assert "\n" not in sentence


async def raw_status(url: str, request: bytes) -> int:
    """The status that a request of these bytes gets."""
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(line.split()[1])


@pytest.mark.parametrize(
    ("target", "hosts", "status"),
    [
        ("/status", ("127.0.0.1",), 200),
        ("/status", ("127.0.0.1:80@evil.example",), 421),
        ("http://evil.example/status", ("127.0.0.1",), 421),
        ("http://127.0.0.1/status", ("evil.example",), 421),
    ],
)
async def test_whatever_names_another_host_is_denied(
    target: str, hosts: tuple[str, ...], status: int
) -> None:
    async with serving(SampleSource()) as url:
        lines = [f"GET {target} HTTP/1.1", *(f"Host: {host}" for host in hosts), "Connection: close", "", ""]
        assert await raw_status(url, "\r\n".join(lines).encode()) == status


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS.keys())
def test_it_answers_on_every_loop_that_programs_run_on(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> int:
        async with serving(SampleSource()) as url:
            return (await ask(url + "/status"))[0]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) == 200


async def test_half_a_request_from_many_keeps_nobody_out() -> None:
    async with serving(SampleSource(), loopback=False) as url:
        port = int(url.rpartition(":")[2])
        half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS + 5)]
        for _, writer in half:
            writer.write(b"GET /status HTTP/1.1\r\nHost: local")
        assert (await ask(url + "/status", headers={"Authorization": "Bearer read"}))[0] == 200
        async with asyncio.timeout(5.0):
            for reader, _ in half[:5]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        for _, writer in half:
            writer.close()
