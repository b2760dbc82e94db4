"""Guided targets: envelopes, invites, certificates, revocation lists. Whose swarm it is, is fixed."""

import json
from pathlib import Path

import msgspec
from guided_target import Target, refusing

from swarm.errors import MisuseError, RemoteProtocolError, RemoteRefusalError
from swarm.identity.admission import check_admission
from swarm.identity.certificates import make_authority
from swarm.identity.chain import check_chain
from swarm.identity.envelope import ADMISSION, MANIFEST, open_envelope, peek_payload, seal
from swarm.identity.invite import Invite
from swarm.identity.invite_text import write_text
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.profile import read_authority, read_delegate, read_leaf
from swarm.identity.revocation_list import check_list
from swarm.identity.revocations import Revocations
from swarm.identity.terms import decode_terms

NOW = 1_800_000_000.0
_STORED = json.loads(Path(__file__).with_name("member.json").read_text("utf-8"))
MEMBER = Identity(
    key=PrivateKey.from_raw(bytes.fromhex(_STORED["key"])),
    invite=Invite.decode(_STORED["invite"]),
    leaf=msgspec.json.decode(msgspec.json.encode(_STORED["leaf"]), type=bytes),
)
REVOKER = PrivateKey.from_raw(bytes([9]) * 32)
"""The authority of another swarm, whose key is known here: lists that it signed are read to their end."""
REVOKERS_SWARM = make_authority(REVOKER, "lab", now=NOW)
_LIST_CONTEXT = b"fusion-swarm revocation list 1\0"


def parse_envelope(data: bytes) -> None:
    """An envelope, or an admission's payload under a good signature."""
    if not data:
        return
    authority, body = MEMBER.authority, data[1:]
    with refusing(RemoteProtocolError):
        if data[0] & 1:
            body = seal(MEMBER, ADMISSION, body)
            check_admission(body, authority=authority, member=MEMBER.member, now=NOW)
        else:
            peek_payload(body)
            member, payload = open_envelope(body, domain=MANIFEST, authority=authority, now=NOW)
            assert member.peer == MEMBER.peer
            assert seal(MEMBER, MANIFEST, payload) == body


def parse_invite(data: bytes) -> None:
    """An invite's text, or the bytes inside."""
    if not data:
        return
    with refusing(MisuseError):
        text = write_text(data[1:]) if data[0] & 1 else data[1:].decode("utf-8", "replace")
        invite = Invite.decode(text)
        assert Invite.decode(invite.encode()) == invite


def parse_certificates(data: bytes) -> None:
    """One certificate in the place of any of the three, or an invite's terms."""
    if not data:
        return
    body, mine = data[1:], MEMBER.chain
    with refusing(RemoteRefusalError):
        match data[0] % 4:
            case 0:
                read_authority(body)
                check_chain(mine, body, now=NOW)
            case 1:
                read_delegate(body)
                check_chain((body, mine[1]), MEMBER.authority, now=NOW)
            case 2:
                read_leaf(body)
                assert check_chain((mine[0], body), MEMBER.authority, now=NOW).swarm == MEMBER.swarm
            case _:
                with refusing(ValueError):
                    decode_terms(body)


def parse_revocation_list(data: bytes) -> None:
    """A list, or the record in one that its authority signed."""
    if not data:
        return
    body = data[1:]
    if data[0] & 1:
        body = msgspec.msgpack.encode([body, REVOKER.sign(_LIST_CONTEXT + body)])
    with refusing(RemoteProtocolError):
        found = check_list(body, authority=REVOKERS_SWARM)
        known = Revocations(REVOKERS_SWARM)
        assert known.learn(found.data)
        assert not known.learn(found.data)
        assert known.peers == found.peers


TARGETS = {
    "envelopes": Target(parse=parse_envelope, packed=1),
    "invites": Target(parse=parse_invite, packed=1),
    "certificates": Target(parse=parse_certificates),
    "revocation_lists": Target(parse=parse_revocation_list, packed=1),
}
