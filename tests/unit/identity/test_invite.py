import errno
import io
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import MisuseError
from swarm.identity.authority import Authority
from swarm.identity.invite import MAX_ADDRESS_LENGTH, MAX_ADDRESSES, Invite, check_addresses, read_invite
from swarm.identity.invite_text import read_text, write_text
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.profile import MAX_CERTIFICATE_BYTES
from swarm.identity.rights import ALL_RIGHTS, CONTRIBUTE_ONLY
from swarm.identity.terms import MAX_LABEL_LENGTH, invite_id

DAY = 86_400.0


def test_invite_comes_back_as_it_went_and_says_what_it_is(
    invite: Invite, authority: Authority, now: float
) -> None:
    assert Invite.decode(invite.encode()) == invite
    assert (invite.swarm, invite.name) == (authority.swarm, "lab")
    assert (invite.label, invite.uses, invite.join_by) == ("alice", 1, now + 7 * DAY)
    assert invite.rights == ALL_RIGHTS
    assert not invite.public
    assert invite.id == invite_id(PrivateKey.from_raw(invite.delegate_key).public)


def test_printed_invite_shows_no_secret(invite: Invite) -> None:
    for secret in (invite.delegate_key, invite.door_key):
        assert repr(secret)[2:-1] not in repr(invite)
    assert invite.encode() not in repr(invite)


def test_other_addresses_make_the_same_invite(invite: Invite) -> None:
    other = invite.with_addresses(("host.example:1", "host.example:1", "[::1]:65535"))
    assert other.addresses == ("host.example:1", "[::1]:65535")
    assert other.with_addresses(invite.addresses) == invite
    assert Invite.decode(other.encode()).id == invite.id


@pytest.mark.parametrize(
    "address",
    ["", "host", "host:", ":7423", "host:0", "host:65536", "two words:1", "h\u00f6st:1", "x" * 262 + ":1"],
)
def test_what_is_no_address_is_refused(invite: Invite, address: str) -> None:
    with pytest.raises(MisuseError, match="is not an address: write HOST:PORT"):
        invite.with_addresses((address,))


def test_longest_addresses_fit_and_the_invite_still_reads(invite: Invite) -> None:
    addresses = tuple(f"{n}{'x' * (MAX_ADDRESS_LENGTH - 7)}:65535" for n in range(MAX_ADDRESSES))
    assert {len(address) for address in addresses} == {MAX_ADDRESS_LENGTH}
    assert Invite.decode(invite.with_addresses(addresses).encode()).addresses == addresses


def test_invite_with_the_longest_of_everything_reads(now: float) -> None:
    authority = Authority.create("\u00fc" * 32, public=False, now=now)
    addresses = tuple(random_host(n) for n in range(MAX_ADDRESSES))
    invite = authority.issue(
        label="\U0001f999" * MAX_LABEL_LENGTH, rights=ALL_RIGHTS, addresses=addresses, now=now
    )
    assert Invite.decode(invite.encode()) == invite
    chain = Identity.join(invite, key=PrivateKey.generate(), now=now).chain
    assert max(map(len, (invite.authority, *chain))) <= MAX_CERTIFICATE_BYTES


def random_host(seed: int) -> str:
    """An address of the greatest length that does not compress."""
    letters = random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz0123456789-.", k=MAX_ADDRESS_LENGTH - 6)
    return "".join(letters) + ":65535"


def test_more_addresses_than_fit_are_refused() -> None:
    addresses = tuple(f"host{n}:7423" for n in range(MAX_ADDRESSES))
    assert check_addresses(addresses) == addresses
    with pytest.raises(MisuseError, match="at most 8 addresses, not 9"):
        check_addresses((*addresses, "one.more:1"))


def test_date_is_checked_when_asked_and_both_times_are_said(invite: Invite, now: float) -> None:
    invite.require_open(now=now + 7 * DAY)
    with pytest.raises(MisuseError, match=r"at 2027-01-22 08:00:00 UTC.*says 2027-01-22 08:00:01 UTC"):
        invite.require_open(now=now + 7 * DAY + 1)


def test_invite_without_a_date_never_ends(authority: Authority, now: float) -> None:
    authority.issue(label="", now=now).require_open(now=now + 1000 * 365 * DAY)


def rebuilt(invite: Invite, **parts: Any) -> str:
    """The text with some parts replaced, and everything about the text itself right."""
    fields = [invite.authority, invite.delegate, invite.delegate_key, invite.door_key, invite.addresses]
    names = ["authority", "delegate", "delegate_key", "door_key", "addresses"]
    for name, value in parts.items():
        fields[names.index(name)] = value
    return write_text(msgspec.msgpack.encode(fields))


def test_invite_under_another_authority_is_refused(invite: Invite, now: float) -> None:
    other = Authority.create("lab", public=False, now=now)
    with pytest.raises(MisuseError, match="signature of the invite does not hold"):
        Invite.decode(rebuilt(invite, authority=other.certificate))


