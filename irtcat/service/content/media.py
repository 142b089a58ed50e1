"""Media files: their types, names and checks."""

import hashlib
import re
import struct
from typing import NamedTuple

from irtcat._common.checks import InputError, brief
from irtcat.service.content.qti_xml import local_name, parse_xml

MOST_MEDIA = 32 * 2**20
"""Largest media file (32 MiB): ten minutes of speech, or half a minute of film; a person on a slow
line waits a minute for it."""


class MediaType(NamedTuple):
    """A type of media: its suffixes, the first of them for names, and how its files begin."""

    type: str
    suffixes: tuple[str, ...]
    start: re.Pattern[bytes]


TYPES = (
    MediaType("image/png", ("png",), re.compile(rb"\x89PNG\r\n\x1a\n")),
    MediaType("image/jpeg", ("jpg", "jpeg"), re.compile(rb"\xff\xd8\xff")),
    MediaType("image/gif", ("gif",), re.compile(rb"GIF8[79]a")),
    MediaType("image/webp", ("webp",), re.compile(rb"RIFF....WEBP", re.S)),
    MediaType("image/svg+xml", ("svg",), re.compile(rb"\s*(\xef\xbb\xbf)?\s*<")),
    MediaType("audio/mpeg", ("mp3",), re.compile(rb"ID3|\xff[\xe2-\xff]", re.S)),
    MediaType("audio/ogg", ("ogg", "oga", "opus"), re.compile(rb"OggS")),
    MediaType("audio/wav", ("wav",), re.compile(rb"RIFF....WAVE", re.S)),
    MediaType("audio/mp4", ("m4a",), re.compile(rb"....ftyp", re.S)),
    MediaType("video/mp4", ("mp4",), re.compile(rb"....ftyp", re.S)),
    MediaType("video/webm", ("webm",), re.compile(rb"\x1a\x45\xdf\xa3")),
    MediaType("text/vtt", ("vtt",), re.compile(rb"(\xef\xbb\xbf)?WEBVTT")),
)

BY_SUFFIX = {suffix: row for row in TYPES for suffix in row.suffixes}
BY_TYPE = {row.type: row for row in TYPES}

SVG_TAGS = frozenset(
    {"svg", "g", "defs", "symbol", "use", "title", "desc", "metadata"}
    | {"path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan"}
    | {"textPath", "marker", "clipPath", "mask", "pattern", "stop", "switch"}
    | {"linearGradient", "radialGradient"}
)
"""Elements that draw. Not ``script``, ``foreignObject``, ``image``, ``a``, ``style`` or animations,
which act, fetch or hold other markup."""

JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of JPEG that the size of the picture follows."""

SVG = "http://www.w3.org/2000/svg"

FOREIGN = re.compile(r"url\(\s*['\"]?(?!#)|[a-z+.-]*script:|@import|expression\(", re.I)


def media_type(filename: str) -> str:
    """The media type that the suffix of a file name states.

    Raises:
        InputError: naming the file and the suffixes that exist.
    """
    suffix = filename.rpartition(".")[2].lower()
    if "." not in filename or suffix not in BY_SUFFIX:
        known = ", ".join(BY_SUFFIX)
        raise InputError(f"media file {brief(filename)}: expected one of the suffixes {known}.")
    return BY_SUFFIX[suffix].type


def media_name(data: bytes, kind: str) -> str:
    """SHA-256 of the data with the suffix of the media type."""
    return f"{hashlib.sha256(data).hexdigest()}.{BY_TYPE[kind].suffixes[0]}"


def check_media(data: bytes, kind: str, where: str) -> None:
    """Raise unless the data can be a media file of this type.

    A browser that guesses types could run a page that is named as a picture.

    Raises:
        InputError: the type is unknown, the file is too large, begins unlike its type, or is SVG
            with anything but drawing.
    """
    if kind not in BY_TYPE:
        raise InputError(f"{where}: expected one of the types {', '.join(BY_TYPE)}.")
    if len(data) > MOST_MEDIA:
        size = f"{len(data) / 2**20:,.0f} MiB"
        raise InputError(f"{where}: expected at most {MOST_MEDIA // 2**20} MiB. Got {size}.")
    if not BY_TYPE[kind].start.match(data):
        raise InputError(f"{where}: expected content of the type {kind}. Got something else.")
    if kind == "image/svg+xml":
        _check_svg(data, where)


def _check_svg(data: bytes, where: str) -> None:
    """Raise if a picture in SVG could run scripts or fetch anything."""
    root = parse_xml(data, where)
    if root.tag != f"{{{SVG}}}svg":
        raise InputError(f"{where}: expected a picture in SVG. Got <{local_name(root)}>.")
    for element in root.iter():
        tag = local_name(element)
        if element.tag.startswith(f"{{{SVG}}}") and tag not in SVG_TAGS:
            raise InputError(f"{where}: expected a picture in SVG that only draws. Got <{tag}>.")
        if "html" in element.tag.partition("}")[0]:
            raise InputError(f"{where}: expected a picture in SVG that only draws. Got HTML.")
        for name, value in element.attrib.items():
            local = name.rpartition("}")[2].lower()
            foreign = local == "href" and not value.strip().startswith("#")
            if local.startswith("on") or foreign or FOREIGN.search(value):
                got = f"{local} of <{tag}>"
                raise InputError(f"{where}: expected a picture in SVG that only draws. Got {got}.")


def picture_size(data: bytes) -> tuple[int, ...]:
    """Width and height of a picture in pixels, of PNG, GIF or JPEG; empty for others.

    Example:
        >>> picture_size(b"GIF89a" + bytes([40, 1, 30, 0]))
        (296, 30)
    """
    if data.startswith(b"\x89PNG"):
        return struct.unpack(">2I", data[16:24]) if len(data) >= 24 else ()
    if data.startswith(b"GIF8"):
        return struct.unpack("<2H", data[6:10]) if len(data) >= 10 else ()
    at = 2
    while data.startswith(b"\xff\xd8") and at + 9 <= len(data) and data[at] == 0xFF:
        if data[at + 1] in JPEG_FRAMES:
            height, width = struct.unpack(">2H", data[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return ()
