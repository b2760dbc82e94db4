"""Bytes that version 1 of invites, certificates, envelopes and admissions wrote once: they are read for ever.

Added to, never edited. The peer's key is the bytes 0 to 31; the other keys were random.
"""

import base64

from swarm.identity.admission import check_admission
from swarm.identity.chain import check_chain
from swarm.identity.door import door_proof
from swarm.identity.envelope import MANIFEST, open_envelope, seal
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS

NOW = 1_800_000_000.0

INVITE = (
    "swarm1aijeefsirln4lg32sti5mabfaycizk773wwv47aqt7p4ydimbvgqylamqaaoen5aqcatsvaal5gaqxb7n5uo4gt55k2ul7"
    "tn65bqwlzjtuhsz3msxejvoi5zwnu7fikdvvudcnojt5q64hahyvp2772vnw5dp3mtollm56yretdr4vsd4ay5unxj5y5uxw2yy6"
    "kpun3cggw2p3len6fmyfwp7u3fsls7yerpm4qaymcpx2qtw5tourg2bjojpcmlrjq3xe3u2hppm37mvyuux4wvsw6ro4y5mu6asd"
    "f7unafydqnybyis35jzrwpy46ib5aojrertfljqv4rn2nf4uc6skjfgwuytfnvsxeys6ljszsstrpjsu4znchbzoxnfx3757f4wl"
    "mjgmmt2vsf7fhsgth6fehl5u3zm3mup6k535l7xfx75ywgzmdi2f4qylltdypw5rs3ls2mf5y2jknsjvsx3uw37jaj5kges6csh4"
    "ifjvtvzguysomzzstuf3nvxombtakpr44wipwnhownzeptvg2orj5u435tpiq6n4th2w3m2ty3g4oxsw3w7eaqs4mzcykj744n4p"
    "cpiol3su4u6wz5zhorh2a4mo7soteunwvgu7xhbi4yhqe7o4wx6ltshbk6jhx7jox72w7oex7pj4eldsrakgwlbpwfrt7p4q72f4"
    "h3red3wrxf4rcw7a524t3mjfnjfzrlccynto4l7p3tfmb5ohpvhx5y6kfuxnwxu3wf2h657kcwmgbpjdbv3mjtujx4sdut2g3si5"
    "nidnlwql6icsi3rqgiz5im6qga3dpvjsw4ytmmrq3ukgyzdamfvjjelfmftgogqkcqa"
)
LEAF = (
    "MIIBizCCAT2gAwIBAgIIJfGx7bNdIqYwBQYDK2VwMCsxKTAnBgNVBAMMIGlmcW54ZzVncHd0ZGx1cWlteXNxbmZpZjRzZ3lseWE3"
    "MB4XDTI3MDExNDA4MDAwMFoXDTI4MDExNTA4MDAwMFowKzEpMCcGA1UEAwwga3pkdnZqMnVtbmR1eWF1ZjM1bzM2azZrdzQ2Mm11"
    "anYwKjAFBgMrZXADIQADoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuKN/MH0wHQYDVR0OBBYEFFZHWqdUY0dMAoXfXb8r"
    "yrc9plE1MAwGA1UdEwEB/wQCMAAwDgYDVR0PAQH/BAQDAgeAMB0GA1UdJQQWMBQGCCsGAQUFBwMBBggrBgEFBQcDAjAfBgNVHSME"
    "GDAWgBRBYNubpn2mNdIIZiUGlQXkjYXgHzAFBgMrZXADQQBIRiwy8luSndWK5QATuMi5dhdXsG/Eg5D5vUHQ45lgiGE6eA+Eykte"
    "gP4qceraZLFaxCTGTG81iIBObajjWS0N"
)
ENVELOPE = (
    "lQGobWFuaWZlc3TEB3BheWxvYWSSxQHJMIIBxTCCAXegAwIBAgIIVxj2ZQMGD5wwBQYDK2VwMA4xDDAKBgNVBAMMA2xhYjAgFw0y"
    "NzAxMTQwODAwMDBaGA8yMDU3MDEwNzA4MDAwMFowKzEpMCcGA1UEAwwgaWZxbnhnNWdwd3RkbHVxaW15c3FuZmlmNHNneWx5YTcw"
    "KjAFBgMrZXADIQCHhN78+dSjSQFpBTS+WiOWSXNU14fYprEf6muK/6dNb6OB0zCB0DAdBgNVHQ4EFgQUQWDbm6Z9pjXSCGYlBpUF"
    "5I2F4B8wEgYDVR0TAQH/BAgwBgEB/wIBADAOBgNVHQ8BAf8EBAMCAgQwagYUaYPZ7b+SocvihO2S0OC4pp75t1kEUpcBpWFsaWNl"
    "As5rSyOAlKVhZG1pdKpjb250cmlidXRlqG9yZ2FuaXNlpXRyYWluwsQg+dpAXeV+s2PwiYLJF0mXhjroFkT8qraz5YGyxO120+Aw"
    "HwYDVR0jBBgwFoAUkk8AnZxAIfrr/nqy3pbyI2q531gwBQYDK2VwA0EAZlJfbPYIyJecvSMJyzrkbbxRQ1w/vFYVBpUlb4moHjBR"
    "+d05+aJAynJHb/ouh/Zt0g9nV9EIFXAop3A+Bc+5D8UBjzCCAYswggE9oAMCAQICCCXxse2zXSKmMAUGAytlcDArMSkwJwYDVQQD"
    "DCBpZnFueGc1Z3B3dGRsdXFpbXlzcW5maWY0c2d5bHlhNzAeFw0yNzAxMTQwODAwMDBaFw0yODAxMTUwODAwMDBaMCsxKTAnBgNV"
    "BAMMIGt6ZHZ2ajJ1bW5kdXlhdWYzNW8zNms2a3c0NjJtdWp2MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyG"
    "ZBJVMbijfzB9MB0GA1UdDgQWBBRWR1qnVGNHTAKF312/K8q3PaZRNTAMBgNVHRMBAf8EAjAAMA4GA1UdDwEB/wQEAwIHgDAdBgNV"
    "HSUEFjAUBggrBgEFBQcDAQYIKwYBBQUHAwIwHwYDVR0jBBgwFoAUQWDbm6Z9pjXSCGYlBpUF5I2F4B8wBQYDK2VwA0EASEYsMvJb"
    "kp3ViuUAE7jIuXYXV7BvxIOQ+b1B0OOZYIhhOngPhMpLXoD+KnHq2mSxWsQkxkxvNYiATm2o41ktDcRA5YqlDsJFgkkMTUHvyDo0"
    "hBb3fXhjQXqteca7k1uWH7ntIBXHkn8ahbxGP7VQiPWi7k0SWwDrXBSLzcrsBExpBA=="
)
ADMISSION = (
    "lQGpYWRtaXNzaW9uxE+UAdkga3pkdnZqMnVtbmR1eWF1ZjM1bzM2azZrdzQ2Mm11anbZIGlmcW54ZzVncHd0ZGx1cWlteXNxbmZp"
    "ZjRzZ3lseWE3y0Ha0nSAIAAAksUByTCCAcUwggF3oAMCAQICCFcY9mUDBg+cMAUGAytlcDAOMQwwCgYDVQQDDANsYWIwIBcNMjcw"
    "MTE0MDgwMDAwWhgPMjA1NzAxMDcwODAwMDBaMCsxKTAnBgNVBAMMIGlmcW54ZzVncHd0ZGx1cWlteXNxbmZpZjRzZ3lseWE3MCow"
    "BQYDK2VwAyEAh4Te/PnUo0kBaQU0vlojlklzVNeH2KaxH+priv+nTW+jgdMwgdAwHQYDVR0OBBYEFEFg25umfaY10ghmJQaVBeSN"
    "heAfMBIGA1UdEwEB/wQIMAYBAf8CAQAwDgYDVR0PAQH/BAQDAgIEMGoGFGmD2e2/kqHL4oTtktDguKae+bdZBFKXAaVhbGljZQLO"
    "a0sjgJSlYWRtaXSqY29udHJpYnV0ZahvcmdhbmlzZaV0cmFpbsLEIPnaQF3lfrNj8ImCyRdJl4Y66BZE/Kq2s+WBssTtdtPgMB8G"
    "A1UdIwQYMBaAFJJPAJ2cQCH66/56st6W8iNqud9YMAUGAytlcANBAGZSX2z2CMiXnL0jCcs65G28UUNcP7xWFQaVJW+JqB4wUfnd"
    "OfmiQMpyR2/6Lof2bdIPZ1fRCBVwKKdwPgXPuQ/FAY8wggGLMIIBPaADAgECAggl8bHts10ipjAFBgMrZXAwKzEpMCcGA1UEAwwg"
    "aWZxbnhnNWdwd3RkbHVxaW15c3FuZmlmNHNneWx5YTcwHhcNMjcwMTE0MDgwMDAwWhcNMjgwMTE1MDgwMDAwWjArMSkwJwYDVQQD"
    "DCBremR2dmoydW1uZHV5YXVmMzVvMzZrNmt3NDYybXVqdjAqMAUGAytlcAMhAAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQS"
    "VTG4o38wfTAdBgNVHQ4EFgQUVkdap1RjR0wChd9dvyvKtz2mUTUwDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwHQYDVR0l"
    "BBYwFAYIKwYBBQUHAwEGCCsGAQUFBwMCMB8GA1UdIwQYMBaAFEFg25umfaY10ghmJQaVBeSNheAfMAUGAytlcANBAEhGLDLyW5Kd"
    "1YrlABO4yLl2F1ewb8SDkPm9QdDjmWCIYTp4D4TKS16A/ipx6tpksVrEJMZMbzWIgE5tqONZLQ3EQM8Ri5J5vYCnqNmmx9wmxyxP"
    "XmVJAb3qNVOO/thRH3KOW64JCoMnP8UQtlMxBQVUwMciQ7Lo9p9+AKhv/O67pws="
)


