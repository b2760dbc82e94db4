"""The dashboard: one static page without outside resources, and the headers that keep it so."""

import base64
import hashlib
import importlib.resources
import re

from msgspec import Struct


class Dashboard(Struct, frozen=True, kw_only=True):
    """The page's bytes and response headers."""

    html: bytes
    headers: dict[str, str]


def load_dashboard() -> Dashboard:
    """Read the page. Its policy admits the one script and one style in it, by hash, and /status."""
    page = importlib.resources.files("swarm.services.status") / "dashboard.html"
    # Browsers hash what they parsed, and parsing turns every line end into a line feed.
    html = page.read_bytes().replace(b"\r\n", b"\n")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash_of(html, b'script')}'",
            f"style-src '{_hash_of(html, b'style')}'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
    }
    return Dashboard(html=html, headers=headers)


def _hash_of(html: bytes, tag: bytes) -> str:
    [content] = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), html, re.DOTALL)
    return "sha256-" + base64.b64encode(hashlib.sha256(content).digest()).decode("ascii")
