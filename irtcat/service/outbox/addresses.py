"""Addresses of hosts to which the service may send something."""

import ipaddress
import socket


class AddressError(Exception):
    """An address to which nothing is sent."""


def checked_address(host: str, port: int, private: bool) -> str:
    """A network address of a host to which something may be sent.

    Args:
        host: name or address of the host.
        port: port.
        private: whether private addresses are permitted.

    Raises:
        AddressError: if it has no address, or one in a private network among its addresses.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise AddressError("the host has no address") from None
    addresses = [str(entry[4][0]) for entry in found]
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
        public = all(a.is_global and not a.is_multicast for a in (address, inner) if a is not None)
        if not public and not private:
            raise AddressError("the host has a private address")
    return addresses[0]
