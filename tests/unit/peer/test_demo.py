"""What a demo tells, when it fails, and how its processes end."""

import json
import math
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bootstrap.commandline import run_program
from peer.demo.processes import Children
from peer.demo.result import Comparison, DemoResult, PeerResult
from peer.main import app
from swarm.clock import wall
from swarm.errors import FailureError
from swarm.identity.authority import Authority
from swarm.identity.rights import ALL_RIGHTS
from swarm.testing.status import FIRST, sample_status


def result(**changes: object) -> DemoResult:
    plain = DemoResult(
        model="gpt",
        whole=True,
        loss=[5.5, 4.0, 3.0, 2.2],
        held_out=2.1,
        comparison=None,
        tokens_per_second=1234.5,
        unit="tokens",
        peers=[PeerResult(name="peer1", id=FIRST, stages=[0, 2], bytes_sent=2048, bytes_received=5 << 20)],
        stages=sample_status().jobs[0].stages,
        explanation=["stage 1 of 2: on aaaa"],
        weights=Path("/tmp/w.safetensors"),  # noqa: S108 - a name to show
        status_url="http://127.0.0.1:1/",
        seconds=61.2,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


COMPARISON = Comparison(difference=2e-8, worst_step=7, identical=True, good=True)


def test_the_last_lines_say_what_came_out() -> None:
    assert result(comparison=COMPARISON).lines() == [
        "loss      5.5000 at the start, 2.2000 at the end, 2.1000 held out (4 steps, 61 s)",
        "speed     1234 tokens/s",
        "peer1     aaaaaaaa, stage 1, 3: sent 2.0 KiB, received 5.0 MiB",
        "plan      stage 1 of 2: on aaaa",
        "verify    largest relative difference from PyTorch 2e-08, at step 7",
        "verify    bit-identical to one stage in one process",
        "weights   /tmp/w.safetensors",
    ]


def test_the_document_has_the_promised_keys() -> None:
    promised = {
        "loss",
        "held_out",
        "verify",
        "tokens_per_second",
        "peers",
        "plan",
        "weights",
        "status_url",
        "seconds",
    }
    document = json.loads(json.dumps(result(comparison=COMPARISON).document(), allow_nan=False))
    assert promised <= set(document)
    assert document["verify"] == {"pytorch": 2e-8, "self": True}
    assert set(document["peers"][0]) >= {"id", "stages", "bytes_sent", "bytes_received"}
    assert result().document()["verify"] is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, ""),
        ({"held_out": 2.3}, "its held-out loss is 2.3, and 2.3 is expected"),
        ({"held_out": None}, "its held-out loss is None"),
        ({"held_out": math.nan}, "its held-out loss is nan"),
        ({"held_out": 3.0, "whole": False}, ""),
        ({"whole": False, "loss": [2.0, 2.0, 2.0, 2.0]}, "its loss went from 2.0000 to 2.0000"),
        ({"whole": False, "loss": [2.0, 1.0, 5.0, 2.5]}, "its loss went from 2.0000 to 2.5000"),
        ({"whole": False, "loss": [2.0]}, ""),
        ({"model": "resnet", "held_out": 0.6}, "0.5 is expected"),
        ({"comparison": COMPARISON}, ""),
        ({"comparison": replace(COMPARISON, identical=False, good=False)}, "NOT identical"),
        ({"comparison": replace(COMPARISON, difference=0.01, good=False)}, "0.01, at step 7"),
    ],
)
def test_what_did_not_learn_or_not_compare_is_a_complaint(changes: dict[str, object], complaint: str) -> None:
    told = result(**changes).complaint()
    assert complaint in told
    assert bool(told) == bool(complaint)
    assert "\n" not in told


def test_bits_are_not_compared_of_what_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(app, "swarm", ["demo", "--verify", "--compile"]) == 2
    assert "--verify compares bits, which --compile may change" in capsys.readouterr().err


async def test_a_process_that_fails_at_once_says_its_last_words(tmp_path: Path) -> None:
    async with Children(tmp_path) as children:
        child = await children.start(
            "bootstrap", ["bootstrap", "--invite", "nonsense", "--home", str(tmp_path)]
        )
        with pytest.raises(FailureError) as failure:
            await child.first_document()
    assert str(failure.value).startswith("bootstrap ended with status 2: python -m bootstrap: 'nonsense'")


async def test_a_child_that_ends_is_named_and_leaving_drains_the_others(tmp_path: Path) -> None:
    authority = Authority.create("lab", public=False, now=wall())
    invite = tmp_path / "lab.invite"
    invite.write_text(authority.issue(label="me", rights=ALL_RIGHTS, now=wall()).encode())
    place = ["--listen", "127.0.0.1:0", "--home", str(tmp_path)]
    async with Children(tmp_path) as children:
        stays = await children.start("stays", ["bootstrap", "--invite", str(invite), *place, "--json"])
        assert json.loads(await stays.first_document())["name"] == "lab"
        assert psutil.pid_exists(stays.pid)
        await children.start("fails", ["bootstrap", "--listen", "nonsense"])
        assert (await children.wait_for_first_end()).name == "fails"
    assert not psutil.pid_exists(stays.pid)
    assert stays.epitaph() == "stays ended with status 0: the bootstrap node has left"
