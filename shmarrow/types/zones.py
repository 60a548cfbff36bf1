"""Time zone names as Arrow writes them (Schema.fbs, "Timestamp")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.errors import InvalidType, shown

if TYPE_CHECKING:
    import datetime as dt


def zone_name(zone: dt.tzinfo) -> str:
    """Return the Arrow name of a time zone: its name in the time zone database, or an offset such as ``+07:30``.

    Raises
    ------
    InvalidType
        If it has neither.
    """
    for attribute in ("key", "zone"):  # zoneinfo and pytz
        name = getattr(zone, attribute, None)
        if isinstance(name, str):
            return name
    try:
        offset = zone.utcoffset(None)
        seconds = None if offset is None else offset.total_seconds()
    except Exception:
        seconds = None  # the offset depends on the date
    if seconds is None or seconds % 60 or abs(seconds) >= 24 * 60 * 60:
        raise InvalidType(f"the time zone {shown(zone)} has no Arrow name; use zoneinfo, or an offset in whole minutes")
    if not seconds:
        return "UTC"
    minutes = int(seconds) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
