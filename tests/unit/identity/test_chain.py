from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509

from swarm.errors import RemoteRefusalError
from swarm.identity.authority import Authority
from swarm.identity.certificates import key_identifier
from swarm.identity.chain import check_chain, check_old_chain, show_time
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS, Right
from swarm.identity.terms import TERMS_OID, encode_terms, invite_id
from swarm.ids import peer_id, swarm_id

DAY = 86_400.0


def refused(code: str, sentence: str, chain: Any, authority: bytes, *, now: float) -> None:
    with pytest.raises(RemoteRefusalError, match=sentence) as caught:
        check_chain(chain, authority, now=now)
    assert caught.value.code == code


def test_chain_of_a_member_says_who_it_is(alice: Identity, authority: Authority, now: float) -> None:
    member = check_chain(alice.chain, authority.certificate, now=now)
    assert member == alice.member
    assert member.peer == peer_id(alice.key.public) == alice.peer
    assert member.public_key == alice.key.public
    assert member.swarm == authority.swarm
    assert member.invite == alice.invite.id
    assert (member.label, member.uses, member.join_by) == ("alice", 1, now + 7 * DAY)
    assert member.rights == ALL_RIGHTS
    assert member.may(Right.TRAIN)
    assert not member.public


def test_forged_chain_with_all_keys_is_accepted_so_that_the_others_fail_for_their_fault(
    forger: Any, authority: Authority, now: float
) -> None:
    member = check_chain((forger.delegate(), forger.leaf()), authority.certificate, now=now)
    assert (member.peer, member.label) == (forger.key.peer, "forged")
    assert not member.may(Right.TRAIN)


def test_member_of_another_swarm_is_told_both_names(
    alice: Identity, join: Callable[..., Identity], now: float
) -> None:
    other = Authority.create("garage", public=False, now=now)
    refused("wrong-swarm", r"garage \(.{8}\).*lab \(.{8}\)", join(of=other).chain, alice.authority, now=now)


def test_name_that_could_confuse_a_screen_is_not_shown(forger: Any, authority: Authority, now: float) -> None:
    mallory = PrivateKey.generate()
    delegate = forger.delegate(signer=mallory, issuer="lab\x1b[2J")
    shown = rf"of the swarm {swarm_id(mallory.public)[:8]}, and"
    refused("wrong-swarm", shown, (delegate, forger.leaf()), authority.certificate, now=now)


def test_member_of_another_swarm_of_the_same_name_is_told_so(
    alice: Identity, join: Callable[..., Identity], now: float
) -> None:
    other = Authority.create("lab", public=False, now=now)
    refused("unknown-authority", "two swarms of the name lab", join(of=other).chain, alice.authority, now=now)


def test_delegate_that_names_the_authority_but_another_key_signed_is_forged(
    forger: Any, authority: Authority, now: float
) -> None:
    mallory = PrivateKey.generate()
    aki = x509.AuthorityKeyIdentifier(key_identifier(forger.root_key.public), None, None)
    real = {
        "constraints": (x509.BasicConstraints(ca=True, path_length=0), True),
        "terms": (
            x509.UnrecognizedExtension(TERMS_OID, encode_terms(forger.terms(rights=ALL_RIGHTS))),
            False,
        ),
        "aki": (aki, False),
    }
    good = x509.load_der_x509_certificate(forger.delegate()).extensions
    usage = good.get_extension_for_class(x509.KeyUsage)
    delegate = forger.delegate(signer=mallory, extensions={**real, "usage": (usage.value, True)})
    refused("bad-certificate", "forged", (delegate, forger.leaf()), authority.certificate, now=now)


def test_terms_changed_in_a_signed_delegate_are_refused(
    alice: Identity, join: Callable[..., Identity], authority: Authority, now: float
) -> None:
    member = join(label="contributor")
    terms = member.invite.terms
    richer = encode_terms(terms)
    delegate = member.invite.delegate
    assert delegate.count(richer) == 1
    forged = delegate.replace(richer, richer.replace(b"contributor", b"contributer"))
    refused("bad-certificate", "forged", (forged, member.leaf), authority.certificate, now=now)


def test_delegate_resigned_by_its_own_holder_is_refused(
    join: Callable[..., Identity], forger: Any, authority: Authority, now: float
) -> None:
    """Rights escalation: the holder of an invite writes better terms and signs them with what keys it has."""
    member = join()
    own = PrivateKey.from_raw(member.invite.delegate_key)
    for signer in (own, member.key):
        delegate = forger.delegate(
            key=own.public,
            subject=invite_id(own.public),
            issuer="lab",
            signer=signer,
        )
        with pytest.raises(RemoteRefusalError):
            check_chain((delegate, member.leaf), authority.certificate, now=now)


def test_leaf_signed_by_a_leaf_is_refused(alice: Identity, forger: Any, now: float) -> None:
    forged = forger.leaf(issuer=alice.peer, signer=alice.key)
    sentence = "not signed with its invite's key"
    refused("bad-certificate", sentence, (alice.invite.delegate, forged), alice.authority, now=now)
    refused("bad-certificate", "may not sign", (alice.leaf, forged), alice.authority, now=now)


def test_leaf_of_another_invite_is_refused(
    alice: Identity, join: Callable[..., Identity], now: float
) -> None:
    chain = (alice.invite.delegate, join().leaf)
    refused("bad-certificate", "not signed with its invite's key", chain, alice.authority, now=now)


