"""Descriptions are read whole, or refused in one line; the presets are what their names say."""

import math
import subprocess
import sys
from itertools import combinations, permutations
from pathlib import Path

import pytest

from swarm.errors import MisuseError
from swarm.testing.netlab.description import load_lab, parse_lab, preset_names, preset_text
from swarm.testing.netlab.schema import Firewall, Nat

TEXT = """
name = "bug"
[[site]]
name = "ann"
uplink = "8Mbit"
downlink = "50Mbit"
nat = "symmetric"
firewall = "drop-inbound"
[[site]]
name = "bob"
[[host]]
name = "a"
count = 2
site = "ann"
cpu = 0.5
memory = "2GiB"
forward = [7423]
[[host]]
name = "b"
site = "bob"
uplink = "1Gbit"
clock = "-1h"
[[path]]
between = ["ann", "bob"]
rtt = "40ms"
jitter = "2ms"
loss = "0.5%"
rate = "20Mbit"
"""


def test_everything_that_a_description_says_is_there() -> None:
    lab = parse_lab(TEXT.replace("forward = [7423]\n", ""))
    assert [host.name for host in lab.hosts] == ["a1", "a2", "b"]
    assert (lab.host("a1").cpu, lab.host("a2").memory) == (0.5, 2**31)
    assert (lab.host("b").uplink, lab.host("b").clock) == (1e9, -3600.0)
    ann = lab.site("ann")
    assert (ann.uplink, ann.downlink) == (8e6, 50e6)
    assert (ann.nat, ann.firewall) == (Nat.SYMMETRIC, Firewall.DROP_INBOUND)
    path = lab.path("bob", "ann")
    assert (path.rtt, path.jitter, path.loss, path.rate) == pytest.approx((0.04, 0.002, 0.005, 2e7))


def test_planners_can_ask_for_rates_and_round_trips() -> None:
    lab = load_lab("two-clusters")
    assert lab.rate("left1", "left2") == 1e9
    assert lab.rate("left1", "right1") == 8e6
    assert (lab.rtt("left1", "left2"), lab.rtt("left1", "right2")) == (0.0, 0.02)
    asymmetric = load_lab("asymmetric")
    assert asymmetric.rate("h1", "h2") == 20e6
    assert {site.downlink for site in asymmetric.sites} == {200e6}


def test_the_schema_is_light_enough_for_planners() -> None:
    program = "import sys, swarm.testing.netlab.description as d; d.load_lab('world'); print(*sys.modules)"
    words = [sys.executable, "-c", program]
    root = Path(__file__).parents[4]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=root)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"torch", "numpy", "asyncio", "subprocess", "swarm.testing.netlab.running"})


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('name = "bug"', "name = ", "this is not TOML"),
        ('"8Mbit"', '"8 MB"', "'8 MB' is not a rate"),
        ('"8Mbit"', '"1bit"', "uplink is a rate of 8kbit to 1Tbit"),
        ('"40ms"', '"40"', "'40' is not a duration"),
        ('"symmetric"', '"cone"', "Invalid enum value 'cone'"),
        ("cpu = 0.5", "cpus = 1", "unknown field `cpus`"),
        ("count = 2", "count = 0", "count is a number of hosts from 1"),
        ("count = 2", 'count = "2"', "count is a number of hosts from 1"),
        ("cpu = 0.5", "cpu = -1", "cpu is a number of cores"),
        ('"2GiB"', '"2KiB"', "memory of less than 1MiB"),
        ('site = "bob"', 'site = "eve"', "there is no site 'eve': the sites are ann, bob"),
        ('["ann", "bob"]', '["ann", "ann"]', "joins two different sites"),
        ('["ann", "bob"]', '["ann"]', "Expected `array` of length 2"),
        ('"2ms"', '"30ms"', "this jitter needs an rtt of at least 134.2ms"),
        ('"0.5%"', '"100%"', "loss is a share from 0 to below 1"),
        ('name = "b"', 'name = "B"', "'B' is not a name"),
        ('name = "b"', 'name = "a1"', "there is more than one host a1"),
        ('name = "bug"', 'name = "bug"\nqueue = "0s"', "queue is a duration above 0"),
        ('name = "b"', 'name = "b"\nforward = [0]', "forward takes ports"),
        ("forward = [7423]", "forward = [7423] # twice", "more than one forward of site 'ann' for port 7423"),
    ],
)
def test_faults_are_told_in_one_line(old: str, new: str, complaint: str) -> None:
    assert TEXT.count(old) == 1
    text = TEXT.replace(old, new)
    if "twice" not in new:
        text = text.replace("forward = [7423]\n", "")
    with pytest.raises(MisuseError) as caught:
        parse_lab(text)
    assert complaint in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_presets_are_there_by_name_and_files_by_path(tmp_path: Path) -> None:
    wanted = {"lan", "two-homes", "home-8mbit", "asymmetric", "two-clusters", "three-clusters", "world"}
    assert {*wanted, "testbed-48"} == set(preset_names())
    for name in preset_names():
        assert load_lab(name).name == name
    file = tmp_path / "mine.toml"
    file.write_text(preset_text("lan"), encoding="utf-8")
    assert load_lab(file) == load_lab("lan")
    with pytest.raises(MisuseError, match=r"neither a file that can be read .* nor one of asymmetric, "):
        load_lab("nowhere")


def test_the_world_has_ten_sites_between_11_and_265_milliseconds() -> None:
    lab = load_lab("world")
    rtts = [lab.path(a.name, b.name).rtt for a, b in combinations(lab.sites, 2)]
    assert (len(lab.sites), len(rtts), len(lab.paths)) == (10, 45, 45)
    assert (min(rtts), max(rtts)) == (0.011, 0.265)


def test_the_testbed_has_48_hosts_and_says_whose_it_is() -> None:
    lab = load_lab("testbed-48")
    assert len(lab.hosts) == 48
    rates = {lab.rate(a.name, b.name) for a, b in permutations(lab.hosts, 2)}
    inside = {lab.rate(a.name, b.name) for a, b in permutations(lab.hosts, 2) if a.site == b.site}
    assert inside == {1e10}
    assert (min(rates), max(rates - inside)) == (8e6, 1e9)
    assert "OUR reconstruction" in preset_text("testbed-48")


def test_what_is_left_out_is_unlimited() -> None:
    lab = parse_lab(
        'name = "n"\n[[site]]\nname = "s"\n[[host]]\nname = "a"\nsite = "s"\n[[host]]\nname = "b"\nsite = "s"'
    )
    assert lab.rate("a", "b") == math.inf
