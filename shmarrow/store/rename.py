"""Renaming that replaces nothing: ``renameat2``, which Python has no function for."""

from __future__ import annotations

import ctypes
import errno
import os

_AT_FDCWD = -100
_NOREPLACE = 1
_MISSING = (errno.ENOSYS, errno.EINVAL)


def without_replacing(old: str, new: str) -> None:
    """Rename a file at once, or fail with `FileExistsError` where the new name is taken.

    Where the system cannot, the file gets the new name and then loses the old one.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        if call(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), _NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in _MISSING:
            raise OSError(code, os.strerror(code), new if code == errno.EEXIST else old)
    os.link(old, new)
    os.unlink(old)
