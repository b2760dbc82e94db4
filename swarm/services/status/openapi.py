"""``/openapi.json``: the endpoint described from the very types that its answers are made of."""

from typing import Any, Final

import msgspec

from swarm.services.status.document import StatusDocument
from swarm.services.status.source import (
    WHOLE,
    CancelReport,
    ExportReport,
    PauseReport,
    RevocationReport,
    Selection,
)


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /control/cancel``."""

    job: str


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /control/export``; ``path`` is absolute, on the node's machine."""

    job: str
    path: str
    selection: Selection = WHOLE


class RevocationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /control/revoke``: signed revocation lists, and the DHT key of the newest."""

    lists: tuple[bytes, ...]
    epoch_key: bytes


class PauseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /control/pause`` and ``POST /control/resume``: an empty object."""


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every answer that is not a success. ``misuse``: the request, not the attempt, was wrong."""

    error: str
    misuse: bool = False


_TYPES: Final = (
    StatusDocument,
    CancelRequest,
    CancelReport,
    ExportRequest,
    ExportReport,
    RevocationRequest,
    RevocationReport,
    PauseRequest,
    PauseReport,
    ErrorReply,
)


def _json(name: str, text: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _text(kind: str, text: str) -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": {"type": "string"}}}}


def _read(summary: str, answer: dict[str, Any]) -> dict[str, Any]:
    denied = _json("ErrorReply", "No token, or another endpoint's; not on loopback.")
    security: list[dict[str, list[str]]] = [{}, {"bearer": []}, {"basic": []}]
    return {"get": {"summary": summary, "security": security, "responses": {"200": answer, "401": denied}}}


def _command(summary: str, request: str, reply: str) -> dict[str, Any]:
    body = _json(request, "") | {"required": True}
    responses = {
        "200": _json(reply, "Done."),
        "400": _json("ErrorReply", "The request is wrong, and how."),
        "401": _json("ErrorReply", "Not the control token of the node's home."),
        "409": _json("ErrorReply", "It did not work, and why."),
    }
    return {
        "post": {
            "summary": summary,
            "security": [{"bearer": []}],
            "requestBody": body,
            "responses": responses,
        }
    }


def describe_endpoint(version: str) -> bytes:
    """The OpenAPI 3.1 document, as JSON."""
    _, components = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    document = {
        "openapi": "3.1.0",
        "info": {"title": "fusion-swarm node", "version": version},
        "paths": {
            "/status": _read("What the node knows.", _json("StatusDocument", "The status.")),
            "/metrics": _read("Metrics for Prometheus.", _text("text/plain", "The metrics.")),
            "/healthz": _read("Whether the node's loop turns.", _text("text/plain", "It does.")),
            "/": _read("The dashboard.", _text("text/html", "A page that follows /status.")),
            "/openapi.json": _read("This document.", _text("application/json", "It.")),
            "/control/cancel": _command("End a job.", "CancelRequest", "CancelReport"),
            "/control/export": _command("Write trained weights to a file.", "ExportRequest", "ExportReport"),
            "/control/revoke": _command("Pass on who was revoked.", "RevocationRequest", "RevocationReport"),
            "/control/pause": _command("Give the peer to no job.", "PauseRequest", "PauseReport"),
            "/control/resume": _command("Give the peer to jobs again.", "PauseRequest", "PauseReport"),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
    }
    return msgspec.json.encode(document)
