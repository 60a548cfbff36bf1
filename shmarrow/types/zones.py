"""The names that Arrow has for time zones (Schema.fbs, "Timestamp")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.errors import InvalidType, shown

if TYPE_CHECKING:
    import datetime as dt


def zone_name(zone: dt.tzinfo) -> str:
    """The name that Arrow has for a time zone: that of the zone database, or an offset such as ``+07:30``.

    Raises
    ------
    InvalidType
        If there is none.
    """
    for attribute in ("key", "zone"):  # of zoneinfo, and of pytz
        name = getattr(zone, attribute, None)
        if isinstance(name, str):
            return name
    try:
        offset = zone.utcoffset(None)
        seconds = None if offset is None else offset.total_seconds()
    except Exception:
        seconds = None  # there are zones that tell the offset of moments only
    if seconds is None or seconds % 60 or abs(seconds) >= 24 * 60 * 60:
        raise InvalidType(
            f"the time zone {shown(zone)} has no name in Arrow; use zoneinfo, or an offset in whole minutes"
        )
    if not seconds:
        return "UTC"
    minutes = int(seconds) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