def test_forged_delegate_is_refused(invite: Invite, forger: Any, now: float) -> None:
    mallory = PrivateKey.generate()
    delegate = forger.delegate(signer=mallory)
    with pytest.raises(MisuseError, match="signature of the invite does not hold"):
        Invite.decode(rebuilt(invite, delegate=delegate, delegate_key=forger.delegate_key.raw))


def test_other_delegate_key_is_refused(invite: Invite) -> None:
    with pytest.raises(MisuseError, match="key does not match its certificate"):
        Invite.decode(rebuilt(invite, delegate_key=PrivateKey.generate().raw))


def test_other_door_key_is_refused(invite: Invite) -> None:
    with pytest.raises(MisuseError, match="door key is not the one that its authority signed"):
        Invite.decode(rebuilt(invite, door_key=b"\0" * 32))


def test_parts_of_two_invites_do_not_mix(invite: Invite, authority: Authority, now: float) -> None:
    other = authority.issue(label="bob", rights=CONTRIBUTE_ONLY, now=now)
    for part in ("delegate", "delegate_key"):
        with pytest.raises(MisuseError):
            Invite.decode(rebuilt(other, **{part: getattr(invite, part)}))
        with pytest.raises(MisuseError):
            replace(other, **{part: getattr(invite, part)})


@pytest.mark.parametrize("data", [b"", b"\x90", b"\xc1", b"\x95\xa0\xa0\xa0\xa0\x90", b"\x91" * 5000])
def test_bytes_that_are_no_invite_are_refused(data: bytes) -> None:
    with pytest.raises(MisuseError, match="damaged"):
        Invite.decode(write_text(data))


def test_every_flipped_bit_is_noticed_or_changes_addresses_only(invite: Invite) -> None:
    data = read_text(invite.encode())
    hints = data.index(invite.addresses[0].encode())
    taken = 0
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            other = Invite.decode(write_text(bytes(changed)))
        except MisuseError:
            continue
        assert other.with_addresses(invite.addresses) == invite
        assert bit // 8 >= hints
        taken += 1
    assert taken > 0


# Where an invite comes from.


def test_source_may_be_the_string_or_a_file(invite: Invite, tmp_path: Path) -> None:
    text = invite.encode()
    assert read_invite(text) == invite
    assert read_invite(f" '{text}' ") == invite
    path = tmp_path / "swarm1.txt"
    path.write_text(text + "\n")
    assert read_invite(str(path)) == invite


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_file_may_be_what_windows_writes(invite: Invite, tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "invite.txt"
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    path.write_bytes((mark + invite.encode() + "\r\n").encode(encoding))
    assert read_invite(str(path)) == invite


class _Terminal(io.BytesIO):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.whole = False

    def read(self, size: int | None = -1, /) -> bytes:
        self.whole = True
        return super().read(size)


def test_source_may_be_standard_input(invite: Invite, monkeypatch: pytest.MonkeyPatch) -> None:
    text = invite.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text[:300]}\n{text[300:]}\n".encode())))
    assert read_invite("-") == invite


def test_terminal_is_read_up_to_the_end_of_the_line(invite: Invite, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal(invite.encode().encode() + b"\nnever asked for")
    stdin = io.TextIOWrapper(terminal)
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert read_invite("-") == invite
    assert not terminal.whole


def test_missing_standard_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    for stdin in (None, closed):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(MisuseError, match="no standard input"):
            read_invite("-")


class _Broken(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


def test_source_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(_Broken()))
    with pytest.raises(MisuseError, match="standard input cannot be read: Input/output error"):
        read_invite("-")
    path = tmp_path / "invite"
    path.write_text("")
    monkeypatch.setattr(Path, "open", lambda *_: _Broken())
    with pytest.raises(MisuseError, match="invite cannot be read: Input/output error"):
        read_invite(str(path))


def test_wrong_invite_in_a_file_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"\xff\x00nothing")
    with pytest.raises(MisuseError, match=r"notes\.txt: this is not an invite"):
        read_invite(str(path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(MisuseError, match="standard input: this is not an invite"):
        read_invite("-")


@pytest.mark.parametrize("source", ["", "no/such/file", "lab", "x" * 5000, "a\0b", "\n"])
def test_source_that_is_nothing_is_refused_in_one_short_line(source: str) -> None:
    with pytest.raises(MisuseError, match=r"neither an invite .* nor a file") as caught:
        read_invite(source)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_folder_is_no_invite(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="neither an invite"):
        read_invite(str(tmp_path))


def test_pipe_is_read_like_a_file(invite: Invite) -> None:
    """A shell's process substitution gives the path of a pipe."""
    if not Path("/dev/fd").exists():  # Windows has no such paths
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, invite.encode().encode())
    finally:
        os.close(writing)
    try:
        assert read_invite(f"/dev/fd/{reading}") == invite
    finally:
        os.close(reading)


@given(st.text(max_size=300))
def test_reading_any_text_raises_misuse_and_nothing_else(text: str) -> None:
    with pytest.raises(MisuseError):
        Invite.decode(text)
