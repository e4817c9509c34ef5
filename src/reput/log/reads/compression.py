"""Bodies decompressed, by the compression that SYSFLAG names (docs/formats/commit-log.md, `CompressionType`)."""

from __future__ import annotations

import zlib

from reput.extras import require
from reput.formats.record_layout import SysFlag

#: A body larger than this when decompressed stays as stored, so that a small record cannot fill the memory.
MAX_BODY_BYTES = 64 << 20
_READ_BYTES = 64 << 10
_ARROW_CODECS = {SysFlag.COMPRESSION_LZ4: "lz4", SysFlag.COMPRESSION_ZSTD: "zstd"}
_ZLIB_TYPES = (0, SysFlag.COMPRESSION_ZLIB)  # clients before 4.9.3 wrote no type


def decompress(body: bytes, sys_flag: int, *, max_bytes: int = MAX_BODY_BYTES) -> bytes | None:
    """The plain body; None if the body is broken, of an unknown compression, or larger than `max_bytes` when plain.

    Raises ConfigError for LZ4 and Zstandard if Arrow is not installed.
    """
    if not body:
        return body
    kind = sys_flag & SysFlag.COMPRESSION_MASK
    if kind in _ZLIB_TYPES:
        return _inflate(body, max_bytes)
    return _decompress_by_arrow(body, _ARROW_CODECS[kind], max_bytes) if kind in _ARROW_CODECS else None


def _inflate(body: bytes, max_bytes: int) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, max_bytes + 1)
    except zlib.error:
        return None
    return plain if inflater.eof and len(plain) <= max_bytes else None


def _decompress_by_arrow(body: bytes, codec: str, max_bytes: int) -> bytes | None:
    require("pyarrow", f"a body compressed by {codec}")
    import pyarrow as pa  # here: most bodies need none of it, and a client is imported without

    blocks, left = [], max_bytes + 1
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            while left and (block := stream.read(min(left, _READ_BYTES))):
                blocks.append(block)
                left -= len(block)
    except (pa.ArrowException, OSError):
        return None
    return b"".join(blocks) if left else None
