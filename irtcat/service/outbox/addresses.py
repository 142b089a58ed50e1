"""Addresses of hosts to which the service may send something."""

import ipaddress
import socket
from urllib.parse import SplitResult, urlsplit

from irtcat._common.checks import argument_error

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Networks whose last 32 bits are an IPv4 address: those of NAT64 (RFC 6052), behind which a
gateway sends to that address, and of "IPv4-compatible" addresses (RFC 4291)."""

INNER = (ipaddress.IPv6Network("64:ff9b:1::/48"), ipaddress.IPv6Network("fec0::/10"))
"""Networks within a site that Python's ``is_global`` takes for public: those of local NAT64
gateways (RFC 8215), and site-local addresses (RFC 3879)."""


class AddressError(Exception):
    """An address to which nothing is sent."""


class NoAddressError(AddressError):
    """A host that has no address now."""


def http_parts(url: str) -> SplitResult | None:
    """The parts of an address with http or https, a host, and no password; None of another."""
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # such as http://[ or a port that is no number
        return None
    return parts if is_http and "@" not in parts.netloc else None


def checked_address(host: str, port: int, private: bool) -> str:
    """A network address of a host to which something may be sent.

    Raises:
        NoAddressError: if it has no address.
        AddressError: if one in a private network is among its addresses.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoAddressError("the host has no address") from None
    addresses = [str(entry[4][0]) for entry in found]
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        if not private and not all(map(_is_public, (address, *_inner_addresses(address)))):
            raise AddressError("the host has a private address")
    return addresses[0]


def check_public(name: str, url: str, advice: str) -> None:
    """Raise for an address to which nothing would be sent; a host may get its address later.

    ``advice`` says what permits others.

    Raises:
        InputError: if it has no https, or a private address is among those of its host.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        raise argument_error(name, "an address with https", url)
    try:
        checked_address(str(parts.hostname), parts.port or 443, private=False)
    except NoAddressError:
        return
    except AddressError:
        raise argument_error(name, f"a public address ({advice} permits others)", url) from None


def _is_public(address: Address) -> bool:
    inside = address.version == 6 and any(address in network for network in INNER)
    return address.is_global and not address.is_multicast and not inside


def _inner_addresses(address: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 address leads to: mapped, 6to4, or translated."""
    if address.version == 4:
        return []
    found = [address.ipv4_mapped, address.sixtofour]
    if any(address in network for network in TRANSLATED):
        found.append(ipaddress.IPv4Address(address.packed[-4:]))
    return [inner for inner in found if inner is not None]
