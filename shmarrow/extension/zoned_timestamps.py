"""Timestamps with individual UTC offsets (canonical extension types, "Timestamp With Offset")."""

from __future__ import annotations

import datetime as dt
from typing import Any

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, shown
from shmarrow.extension.array import ExtensionArray
from shmarrow.extension.parameters import children_of, values_of
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.types import DataType, ExtensionType, Field


class TimestampWithOffsetType(ExtensionType):
    """Timestamps in UTC, each with its own offset in minutes (``arrow.timestamp_with_offset``).

    Python values are datetimes with a fixed offset; a value out of the range of ``datetime`` is returned as the dict of
    its storage. The offsets may be dictionary or run-end encoded.
    """

    __slots__ = ()
    extension_name = "arrow.timestamp_with_offset"
    LOWEST, HIGHEST = -779, 780
    """The smallest and the largest offset from UTC, in minutes."""

    def __init__(self, storage_type: DataType) -> None:
        super().__init__(storage_type)
        children = children_of(self.extension_name, storage_type)
        moment, offset = children.get("timestamp"), children.get("offset_minutes")
        if (
            list(children) != ["timestamp", "offset_minutes"]
            or not isinstance(moment, types.TimestampType)
            or moment.tz != "UTC"
            or offset is None
            or values_of(offset) != types.int16()
        ):
            raise InvalidArgument(
                f"{self.extension_name}: the storage must be a struct of a timestamp in UTC 'timestamp' and an int16 "
                f"'offset_minutes', found {storage_type}"
            )

    @property
    def unit(self) -> str:
        """Unit of the timestamps: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``."""
        return self.storage_type.field("timestamp").type.unit  # type: ignore[attr-defined]

    def to_python(self, value: Any) -> Any:
        moment, minutes = value["timestamp"], value["offset_minutes"] or 0
        if moment is None or not isinstance(moment, dt.datetime):
            return None if moment is None else value
        try:
            return moment.astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
        except (ValueError, OverflowError):
            return value

    def from_python(self, value: Any) -> Any:
        if not isinstance(value, dt.datetime):
            return value
        try:
            offset = value.utcoffset()
        except Exception as error:
            raise InvalidData(f"{self}: the time zone of {shown(value)} has no offset: {shown(error)}") from error
        if offset is None:
            raise InvalidType(f"{self}: expected datetimes with a time zone, found {shown(value)}")
        minutes, rest = divmod(offset, dt.timedelta(minutes=1))
        if rest or not self.LOWEST <= minutes <= self.HIGHEST:
            raise InvalidData(
                f"{self}: the offset must be {self.LOWEST} to {self.HIGHEST} whole minutes, found {shown(value)}"
            )
        return {"timestamp": value, "offset_minutes": minutes}


class TimestampWithOffsetArray(ExtensionArray, of=TimestampWithOffsetType):
    """Array of timestamps in UTC, each with its own offset."""

    __slots__ = ()

    @property
    def timestamps(self) -> PrimitiveArray:
        """Values as a timestamp array in UTC; zero-copy."""
        return self._part("timestamp")

    @property
    def offset_minutes(self) -> PrimitiveArray:
        """Offsets in minutes as an int16 array; copied only if dictionary or run-end encoded."""
        offsets = self._part("offset_minutes")
        return offsets if offsets.type.layout == "primitive" else offsets.decode()

    def _check_values(self) -> None:
        super()._check_values()
        offsets = self.offset_minutes
        low, high = self._type.LOWEST, self._type.HIGHEST
        values = offsets.values
        wrong = ((values < low) | (values > high)) & offsets._valid() & self._valid()
        if wrong.any():
            i = int(wrong.argmax())
            text = f"{self._type}: expected a UTC offset of {low} to {high} minutes, found {int(values[i])}"
            raise InvalidData(text, where=[("row", i)])


def timestamp_with_offset(unit: str, offset_type: DataType | str = "int16") -> TimestampWithOffsetType:
    """Create a timestamp type with individual UTC offsets, which may be dictionary or run-end encoded."""
    moment = Field("timestamp", types.timestamp(unit, "UTC"), nullable=False)
    offset = Field("offset_minutes", types.as_type(offset_type), nullable=False)
    return TimestampWithOffsetType(types.StructType([moment, offset]))
