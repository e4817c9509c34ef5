"""A further name for a file, which no other file has: nothing is replaced."""

from __future__ import annotations

import errno
import os

from reput.errors import StoreError
from reput.files.os_errors import write_failure

#: A file system has no hard links, or this user may make none to a file of another one (`fs.protected_hardlinks`).
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def give_name(source: str, target: str) -> None:
    """Rename a file to a name that no other file has; raises StoreError if one has it.

    The file has both names for a moment; a call after a kill in it takes the old one away. If there are no links,
    another process could take the name between the look and the rename.
    """
    try:
        try:
            os.link(source, target)
        except FileExistsError:
            if not os.path.exists(source) or not os.path.samefile(source, target):
                raise StoreError(
                    f"{target}: another file has the name that {source} is to have, and none is replaced; move it away"
                ) from None
        except OSError as error:
            if error.errno not in _NO_LINKS or os.path.lexists(target):
                raise
            os.rename(source, target)
            return
        os.unlink(source)
    except OSError as error:
        raise write_failure(error, source, f"rename to {target}", 0) from error
