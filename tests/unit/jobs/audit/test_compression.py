"""A record whose flags and body disagree on a compression is told: no CRC covers its flags."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.formats.record_layout import SYS_FLAG, SysFlag
from reput.jobs.audit.job import audit
from reput.jobs.findings import Finding
from reput.jobs.runner import LocalRunner
from tests.support.damage import flip
from tests.support.orders import SIZES

_PLAIN = b"orders and orders " * 20
_BODIES = {
    SysFlag.COMPRESSED: zlib.compress(_PLAIN, 1),
    SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB: zlib.compress(_PLAIN, 9),
    SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4: pa.Codec("lz4").compress(_PLAIN, asbytes=True),
    SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD: pa.Codec("zstd").compress(_PLAIN, asbytes=True),
    0: _PLAIN,
}


def findings(store: Path, flags: int, body: bytes, flipped: int) -> list[Finding]:
    """Of an audit of three messages, where the flags of the second one have other bits."""
    with reput.MessageStore.open(store, **SIZES) as opened:
        opened.put_message(reput.Message("orders", b"first"))
        offset = opened.put_message(reput.Message("orders", body, sys_flag=flags)).commit_log_offset
        opened.put_message(reput.Message("orders", b"third"))
    log = store / "commitlog/00000000000000000000"
    flip(log, offset + SYS_FLAG + 3, flipped & 0xFF)
    flip(log, offset + SYS_FLAG + 2, flipped >> 8)
    found = audit(store, runner=LocalRunner(1)).findings
    assert all(finding.commit_log_offset == offset for finding in found)
    return list(found)


@pytest.mark.parametrize("flags", _BODIES)
def test_bodies_that_are_what_their_flags_say_are_clean(flags: int, tmp_path: Path) -> None:
    assert not findings(tmp_path, flags, _BODIES[flags], 0)


@pytest.mark.parametrize("bit", [SysFlag.COMPRESSED, 0x100, 0x200, 0x400])
@pytest.mark.parametrize("flags", [flags for flags in _BODIES if flags & SysFlag.COMPRESSION_MASK])
def test_one_bit_of_a_compression_is_told(flags: int, bit: int, tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, flags, _BODIES[flags], bit)
    assert finding.code == "compression-wrong"


def test_a_plain_body_with_the_flag_is_told_however_short(tmp_path: Path) -> None:
    for number, body in enumerate((_PLAIN, b"x", b"\x78")):
        (finding,) = findings(tmp_path / str(number), 0, body, SysFlag.COMPRESSED)
        assert finding.code == "compression-wrong"