def test_leaf_that_names_another_key_as_its_issuers_is_refused(
    forger: Any, authority: Authority, now: float
) -> None:
    """A revocation by key identifier would miss it."""
    extensions = {**leaf_parts(forger), "aki": (x509.AuthorityKeyIdentifier(b"\0" * 20, None, None), False)}
    chain = (forger.delegate(), forger.leaf(extensions=extensions))
    refused("bad-certificate", "not signed with its invite's key", chain, authority.certificate, now=now)


def leaf_parts(forger: Any) -> dict[str, Any]:
    found = x509.load_der_x509_certificate(forger.leaf()).extensions
    kinds = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage)
    return {
        kind.__name__: (e.value, e.critical) for kind in kinds for e in found if isinstance(e.value, kind)
    }


def test_leaf_with_a_mere_claim_of_its_issuer_is_refused(alice: Identity, forger: Any, now: float) -> None:
    forged = forger.leaf(issuer=alice.invite.id, signer=forger.delegate_key)
    chain = (alice.invite.delegate, forged)
    refused("bad-certificate", "not signed with its invite's key", chain, alice.authority, now=now)


def test_key_of_the_invite_or_the_authority_is_no_key_of_a_peer(
    forger: Any, authority: Authority, now: float
) -> None:
    for key in (forger.delegate_key, forger.root_key):
        leaf = forger.leaf(key=key.public, subject=key.peer)
        chain = (forger.delegate(), leaf)
        refused("bad-certificate", "key of its invite", chain, authority.certificate, now=now)


def test_authority_in_the_place_of_the_delegate_is_refused(
    forger: Any, authority: Authority, now: float
) -> None:
    root = authority.certificate
    leaf = forger.leaf(issuer="lab", signer=forger.root_key)
    refused("bad-certificate", "path length of 0", (root, leaf), root, now=now)


def test_swapped_and_repeated_certificates_are_refused(alice: Identity, now: float) -> None:
    delegate, leaf = alice.chain
    for chain in ((leaf, delegate), (leaf, leaf), (delegate, delegate)):
        refused("bad-certificate", "certificate", chain, alice.authority, now=now)


def test_public_invite_with_more_than_contribute_is_refused(
    forger: Any, authority: Authority, now: float
) -> None:
    extensions = {
        "constraints": (x509.BasicConstraints(ca=True, path_length=0), True),
        "terms": (
            x509.UnrecognizedExtension(TERMS_OID, encode_terms(forger.terms(public=True, rights=ALL_RIGHTS))),
            False,
        ),
    }
    usage = x509.load_der_x509_certificate(authority.certificate).extensions.get_extension_for_class(
        x509.KeyUsage
    )
    delegate = forger.delegate(extensions={**extensions, "usage": (usage.value, True)})
    refused("bad-certificate", "contribute only", (delegate, forger.leaf()), authority.certificate, now=now)


@pytest.mark.parametrize(
    ("offset", "sentence"),
    [
        (
            -365.01 * DAY,
            "authority's certificate is not valid before 2026-01-15 08:00:00 UTC.*2026-01-15 07:45:36 UTC",
        ),
        (
            365.01 * DAY,
            "peer's certificate is no longer valid since 2028-01-15 08:00:00 UTC.*2028-01-15 08:14:24 UTC",
        ),
    ],
)
def test_time_outside_the_certificates_is_a_matter_of_clocks_and_says_both(
    alice: Identity, now: float, offset: float, sentence: str
) -> None:
    refused("clock", sentence, alice.chain, alice.authority, now=now + offset)


@pytest.mark.parametrize("offset", [-365 * DAY, 0, 365 * DAY])
def test_chain_is_good_up_to_both_ends_of_its_time(alice: Identity, now: float, offset: float) -> None:
    assert check_chain(alice.chain, alice.authority, now=now + offset).peer == alice.peer


@pytest.mark.parametrize("when", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_impossible_clock_is_refused_like_a_wrong_one(alice: Identity, when: float) -> None:
    refused("clock", "check the clocks", alice.chain, alice.authority, now=when)


def test_delegate_with_its_own_dates_is_judged_by_them(forger: Any, authority: Authority, now: float) -> None:
    early = (forger.delegate(begins=now + 10, ends=now + 20), forger.leaf())
    refused("clock", "invite's certificate is not valid before", early, authority.certificate, now=now)
    late = (forger.delegate(begins=now - 20, ends=now - 10), forger.leaf())
    refused("clock", "invite's certificate is no longer valid", late, authority.certificate, now=now)


def test_old_chain_outlives_its_leaf_but_nothing_else(
    alice: Identity, forger: Any, authority: Authority, now: float
) -> None:
    assert check_old_chain(alice.chain, alice.authority, now=now + 10 * 365 * DAY) == alice.member
    for when in (now - 366 * DAY, now + 31 * 365 * DAY):
        with pytest.raises(RemoteRefusalError) as caught:
            check_old_chain(alice.chain, alice.authority, now=when)
        assert caught.value.code == "clock"
    chain = (forger.delegate(), forger.leaf(begins=now + 10))
    with pytest.raises(RemoteRefusalError, match="peer's certificate is not valid before"):
        check_old_chain(chain, authority.certificate, now=now)


def test_times_are_shown_for_people_whatever_they_are() -> None:
    assert show_time(0) == "1970-01-01 00:00 UTC"
    assert "1970" in show_time(1e300)
    assert "nan" in show_time(float("nan"))
