"""Which image a plan's containers start from, what it is called there, and the image of the host's tools."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
import zlib

from coopfile.errors import CoopError
from coopfile.language.items import ImageReference, LocalImage
from coopfile.plan.launch import parents
from coopfile.plan.model import is_built

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.plan.model import Plan
    from coopfile.render.facts import Entry

TOOLS = "localhost/coop-tools"
_LOADED = "coop-base"
_DIGITS = 24  # of a digest, in a tag


def reference(plan: Plan, tools: Sequence[Entry]) -> str:
    """Return the image of a plan's containers.

    It is the plan's own, one that is built on it, or a nearly empty one into which
    the host's ``tools`` are mounted. Raises CoopError for an image in a file that has no digest.
    """
    plan = on_engine(plan)
    if is_built(plan):
        from coopfile.render.dockerfile import image_tag

        return image_tag(plan)
    if plan.base.image is not None:
        return str(plan.base.image)
    return tools_tag(tools)


def on_engine(plan: Plan) -> Plan:
    """Return a plan whose image engines know by a name: one in a file has that under which it is loaded.

    Raises CoopError for an image in a file that has no digest, and so no name.
    """
    image = plan.base.image
    if not isinstance(image, LocalImage):
        return plan
    if image.digest is None:
        raise CoopError(f"base.image: {image} is not locked yet", "coop lock writes down which image it is")
    tag = image.digest.partition(":")[2][:_DIGITS]
    return plan.replace(base=plan.base.replace(image=ImageReference("localhost", _LOADED, tag)))


def tools_tag(tools: Sequence[Entry]) -> str:
    """Return the name of the image of the host's tools: the same content has the same name."""
    return f"{TOOLS}:{hashlib.sha256(tools_archive(tools)).hexdigest()[:_DIGITS]}"


def tools_archive(tools: Sequence[Entry]) -> bytes:
    """Return a root file system of the host's tools as a compressed tar, the same bytes for the same tools.

    It holds links, directories and files of our own, and the places of what is
    mounted; for an engine's ``import``.
    """
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        made = {""}
        for entry in tools:
            for parent in parents(entry.path):
                if parent not in made:
                    made.add(parent)
                    tar.addfile(_member(parent, tarfile.DIRTYPE, 0o755))
            if entry.path in made:
                continue
            made.add(entry.path)
            if entry.kind == "directory":
                tar.addfile(_member(entry.path, tarfile.DIRTYPE, 0o755))
            elif entry.kind == "link":
                member = _member(entry.path, tarfile.SYMTYPE, 0o777)
                member.linkname = entry.content
                tar.addfile(member)
            elif entry.kind == "file":
                member = _member(entry.path, tarfile.REGTYPE, 0o644)
                content = entry.content.encode()
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            elif entry.kind != "bind":
                raise CoopError(f"{entry.path}: {entry.kind} is no kind of entry of a root file system")
    return _packed(raw.getvalue())


def _packed(data: bytes) -> bytes:
    """Return data as gzip, the same with every Python: the module writes another header in each version.

    Without a time, compressed best, as by Unix: RFC 1952, section 2.3.
    """
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    end = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"\x1f\x8b\x08\0\0\0\0\0\x02\x03" + deflate.compress(data) + deflate.flush() + end


def _member(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path.lstrip("/"))
    member.type, member.mode = kind, mode
    return member
