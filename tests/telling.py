"""What can be read in a folder of outputs, however it is packed: for who and where must not be told."""

from __future__ import annotations

import base64
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

BASE64 = re.compile(rb"base64,([A-Za-z0-9+/=]{20,})")
DEFLATED = re.compile(rb"\x78[\x01\x5e\x9c\xda]")


def readable(content: bytes) -> Iterator[bytes]:
    """Yield the content, and what is packed in it: archives, chunks of images and PDFs, images in pages."""
    yield content
    if content.startswith(b"\x1f\x8b"):
        yield from readable(gzip.decompress(content))
    elif content.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from readable(archive.read(name))
    elif content.startswith((b"\x89PNG", b"%PDF")):
        for found in DEFLATED.finditer(content):
            try:
                yield zlib.decompressobj().decompress(content[found.start() :])
            except zlib.error:  # two bytes that look like a beginning
                continue
    else:
        for packed in BASE64.findall(content):
            yield from readable(base64.b64decode(packed))


def telling(folder: Path, words: Iterable[str], *without: str) -> set[tuple[str, str]]:
    """Return file and word wherever one of the words is in name, link or content of a file below a folder."""
    sought = re.compile(b"|".join(re.escape(word.encode()) for word in words))
    found = set()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] in without or not (path.is_file() or path.is_symlink()):
            continue
        told = [str(name).encode(), str(path.readlink() if path.is_symlink() else "").encode()]
        for piece in (*told, *(readable(path.read_bytes()) if path.is_file() else ())):
            found |= {(str(name), word.decode()) for word in sought.findall(piece)}
    return found
