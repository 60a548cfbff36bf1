"""Checks of untrusted JSON lines before pyarrow parses them: bounds on nesting depth and number of keys.

pyarrow's parser recurses for each level of nesting, and for every key in a block fills an array with one slot per
object. Invariants:

* no text reaches the parser before its nesting is known to be within ``MAX_DEPTH``;
* objects times keys of a block stay within :data:`CELLS`; keys are counted in pieces so small, or with so few keys,
  that parsing them is harmless;
* counts are exact or too high for any text, including invalid text; later blocks are parsed in parallel.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from shmarrow.errors import InvalidData, LimitExceeded
from shmarrow.types.base import MAX_DEPTH

CELLS = 1 << 26
"""The most objects times keys in a block of text, for which pyarrow may take 1 GiB and five seconds."""

_PIECE = 1 << 20
_SMALL = 1 << 15
_FEW = 1 << 22
"""Bytes scanned at a time; bytes parsed at a time to find keys; the most objects times keys in a longer line."""
_ESCAPE = re.compile(rb"\\[^\r\n]")
_OPEN, _CLOSE, _QUOTE, _COLON, _BRACE = 0x7B, 0x7D, 0x22, 0x3A, 0x7B
_SPACE = b" \t\r\n"
_FOLD = np.uint8(0x20)
"""Brackets with this bit are braces."""

Path = tuple[str, ...]


class CheckedLines(io.RawIOBase):
    """A file of JSON lines that raises instead of returning text that would exhaust its parser.

    Parameters
    ----------
    file : file object
        The source.
    where : str
        Its name in messages.
    parse : callable
        Returns the schema that pyarrow infers for some lines.

    Raises
    ------
    InvalidData
        From ``read``, if brackets or quotes are not balanced, or ``parse`` fails.
    LimitExceeded
        From ``read``, if values nest too deep, or a block has too many keys.
    """

    def __init__(self, file: Any, where: str, parse: Any) -> None:
        self._file = file
        self._where = where
        self._parse = parse
        self._escape = b""
        self._in_string = 0
        self._depth = 0
        self._line = 1
        self._paths: set[Path] | None = None  # of all keys, once the first block is read

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes, or up to the end."""
        block, objects, keys = b"", 0, 0
        first = self._paths is None
        while more := self._all_of(size - len(block) if size >= 0 else -1):
            found = self._scan(more)
            objects, keys = objects + found[0], keys + found[1]
            block += more
            if not first:
                break
            block = block.lstrip(_SPACE)  # pyarrow infers types from the first block that is not blank
        if first:
            if block.startswith(b"["):
                raise InvalidData(
                    f"{self._where}: a JSON array; JSON lines have one object per line: jq -c '.[]' IN | shmarrow "
                    "convert - OUT --from jsonl"
                )
            self._paths = set()
            self._count_keys(block, len(block) == size, objects, keys)
        self._check(objects)
        return block

    def _all_of(self, size: int) -> bytes:
        """Read ``size`` bytes, or up to the end, in as many calls as needed."""
        pieces, left = [], size
        while left and (piece := bytes(self._file.read(left))):
            pieces.append(piece)
            left -= len(piece) if size >= 0 else 0
        return b"".join(pieces)

    def _count_keys(self, block: bytes, is_full: bool, objects: int, keys: int) -> None:
        """Find the keys of the first block, which define the schema of all blocks."""
        if is_full:
            end = 1 + max(block.rfind(b"\n"), block.rfind(b"\r"))
            if not end:
                raise LimitExceeded(f"{self._where}: the first line has more than {len(block)} bytes, expected fewer")
            block = block[:end]
        elif objects * keys <= CELLS:
            return
        for paths in self._found(block):
            self._paths = {*(self._paths or ()), *paths}
            self._check(objects)

    def _check(self, objects: int) -> None:
        keys = len(self._paths or ())
        if objects * keys > CELLS:
            raise LimitExceeded(
                f"{self._where}: {objects} objects with more than {keys - 1} different keys in one block, and pyarrow "
                f"fills an array for each key; at most {CELLS} objects times keys are read. Split the file by keys, "
                "or keep fewer of them (jq -c '{a, b}')"
            )

    def _scan(self, block: bytes) -> tuple[int, int]:
        """Return upper bounds of the objects and keys in a block; refuse nesting that is too deep."""
        text = self._escape + block
        if b"\\" in text:
            text = _ESCAPE.sub(b"  ", text)
        self._escape = b"\\" if text.endswith(b"\\") else b""
        text = text[: len(text) - len(self._escape)]
        objects = keys = 0
        for start in range(0, len(text), _PIECE):
            chars = np.frombuffer(text, np.uint8, min(_PIECE, len(text) - start), start)
            inside = (np.cumsum(chars == _QUOTE, dtype=np.uint8) + np.uint8(self._in_string)) & np.uint8(1)
            self._in_string = int(inside[-1])
            outside = inside == 0
            ends = (chars == 10) | (chars == 13)
            broken = ends & ~outside
            if broken.any():
                raise InvalidData(f"{self._at(ends, int(broken.argmax()))}: a string does not end on its line")
            folded = chars | _FOLD
            steps = ((folded == _OPEN) & outside).view(np.int8) - ((folded == _CLOSE) & outside).view(np.int8)
            depths = np.cumsum(steps, dtype=np.int32) + np.int32(self._depth)
            if depths.min() < 0:
                raise InvalidData(f"{self._at(ends, int((depths < 0).argmax()))}: a bracket that was never opened")
            if depths.max() > MAX_DEPTH:
                at = self._at(ends, int((depths > MAX_DEPTH).argmax()))
                raise LimitExceeded(f"{at}: values nest more than {MAX_DEPTH} levels deep")
            self._depth = int(depths[-1])
            self._line += int(np.count_nonzero(ends))
            objects += int(np.count_nonzero((chars == _BRACE) & outside))
            keys += int(np.count_nonzero((chars == _COLON) & outside))
        return objects, keys

    def _at(self, ends: Any, place: int) -> str:
        return f"{self._where}: line {self._line + int(np.count_nonzero(ends[:place]))}"

    def _found(self, text: bytes) -> Iterator[set[Path]]:
        """Iterate over the paths of the keys in lines, piece by piece."""
        start, last = 0, None
        while start < len(text):
            end = text.rfind(b"\n", start, start + _SMALL) + 1 or text.find(b"\n", start + _SMALL) + 1 or len(text)
            piece = text[start:end]
            start = end
            if not piece.strip(_SPACE):
                continue
            if len(piece) > _SMALL and piece.count(b"{") * piece.count(b":") > _FEW:
                yield self._of_long_line(piece)
                continue
            schema = self._parse(piece)
            if last is None or not schema.equals(last):
                yield {path for field in schema for path in _of_field(field, ())}
            last = schema

    def _of_long_line(self, line: bytes) -> set[Path]:
        found: set[Path] = set()
        try:
            _collect(json.loads(line), (), found)
        except ValueError as error:
            raise InvalidData(f"{self._where}: a line of {len(line)} bytes is not JSON: {error}") from None
        return found


def _of_field(field: Any, path: Path) -> Iterator[Path]:
    path = (*path, field.name)
    yield path
    for number in range(field.type.num_fields):
        yield from _of_field(field.type.field(number), path)


def _collect(value: Any, path: Path, found: set[Path]) -> None:
    """Add the paths of all keys in a value, named as pyarrow names the fields."""
    if isinstance(value, dict):
        for name, each in value.items():
            found.add((*path, name))
            _collect(each, (*path, name), found)
    elif isinstance(value, list):
        found.add((*path, "item"))
        for each in value:
            _collect(each, (*path, "item"), found)