def identity() -> Identity:
    key = PrivateKey.from_raw(bytes(range(32)))
    return Identity(key=key, invite=Invite.decode(INVITE), leaf=base64.b64decode(LEAF))


def test_invite_of_version_1() -> None:
    invite = Invite.decode(INVITE)
    assert invite.swarm == "sjhqbhm4iaq7v276pkzn5fxsenvltx2y"
    assert invite.id == "ifqnxg5gpwtdluqimysqnfif4sgylya7"
    assert (invite.name, invite.label, invite.uses) == ("lab", "alice", 2)
    assert (invite.join_by, invite.rights, invite.public) == (NOW + 86_400, ALL_RIGHTS, False)
    assert invite.addresses == ("203.0.113.5:7423", "[2001:db8::5]:7423")


def test_chain_of_version_1() -> None:
    member = check_chain(identity().chain, identity().authority, now=NOW)
    assert member.peer == "kzdvvj2umnduyauf35o36k6kw462mujv"
    assert (member.swarm, member.invite) == (identity().invite.swarm, identity().invite.id)


def test_envelope_of_version_1() -> None:
    data = base64.b64decode(ENVELOPE)
    member, payload = open_envelope(data, domain=MANIFEST, authority=identity().authority, now=NOW)
    assert (member.peer, payload) == (identity().peer, b"payload")
    assert seal(identity(), MANIFEST, b"payload") == data


def test_admission_of_version_1() -> None:
    data = base64.b64decode(ADMISSION)
    member = identity().member
    admission = check_admission(data, authority=identity().authority, member=member, now=NOW + 1)
    assert (admission.wall, admission.admitter) == (NOW + 0.5, member.peer)


def test_door_proof_of_version_1() -> None:
    proof = door_proof(b"k" * 32, prover=identity().peer, verifier=identity().peer)
    assert proof.hex() == "827dfa2f9104f916e42ffab673af6bae3e67bb820f330b2f2071ec155fde95eb"
