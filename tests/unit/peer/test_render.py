"""The terminal shows what the document says, and nobody's text becomes markup or control codes."""

import io

import msgspec
from rich.console import Console

from peer.render import render_status
from swarm.services.status.document import AttemptStatus, StatusDocument, ValidationPoint
from swarm.testing.status import JOB, MOMENT, sample_status


def shown(document: StatusDocument, *, terminal: bool = False, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    console.print(render_status(document, MOMENT))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_every_part_is_there() -> None:
    text = shown(sample_status())
    for part in (
        "swarm lab",
        "peer peer1 (aaaaaaaa)",
        "up 1 min 0 s",
        "waiting for stage 1 to load on bbbbbbbb: 5 s, gives up in 1 min 0 s",
        f"job gpt {JOB[:8]}  training (5 s)",
        "step 30/200  loss 2.5000  tokens/s 1234  ETA 2 min 50 s",
        "0.250 s",
        "step 24, 3.0 MiB, on aaaaaaaa, bbbbbbbb",
        "ready",
        "loading",
        "stage 1 of 2: on aaaa",
        "Ann",
        "not linked",
        "aaaaaaaa, bbbbbbbb  1, 2",
        "192.0.2.2:7423",
        "12.5 ms",
        "8 Mbit/s",
        "bbbbbbbb left: Ctrl+C",
    ):
        assert part in text, part


def test_how_peers_were_called_is_shown_in_order_with_what_each_address_answered() -> None:
    lines = [line.split() for line in shown(sample_status()).splitlines()]
    begin = next(number for number, line in enumerate(lines) if line[:1] == ["called"])
    moment = lines[begin + 1][-1]
    assert lines[begin : begin + 4] == [
        ["called", "address", "what", "came", "of", "it", "took", "at"],
        f"bbbbbbbb 192.0.2.1:7423 does not listen (connection refused) 0.1 s {moment}".split(),
        f"192.0.2.2:7423 answered 0.5 s {moment}".split(),
        f"bbbbbbbb 192.0.2.9:7423 did not answer within 5 s 5.0 s {moment}".split(),
    ]


def test_absent_numbers_are_dashes_and_empty_parts_are_left_out() -> None:
    document = sample_status()
    [job] = document.jobs
    job = msgspec.structs.replace(
        job, state="waiting", sentence="2 more peers", loss=None, tokens_per_second=None, eta=None, stages=()
    )
    text = shown(
        msgspec.structs.replace(
            document, jobs=(job,), plan=None, links=(), waiting=None, events=(), groups=(), members=()
        )
    )
    assert "loss -  tokens/s -  ETA -" in text
    assert "2 more peers" in text
    for part in ("stage", "link to", "gives up", "group", "called"):
        assert part not in text, part


def test_a_long_address_of_a_link_is_one_word_on_a_narrow_terminal() -> None:
    document = sample_status()
    [link] = document.links
    address = "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:51820"
    long = msgspec.structs.replace(link, address=address, rate_up=1.234e6, rate_down=1.25e7)
    lines = shown(msgspec.structs.replace(document, links=(long,)), width=80).splitlines()
    assert [line.split() for line in lines if address in line] == [["bbbbbbbb", address]]
    assert any("9.87 Mbit/s" in line and "100 Mbit/s" in line for line in lines)


def test_a_held_out_loss_is_shown_once_there_is_one() -> None:
    document = sample_status()
    [job] = document.jobs
    done = msgspec.structs.replace(job, state="done", held_out=2.125)
    assert "held-out 2.1250" in shown(msgspec.structs.replace(document, jobs=(done,)))


def test_while_training_goes_on_the_last_validation_is_shown_with_its_step() -> None:
    document = sample_status()
    [job] = document.jobs
    points = (ValidationPoint(step=50, loss=3.5), ValidationPoint(step=100, loss=3.25))
    validated = msgspec.structs.replace(job, validations=points)
    assert "held-out 3.2500 at step 100" in shown(msgspec.structs.replace(document, jobs=(validated,)))
    assert "held-out" not in shown(document)


def test_text_of_strangers_is_neither_markup_nor_control_codes() -> None:
    evil = "[red]x[/red]\x1b]0;title\x07\x1b[2J\r\n[/]"
    document = sample_status()
    [job] = document.jobs
    answers = (AttemptStatus(address=evil, answer=evil, seconds=1.0, began=MOMENT),)
    members = tuple(
        msgspec.structs.replace(m, label=evil, device=evil, address=evil, attempts=answers)
        for m in document.members
    )
    links = tuple(msgspec.structs.replace(link, address=evil, path=evil) for link in document.links)
    events = tuple(msgspec.structs.replace(event, sentence=evil) for event in document.events)
    assert document.waiting is not None
    assert document.plan is not None
    text = shown(
        msgspec.structs.replace(
            document,
            version=evil,
            swarm=msgspec.structs.replace(document.swarm, name=evil),
            peer=msgspec.structs.replace(document.peer, name=evil, device=evil),
            members=members,
            links=links,
            events=events,
            jobs=(msgspec.structs.replace(job, name=evil, sentence=evil),),
            waiting=msgspec.structs.replace(document.waiting, reason=evil),
            plan=msgspec.structs.replace(document.plan, explanation=(evil,)),
        ),
        width=2000,
    )
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\r" not in text
    assert text.count("[red]x[/red]") == 20
