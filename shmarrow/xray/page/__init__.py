# SPDX-License-Identifier: Apache-2.0
"""The picture of an Arrow object: one HTML page that draws every message and buffer to scale.

The page is a single self-contained file: data, style and scripts are inline, nothing is loaded, and a content security
policy blocks all other scripts. It contains positions, names, types and metadata, but no column values.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from base64 import b64encode
from html import escape
from importlib.resources import files
from typing import Any

from shmarrow import memory
from shmarrow.errors import InvalidArgument, ObjectExists, printable, shown, storage_error
from shmarrow.memory import Location, resolve
from shmarrow.xray.overviews import Overview, overview
from shmarrow.xray.page.data import encode, label
from shmarrow.xray.walker import selected

_SCRIPTS = ("data.js", "nodes.js", "regions.js", "draw.js", "view.js", "panels.js", "fields.js", "main.js")
_HEAD, _START, _TITLE = 4096, b"<!doctype html>", " – bytes of an Arrow object</title>".encode()
"""Marks of a page: its first bytes, and the end of its title within the first :data:`_HEAD` bytes."""


def render(target: Any, *, batches: int | slice | None = None) -> str:
    """Return the page as a string.

    Parameters
    ----------
    target : Overview or anything that :func:`shmarrow.xray.overview` takes
        What to draw.
    batches : int or slice, optional
        Record batches shown in detail, with buffers and metadata; the others are drawn as a whole. By default, as many
        of the first batches as fit a page of about 2 MB.

    Returns
    -------
    str
        An HTML document.

    Raises
    ------
    InvalidArgument
        If ``batches`` is out of range.
    InvalidData
        If it is not Arrow data. Defects of Arrow data are marked on the page.
    """
    found = target if isinstance(target, Overview) else overview(target)
    data = encode(found, _selected(batches, found)).decode("ascii")
    here = files(__package__)
    style = (here / "style.css").read_text("utf-8")
    body = "\n".join([(here / name).read_text("utf-8") for name in _SCRIPTS])
    script = f'"use strict";\n{body}'
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    made = {
        "POLICY": policy,
        "TITLE": escape(printable(label(found))[:120]),
        "STYLE": style,
        "DATA": data,
        "SCRIPT": script,
    }
    pieces = (here / "page.html").read_text("utf-8").split("@@")
    return "".join([made[piece] if number % 2 else piece for number, piece in enumerate(pieces)])


def write(target: Any, out: Location, *, batches: int | slice | None = None, overwrite: bool = False) -> int:
    """Write the page to a file.

    Parameters
    ----------
    target : Overview or anything that :func:`shmarrow.xray.overview` takes
        What to draw.
    out : path
        The HTML file. An existing page is replaced atomically.
    batches : int or slice, optional
        As for :func:`render`.
    overwrite : bool
        Also replace a file that is not a page of shmarrow, but never the target itself.

    Returns
    -------
    int
        The number of bytes written.

    Raises
    ------
    InvalidArgument
        If ``out`` is the target, or in shared memory.
    ObjectExists
        If ``out`` is a file other than a page, and ``overwrite`` is False.
    StorageError
        If the file cannot be written.
    """
    found = target if isinstance(target, Overview) else overview(target)
    _check_out(found, out, overwrite)
    data = render(found, batches=batches).encode("utf-8")
    with memory.create(out, mode=None, overwrite=True) as writer:
        writer.write([data])
    return len(data)


def _check_out(found: Overview, out: Location, overwrite: bool) -> None:
    """Refuse to replace the drawn object, under any name, or a file that is not a page of shmarrow."""
    name, path = resolve(out)
    if name.startswith(memory.SHM_SCHEME):
        raise InvalidArgument(f"the page is written to a file, found {name!r}; give a path")
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise storage_error(error, "write", name) from None
    identity = found.source.identity
    if identity is not None and (status.st_dev, status.st_ino) == identity[:2]:
        raise InvalidArgument(f"{name!r} is the object that is drawn; write the page to another file")
    if overwrite or not stat.S_ISREG(status.st_mode):
        return
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise storage_error(error, "read", name) from None
    if not head.startswith(_START) or _TITLE not in head:
        raise ObjectExists(
            errno.EEXIST,
            f"cannot create {name!r}: a file of this name exists, and is not a page of shmarrow",
            hint="delete it first, or pass overwrite=True",
        )


def _selected(batches: int | slice | None, found: Overview) -> range | None:
    """Return the requested batches as a range."""
    if batches is None:
        return None
    chosen = selected(batches, len(found.blocks), found.name)
    if not chosen or chosen.step != 1:
        raise InvalidArgument(f"{found.name}: a page has one batch or several consecutive ones, found {shown(batches)}")
    return chosen


def _hash(text: str) -> str:
    """Return the CSP source expression that allows an inline script or style."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"
