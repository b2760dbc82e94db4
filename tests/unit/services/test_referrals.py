"""Who goes when there is one link too many."""

from types import SimpleNamespace
from typing import Any, cast

from swarm.ids import PeerId
from swarm.services.referrals import Referrals, surplus_of
from swarm.wire.messages.hello import Referral


def link(invite: str, *, since: float = 0.0, dialed: bool = False) -> Any:
    numbers = SimpleNamespace(since=since)
    made = SimpleNamespace(member=SimpleNamespace(invite=invite), dialed=dialed, statistics=lambda: numbers)
    return cast("Any", made)


def test_where_invites_have_as_many_links_the_newcomer_goes() -> None:
    newcomer = link("c")
    assert surplus_of([link("a"), link("b"), newcomer], newcomer) is newcomer


def test_an_invite_in_many_hands_makes_room_for_another_by_its_newest_caller() -> None:
    newest, newcomer = link("a", since=9.0), link("b", since=10.0)
    links = [link("a", since=1.0), newest, link("a", since=5.0), newcomer]
    assert surplus_of(links, newcomer) is newest


def test_links_that_this_node_made_itself_stay() -> None:
    newcomer = link("b")
    assert surplus_of([link("a", dialed=True)] * 3 + [newcomer], newcomer) is newcomer


def test_a_referral_counts_once_a_link_and_from_nobody_who_called() -> None:
    charged: list[str] = []
    called, caller = PeerId("called"), PeerId("caller")
    links = {
        called: SimpleNamespace(dialed=True, charge=charged.append),
        caller: SimpleNamespace(dialed=False, charge=charged.append),
    }
    told: list[PeerId] = []
    referrals = Referrals(
        cast("Any", SimpleNamespace(links=links)), limit=4, referred=lambda peer, _: told.append(peer)
    )
    message, nothing = Referral(addresses=("192.0.2.1:7423",)), memoryview(b"")
    for sender in (called, called, caller):
        assert referrals.handle(sender, message, nothing)
    assert told == [called]
    assert len(charged) == 2
    referrals.on_down(called, "left")
    referrals.handle(called, message, nothing)
    assert told == [called, called]
