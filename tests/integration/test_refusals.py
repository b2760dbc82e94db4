"""Who is refused reads why on their own screen: real programs on loopback, each told in one line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from swarm.clock import wall
from swarm.identity.authority import Authority
from swarm.identity.invite import Invite
from swarm.identity.membership import STATE_FILE, Identity
from swarm.services.home import authority_folder
from swarm.testing.certificates import without_key_identifier
from swarm.testing.shell import LOOPBACK, Shell, read_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CLOCK = (
    "import swarm.clock as c; now = c.wall; c.wall = lambda: now() + ({seconds}); "
    "c.SystemClock.wall = staticmethod(c.wall)"
)
NEWER = (
    "import swarm.wire.messages.hello as h; "
    "h.OLDEST_VERSION, h.PROTOCOL_VERSION, h.OLDEST_RELEASE = 2, 3, '7.0.0'"
)
"""A program whose oldest version is beyond ours."""
SMALL = (
    "import swarm.wire.limits as l; l.MAX_LINKS = 1; "
    "import swarm.services.referrals as r; r.VISITORS = 0; "
    "import swarm.protocol.newcomers as n; n.NEWCOMERS_AT_ONCE = 1"
)
"""A program that takes one link, has no place for visitors, and lets in one stranger at a stretch."""


class Scene:
    """An organiser's home with a bootstrap node, and a joiner's home on another machine."""

    def __init__(self, folder: Path) -> None:
        self.organiser, self.joiner = Shell(folder / "organiser"), Shell(folder / "joiner")
        for shell in (self.organiser, self.joiner):
            shell.home.mkdir()
        self._homes = 0

    def open(self, *, patch: str = "", public: bool = False) -> str:
        """Start the bootstrap node; returns its address."""
        words = ("create", "lab", *(["--public"] if public else []))
        made = self.organiser.json(*words)
        self.strangers = made.get("public_invite", "")
        run = ("bootstrap", "--invite", made["invite"], "--listen", LOOPBACK)
        node = self.organiser.start_patched(patch, *run) if patch else self.organiser.start("peer", *run)
        self.address = read_until(node, "bootstrap node of swarm lab at ").rsplit(" ", 1)[1].strip()
        return self.address

    def invite(self, *words: str) -> str:
        """A person's invite, with the address of the bootstrap node."""
        invite: str = self.organiser.json("invite", "lab", "--label", "Ann", *words)["invite"]
        assert self.address in Invite.decode(invite).addresses
        return invite

    def with_door(self, invite: str) -> str:
        """The same invite with the address of the bootstrap node."""
        return Invite.decode(invite).with_addresses((self.address,)).encode()

    def joined(self, invite: str, *, patch: str = "", name: str = "") -> None:
        """The joiner gets in."""
        self._homes += 1
        name = name or f"home{self._homes}"
        result = self.joiner.run("jobs", "--name", name, "--invite", invite, patch=patch)
        assert result.returncode == 0, result.stderr

    def told(self, invite: str, *, patch: str = "", name: str = "", status: int = 1) -> str:
        """The one line that the joiner reads; without its program's name, the address and the seconds."""
        self._homes += 1
        name = name or f"home{self._homes}"
        result = self.joiner.run("jobs", "--name", name, "--invite", invite, patch=patch)
        assert result.returncode == status, result.stderr
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1, result.stderr
        line = result.stderr.strip().removeprefix("swarm: ")
        return re.sub(rf"^{re.escape(self.address)} \(\d+\.\d s\) ", "", line)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.organiser.close()
    scene.joiner.close()


