"""The dashboard is one page that can run nothing but its own script and load nothing from elsewhere."""

import base64
import hashlib
import re

from swarm.services.status.dashboard import load_dashboard
from swarm.services.status.document import StatusDocument

PAGE = load_dashboard()
TEXT = PAGE.html.decode("utf-8")


def test_nothing_from_the_swarm_can_become_markup_or_code() -> None:
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
                "DOMParser", "createContextualFragment", "srcdoc", "javascript:", "setHTML"):  # fmt: skip
        assert way not in TEXT
    assert not re.search(r"\son\w+\s*=", TEXT), "an inline event handler"
    assert not re.search(r"setTimeout\(\s*[\"'`]", TEXT)


def test_nothing_is_loaded_from_elsewhere() -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", TEXT))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a namespace, never fetched"
    assert not re.search(r"<(link|img|iframe|object|embed|base|meta http-equiv)|\ssrc=|@import|url\(", TEXT)


def test_the_policy_admits_exactly_the_page_s_script_and_style() -> None:
    rules = dict(rule.split(" ", 1) for rule in PAGE.headers["Content-Security-Policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    for tag in ("script", "style"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", TEXT, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert "style=" not in TEXT, "the policy would drop style attributes"


def test_a_phone_can_read_it() -> None:
    assert 'name="viewport"' in TEXT
    assert "overflow-x: auto" in TEXT


def test_every_part_of_the_status_is_shown() -> None:
    for key in StatusDocument.__struct_encode_fields__:
        assert re.search(rf"\b(status|document_)\.{key}\b", TEXT), key
