# SPDX-License-Identifier: Apache-2.0
"""What bytes are, and how they are opened: a file, a stream, a tensor, a bundle of tensors, or no Arrow data.

Whoever is given bytes of unknown contents asks here: objects of stores, scans, handles, conversions, the command line
and the explanation of bytes. Other formats are recognised by :mod:`shmarrow.memory.formats`.
"""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits
from shmarrow.ipc.file.footer import BUNDLE_KEY, MAGIC
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.message.decode import Located, Message, message_at
from shmarrow.memory import Source


class Kind(NamedTuple):
    """One of the things that Arrow data are.

    Attributes
    ----------
    title : str
        What it is called.
    suffix : str
        The suffix of a file of it.
    """

    title: str
    suffix: str


KINDS = {
    "file": Kind("Arrow file", ".arrow"),
    "stream": Kind("Arrow stream", ".arrows"),
    "tensor": Kind("tensor message", ".tensor"),
    "sparse tensor": Kind("sparse tensor message", ".tensor"),
    "bundle": Kind("bundle of tensors (an Arrow file)", ".tensors"),
}
"""All that Arrow data are."""
ROWS = ("file", "stream", "other rows")
"""The kinds that have rows; the last one is what pyarrow reads."""


class Contents(NamedTuple):
    """What a source holds.

    Attributes
    ----------
    name : str
        The name of the source, for messages.
    kind : str
        One of :data:`KINDS` or :data:`ROWS`.
    content : RecordBatchFileReader, MappedStreamReader, Tensor, SparseTensor or Bundle
        A reader or views of the source.
    """

    name: str
    kind: str
    content: Any

    def rows(self, hint: str | None = None) -> Any:
        """The reader of its rows; InvalidData with a hint if it has none."""
        if self.kind not in ROWS:
            raise InvalidData(f"{self.name} is a {self.kind}, which has no rows", hint=hint or "shmarrow.open opens it")
        return self.content


def is_file(data: Bytes) -> bool:
    """Whether bytes begin as those of an Arrow file or a bundle."""
    return data.data[: len(MAGIC)] == MAGIC


def first_message(data: Bytes, name: str, parse: Any, limits: Limits = DEFAULT_LIMITS) -> Located:
    """The first message of a stream or a tensor, whose header tells which it is; ``parse`` is that of tensors."""
    located = message_at(data, 0, name, limits, parse=parse)
    if located is None:
        raise InvalidData(f"{name}: expected an Arrow file, stream or tensor, found none of them")
    return located


def contents(source: Source, limits: Limits = DEFAULT_LIMITS) -> Contents:
    """Determine what a source holds, and open it.

    Raises
    ------
    InvalidData
        If it holds something else, which is named where it is recognized, or is broken.
    """
    from shmarrow.memory.formats import HEAD

    name = source.name
    head = source.read(0, min(HEAD, source.size or 0))
    if is_file(head):
        reader = RecordBatchFileReader(source, limits)
        if BUNDLE_KEY not in reader._opened().footer.metadata:
            return Contents(name, "file", reader)
        from shmarrow.ipc.tensor.bundle import Bundle

        return Contents(name, "bundle", Bundle(source, limits))
    expect_arrow(head, name)
    if source.data is None:  # a file object that is read by ranges, as files are
        source = Source(name, source.read(0, source.size or 0))
    data: Any = source.data
    from shmarrow.ipc.tensor.decode import DenseHeader, read_header

    header, _, body, end = first_message(data, name, read_header, limits)
    if not isinstance(header, Message):
        kind = "tensor" if isinstance(header, DenseHeader) else "sparse tensor"
        return Contents(name, kind, header.over(data[body:end]))
    from shmarrow.ipc.stream.reader import MappedStreamReader

    return Contents(name, "stream", MappedStreamReader(source, limits))


def expect_arrow(data: Any, name: str) -> None:
    """Refuse bytes that begin other data than Arrow's.

    Parameters
    ----------
    data : bytes-like
        The bytes, or the first ones.
    name : str
        The name of the file.

    Raises
    ------
    InvalidData
        If there are none, or those of another format; the error says what reads it, and what converts it.
    """
    from shmarrow.memory.formats import SUFFIXES, recognized, unexpected

    form = recognized(data, name)
    if len(data) and (not form.name or form.kind in ("arrow", "arrows")):
        return
    error = unexpected("expected Arrow data", data)
    error.where = ((name,),)
    if len(data) and form.kind in SUFFIXES:
        source = "-" if name == "standard input" else shlex.quote(name)
        made = (
            "OUT.tensors` makes it a bundle"
            if form.kind in ("tensors", "safetensors")
            else "OUT.arrow` makes it an Arrow file"
        )
        error.hint = "; ".join([f"`shmarrow convert {source} {made}", *filter(None, [error.hint])])
    raise error
