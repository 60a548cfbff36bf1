# SPDX-License-Identifier: Apache-2.0
"""Options for writers: :class:`IpcWriteOptions`."""

from __future__ import annotations

from typing import Any

from shmarrow.errors import FrozenValues, InvalidArgument, InvalidType, full_name, shown
from shmarrow.ipc.compression import CODECS


class IpcWriteOptions(FrozenValues):
    """Options for writing streams, files and tensors.

    Attributes
    ----------
    compression : str or None
        ``"lz4"`` or ``"zstd"``, in any case, compresses each buffer separately; None disables compression.
    compression_level : int or None
        Codec level; None for the codec's default.
    min_space_savings : float
        Minimum fraction of a buffer, from 0 to 1, that compression must save; otherwise the buffer is stored raw.
    metadata_version : str
        ``"V5"``, or ``"V4"`` for readers from before Arrow 1.0.
    use_legacy_format : bool
        True omits the continuation marker before each message, for readers from before Arrow 0.15.
    endianness : str
        Byte order of the buffers, ``"little"`` or ``"big"``.
    emit_dictionary_deltas : bool
        True writes a delta when a dictionary extends the one written before it.
    unify_dictionaries : bool
        True lets ``write_table`` of a file, which has one dictionary per id, give all batches of the table the same
        dictionaries; they are held in memory meanwhile. Streams ignore it, as a dictionary may be replaced there.
    use_threads : bool
        True compresses buffers on several threads.
    """

    __slots__ = (
        "compression",
        "compression_level",
        "emit_dictionary_deltas",
        "endianness",
        "metadata_version",
        "min_space_savings",
        "unify_dictionaries",
        "use_legacy_format",
        "use_threads",
    )  # fmt: skip
    compression: str | None
    compression_level: int | None
    min_space_savings: float
    metadata_version: str
    use_legacy_format: bool
    endianness: str
    emit_dictionary_deltas: bool
    unify_dictionaries: bool
    use_threads: bool

    def __init__(
        self,
        compression: str | None = None,
        compression_level: int | None = None,
        min_space_savings: float = 0.0,
        metadata_version: str = "V5",
        use_legacy_format: bool = False,
        endianness: str = "little",
        emit_dictionary_deltas: bool = False,
        use_threads: bool = True,
        unify_dictionaries: bool = False,
    ) -> None:
        compression = compression.lower() if isinstance(compression, str) else compression
        self._fix(locals())
        choices = {
            "compression": (None, *CODECS),
            "metadata_version": ("V4", "V5"),
            "endianness": ("little", "big"),
        }
        for name, allowed in choices.items():
            if not isinstance(getattr(self, name), (str, type(None))) or getattr(self, name) not in allowed:
                raise InvalidArgument(f"{name} must be one of {allowed}, found {shown(getattr(self, name))}")
        if self.compression is not None and self.metadata_version == "V4":
            raise InvalidArgument(
                "compression needs metadata_version V5: V4 readers would read compressed buffers as raw"
            )
        types: tuple[tuple[str, Any], ...] = (
            ("compression_level", (int, type(None))),
            ("min_space_savings", (int, float)),
            ("use_legacy_format", bool),
            ("emit_dictionary_deltas", bool),
            ("unify_dictionaries", bool),
            ("use_threads", bool),
        )
        for name, kinds in types:
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
                raise InvalidType(f"{name} cannot be {shown(value)}")
        if self.compression_level is not None and self.compression is None:
            raise InvalidArgument(f"compression_level {self.compression_level} needs a compression, found None")
        if self.compression is not None and self.compression_level is not None:
            (least, most), level = CODECS[self.compression].levels, self.compression_level
            if not least <= level <= most:
                raise InvalidArgument(
                    f"compression_level of {self.compression} must be from {least} to {most}, found {shown(level)}"
                )
        if not 0 <= self.min_space_savings <= 1:
            raise InvalidArgument(f"min_space_savings must be from 0 to 1, found {self.min_space_savings}")


DEFAULT_OPTIONS = IpcWriteOptions()


def as_options(options: IpcWriteOptions | None) -> IpcWriteOptions:
    """Check options; None gives the defaults."""
    if options is None:
        return DEFAULT_OPTIONS
    if not isinstance(options, IpcWriteOptions):
        named = isinstance(options, str) and options in CODECS
        hint = f"pass IpcWriteOptions(compression={options!r})" if named else None
        raise InvalidType(f"options must be a shmarrow.ipc.IpcWriteOptions, found {full_name(options)}", hint=hint)
    return options
