"""A file system of a few megabytes in memory, for one process alone, and what fills it."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000


def mount_tmpfs(folder: Path, size: int) -> None:
    """Mount one of `size` bytes in this process alone, which has one thread. Raises OSError if that is forbidden."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments):
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

    user, group = os.getuid(), os.getgid()
    call("unshare", _CLONE_NEWNS | (_CLONE_NEWUSER if user else 0))
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path(f"/proc/self/{name}").write_text(text)
    call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    call("mount", b"none", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode())


def mount_overlay(folder: Path, upper: Path) -> None:
    """Mount an overlay file system, as containers have it, whose new files go to `upper`; after `mount_tmpfs`."""
    parts = {name: upper / name for name in ("lowerdir", "upperdir", "workdir")}
    for part in parts.values():
        part.mkdir()
    options = ",".join(f"{name}={part}" for name, part in parts.items()).encode()
    if ctypes.CDLL(None, use_errno=True).mount(b"none", os.fsencode(folder), b"overlay", 0, options):
        raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}")


def fill(ballast: Path, pages_left: int = 0) -> None:
    """Make a file that takes all of its file system but some pages."""
    with ballast.open("wb", buffering=0) as file:
        with suppress(OSError):  # until it is full
            while file.write(bytes(4096)):
                pass
        os.truncate(ballast, max(0, file.tell() // 4096 - pages_left) * 4096)