def test_invites_of_other_swarms_dead_ones_and_broken_certificates(scene: Scene, tmp_path: Path) -> None:
    address = scene.open()

    other = scene.joiner.json("create", "garage", "--bootstrap", address)["invite"]
    assert scene.told(other) == "belongs to another swarm than this peer's invite"

    same_name = scene.joiner.json("create", "lab", "--bootstrap", address)["invite"]
    assert scene.told(same_name) == "belongs to another swarm than this peer's invite"

    once = scene.invite("--uses", "1")
    scene.joined(once)
    assert scene.told(once).startswith("refused this peer: the invite was for use once, and ")

    revoked = scene.invite()
    scene.organiser.run("revoke", "lab", Invite.decode(revoked).id[:8])
    sentence = scene.told(revoked)
    assert re.fullmatch(
        r"refused this peer: the organiser revoked your invite on \d{4}-\d\d-\d\d \d\d:\d\d UTC: "
        "ask them why, and for a new invite",
        sentence,
    )

    good = scene.invite()
    scene.joined(good, name="doctored")
    spoil(scene.joiner.home / "doctored")
    sentence = scene.told(good, name="doctored")
    assert "the peer's certificate lacks the extension authority key identifier" in sentence
    assert sentence.endswith("delete it and join again with --invite")


def spoil(home: Path) -> None:
    """Give the peer in ``home`` a certificate without authority key identifier."""
    identity = Identity.load(home)
    leaf = without_key_identifier(identity).public_bytes(Encoding.DER)
    state = json.loads((home / STATE_FILE).read_text())
    state["leaf"] = json.loads(msgspec.json.encode(leaf))
    (home / STATE_FILE).write_text(json.dumps(state))


def test_clocks_that_are_off(scene: Scene) -> None:
    scene.open()
    invite = scene.invite()
    for seconds, words in (
        (26 * 3600, "26 h ahead of"),
        (-26 * 3600, "26 h behind"),
        (3 * 86_400, "3 days ahead of"),
    ):
        sentence = scene.told(invite, patch=CLOCK.format(seconds=seconds))
        assert sentence.startswith(f"refused this peer: your clock is {words} mine, which says ")
        assert sentence.endswith(" UTC: set the one that is wrong")
    for seconds in (60, -60):
        scene.joined(invite, patch=CLOCK.format(seconds=seconds))


def test_an_invite_ends_and_who_joined_by_it_stays(scene: Scene, tmp_path: Path) -> None:
    """The bootstrap node's clock is five minutes ahead, so that it knows first that the date has passed."""
    scene.open(patch=CLOCK.format(seconds=300))
    authority = Authority.load(authority_folder(scene.organiser.home, "lab"))
    short = authority.issue(
        label="Ann", join_by=wall() + 200, addresses=(scene.address,), now=wall()
    ).encode()
    sentence = scene.told(short)
    assert sentence.startswith("refused this peer: your invite had to be used by ")
    assert sentence.endswith(" UTC: ask the organiser for a new one")
    late = CLOCK.format(seconds=250)
    assert "the invite expired at " in scene.told(short, patch=late, status=2)

    still_open = authority.issue(
        label="Bob", join_by=wall() + 900, addresses=(scene.address,), now=wall()
    ).encode()
    scene.joined(still_open, name="bob")
    later = CLOCK.format(seconds=800)  # past the date by the bootstrap node's clock
    scene.organiser.close()
    again = ("bootstrap", "--listen", scene.address)
    read_until(scene.organiser.start_patched(CLOCK.format(seconds=1000), *again), "bootstrap node of")
    scene.joined(still_open, name="bob", patch=later)
    assert "your invite had to be used by " in scene.told(still_open, patch=later)


def test_versions_that_do_not_meet(scene: Scene) -> None:
    scene.open(patch=NEWER)
    sentence = scene.told(scene.invite())
    assert re.fullmatch(
        r"refused this peer: you have fusion-swarm \S+, this swarm needs 7\.0\.0 or later: "
        "pip install -U fusion-swarm",
        sentence,
    )


def test_a_node_that_is_full_and_too_many_strangers(scene: Scene) -> None:
    scene.open(patch=SMALL, public=True)
    invite = scene.invite("--may", "admit")
    first = scene.joiner.start("bootstrap", "--name", "first", "--invite", invite, "--listen", LOOPBACK)
    read_until(first, "bootstrap node of swarm lab at ")
    assert scene.told(scene.invite()) == "refused this peer: I have 1 links, and that is my limit"
    first.terminate()
    first.wait(timeout=30)
    scene.joined(scene.with_door(scene.strangers))
    sentence = scene.told(scene.with_door(scene.strangers))
    assert sentence == (
        "refused this peer: too many have joined from 127.0.0.0/24 lately: try again in 5 min"
    )
