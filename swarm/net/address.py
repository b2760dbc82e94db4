"""Addresses as people write them: ``HOST:PORT``, and ``[HOST]:PORT`` where the host has colons."""

import ipaddress
from dataclasses import dataclass

from swarm.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Address:
    """A host (name or number, without brackets) and a TCP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address in ``text``; raises MisuseError with the remedy where it is none."""
        host, separator, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            separator = ""
        if not separator or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise MisuseError(f"{text[:80]!r} is not an address: write HOST:PORT, or [HOST]:PORT for IPv6")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether it is a number that only this machine itself can have."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def neighbourhood(self) -> str:
        """Whoever has this address can as well have all others of its neighbourhood: itself, or its /64."""
        try:
            number = ipaddress.ip_address(self.host)
        except ValueError:
            return self.host
        if isinstance(number, ipaddress.IPv4Address):
            return str(number)
        if number.ipv4_mapped is not None:
            return str(number.ipv4_mapped)
        return str(ipaddress.ip_network((int(number), 64), strict=False))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
