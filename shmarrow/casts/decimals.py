# SPDX-License-Identifier: Apache-2.0
"""Vectorized decimals: unscaled integers of 32 to 256 bits, rescaled, checked, converted from and to numbers.

Unscaled integers are int64 of shape (n,) if all fit; else 64-bit words in two's complement, shape (n, 4), least
significant first. Only numbers that are exact neither as 64-bit integers nor as floats are processed one by one.

Losses with ``safe=False``: digits beyond the scale are truncated toward zero, decimals become the nearest float, floats
the nearest decimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shmarrow.buffer import Mask
from shmarrow.casts.numbers import Fault, Values, divided, faults, multiplied, outside

if TYPE_CHECKING:
    from shmarrow.types import DecimalType

Unscaled: TypeAlias = Values
Outcome = tuple[Values, list[Fault]]

_WORD = (1 << 64) - 1
_HALF = np.uint64(0xFFFFFFFF)
_CHUNK = 9
"""Digits per multiplication or division of wide numbers: 10**9 is the highest power of ten within 32 bits."""

_FAR = 400
"""Exponent beyond which every non-zero number is out of range of both decimals and floats."""

_CERTAIN = 10**15
"""Decimals with fewer digits than this are distinct as 64-bit floats."""

_POWER = 22
"""The highest power of ten that is exact as a 64-bit float."""

_PIECE = 1 << 16
"""Wide numbers processed at once, so that they stay in the CPU cache."""


# --- storage and unscaled integers --------------------------------------------------------------------------------


def unscaled(type: DecimalType, values: Values) -> Unscaled:
    """Return the unscaled integers of stored decimals."""
    if type.bits <= 64:
        return values.astype(np.int64, copy=False)
    low = np.ascontiguousarray(values[:, 0]).view("<i8")
    sign = (low >> 63).view("<u8")
    if all(np.array_equal(values[:, i], sign) for i in range(1, values.shape[1])):
        return low
    return _widened(values)


def _widened(numbers: Values) -> Values:
    """Sign-extend 64-bit integers, or several words, to four words."""
    words = numbers.reshape(len(numbers), -1)
    if numbers.dtype.kind == "i":
        words = words.view("<u8")
    if words.shape[1] == 4:
        return words
    result = np.zeros((len(words), 4), "<u8")
    result[:, : words.shape[1]] = words
    if numbers.dtype.kind == "i" or words.shape[1] > 1:
        result[:, words.shape[1] :] = (words[:, -1:].view("<i8") >> 63).view("<u8")
    return result


def stored(type: DecimalType, numbers: Unscaled) -> tuple[Values, Mask | None]:
    """Return unscaled integers in the type's storage, and which exceed its precision."""
    over = too_wide(type.precision, numbers)
    if type.bits <= 64:
        low = numbers if numbers.ndim == 1 else np.ascontiguousarray(numbers[:, 0]).view("<i8")
        return low.astype(type.storage, copy=False), over
    count = type.bits // 64
    if numbers.ndim == 2:
        return numbers[:, :count], over
    words = np.empty((len(numbers), count), "<u8")
    words[:, 0] = numbers.view("<u8")
    words[:, 1:] = (numbers >> 63).view("<u8")[:, None]
    return words, over


def too_wide(precision: int, numbers: Values) -> Mask | None:
    """Return which integers of shape (n,), or (n, words) least significant first, have more digits, or None."""
    bound = 10**precision
    if numbers.ndim == 1:
        return outside(numbers, 1 - bound, bound - 1)
    count = numbers.shape[1]
    top = np.ascontiguousarray(numbers[:, -1]).view("<i8")
    shift = 64 * (count - 1)
    if not len(top) or ((-bound) >> shift < int(top.min()) and int(top.max()) < bound >> shift):
        return None
    below = np.zeros(len(top), np.bool_)  # value < bound, word by word, least significant first
    above = np.zeros(len(top), np.bool_)  # value > -bound
    for i in range(count):
        word = numbers[:, i] if i < count - 1 else top
        high, low = bound >> 64 * i, (-bound) >> 64 * i
        if i < count - 1:
            high, low = high & _WORD, low & _WORD
        below = (word < high) | ((word == high) & below)
        above = (word > low) | ((word == low) & above)
    over = ~(below & above)
    return over if over.any() else None


def decimal_integers(numbers: Values) -> list[int]:
    """Return stored or unscaled decimals as Python ints."""
    if numbers.ndim == 1:
        return numbers.tolist()
    if numbers.shape[1] > 1:
        low = np.ascontiguousarray(numbers[:, 0]).view("<i8")
        if all(np.array_equal(numbers[:, i].view("<i8"), low >> 63) for i in range(1, numbers.shape[1])):
            return decimal_integers(low)
    total: list[int] = np.ascontiguousarray(numbers[:, -1]).view("<i8").tolist()
    for i in range(numbers.shape[1] - 2, -1, -1):
        total = [(high << 64) | low for high, low in zip(total, numbers[:, i].tolist(), strict=True)]
    return total


def decimal_words(type: DecimalType, integers: Sequence[int]) -> Values:
    """Return the storage of decimals from unscaled values, which must fit the type's bits."""
    if type.bits <= 64:
        return np.array(integers, type.storage)
    try:
        return stored(type, np.array(integers, "<i8"))[0]
    except OverflowError:
        size = type.bits // 8
        data = b"".join([integer.to_bytes(size, "little", signed=True) for integer in integers])
        return np.frombuffer(data, "<u8").reshape(-1, type.bits // 64)


def format_values(type: DecimalType, values: Values) -> str:
    """Format the single value of a storage as a decimal."""
    import decimal

    sign, digits, _ = decimal.Decimal(decimal_integers(values)[0]).as_tuple()
    return str(decimal.Decimal((sign, digits, -type.scale)))


# --- powers of ten ------------------------------------------------------------------------------------------------


def rescaled(numbers: Unscaled, by: int) -> tuple[Unscaled, Mask | None, Mask | None]:
    """Multiply integers by ``10 ** by``, rounding toward zero; return also which lost digits, and which overflowed.

    The values of those that overflow 256 bits are unspecified.
    """
    by = max(min(by, _FAR), -_FAR)
    if by == 0:
        return numbers, None, None
    if numbers.ndim == 1:
        if by < 0:
            return (*divided(numbers, 10**-by), None)
        result, over = multiplied(numbers, 10**by)
        if over is None:
            return result, None, None
        numbers = _widened(numbers)
    parts = [_rescaled_words(numbers[i : i + _PIECE], by) for i in range(0, len(numbers), _PIECE)]
    words, marks = (np.concatenate(part) for part in zip(*parts, strict=True))
    if by < 0:
        return words, (marks if marks.any() else None), None
    return words, None, (marks if marks.any() else None)


def _rescaled_words(words: Values, by: int) -> tuple[Values, Mask]:
    """Multiply four-word integers by ``10 ** by``; return also which lost digits (negative ``by``) or overflowed."""
    negative = words[:, -1] >> np.uint64(63) != 0
    limbs = _limbs(words, negative)
    marks = np.zeros(len(words), np.bool_)
    rest = abs(by)
    while rest:
        digits = min(rest, _CHUNK)
        rest -= digits
        factor = np.uint64(10**digits)
        carry = np.zeros(len(words), np.uint64)
        for i in range(8) if by > 0 else range(7, -1, -1):
            if by > 0:
                product = limbs[i] * factor + carry
                limbs[i], carry = product & _HALF, product >> np.uint64(32)
            else:
                dividend = (carry << np.uint64(32)) | limbs[i]
                limbs[i], carry = np.divmod(dividend, factor)
        marks |= carry != 0
        if not limbs.any():
            break
    marks |= limbs[7] >> np.uint64(31) != 0
    return _from_limbs(limbs, negative), marks


def _limbs(words: Values, negative: Mask) -> Values:
    """The magnitudes of integers as 32-bit limbs in uint64, shape (8, n), least significant first."""
    magnitudes = _negated(words, negative)
    limbs = np.empty((8, len(words)), np.uint64)
    limbs[0::2] = magnitudes.T & _HALF
    limbs[1::2] = magnitudes.T >> np.uint64(32)
    return limbs


def _from_limbs(limbs: Values, negative: Mask) -> Values:
    words = np.ascontiguousarray((limbs[0::2] | (limbs[1::2] << np.uint64(32))).T)
    return _negated(words, negative)


def _negated(words: Values, where: Mask) -> Values:
    """Negate four-word integers where ``where`` is True."""
    if not where.any():
        return words
    result = np.where(where[:, None], ~words, words)
    carry = where
    for i in range(words.shape[1]):
        result[:, i] += carry
        carry = carry & (result[:, i] == 0)
    return result


# --- conversions --------------------------------------------------------------------------------------------------

_LOST = "more digits than the scale {} keeps"
_WIDE = "more than {} digits"


def _into(target: Any, numbers: Unscaled, by: int, safe: bool) -> Outcome:
    scaled, inexact, over = rescaled(numbers, by)
    result, wide = stored(target, scaled)
    precision = _WIDE.format(target.precision)
    problems = faults(
        (inexact if safe else None, _LOST.format(target.scale), "drops them"), (over, precision), (wide, precision)
    )
    return result, problems


def decimals(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert between precisions and scales of decimals."""
    return _into(target, unscaled(source, values), target.scale - source.scale, safe)


def from_integers(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert integers to decimals."""
    if values.dtype == np.uint64 and outside(values, 0, (1 << 63) - 1) is not None:
        return _into(target, _widened(values), target.scale, safe)
    return _into(target, values.astype(np.int64), target.scale, safe)


def to_integers(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert decimals to integers, exact for whole numbers."""
    whole, inexact, over = rescaled(unscaled(source, values), -source.scale)
    info = np.iinfo(target.storage)
    if whole.ndim == 2:
        low = np.ascontiguousarray(whole[:, 0])
        low = low if target.storage.kind == "u" else low.view("<i8")
        sign = np.zeros_like(low) if target.storage.kind == "u" else low >> 63
        beyond = (whole[:, 1:] != sign.view("<u8")[:, None]).any(axis=1)
        over = beyond if over is None else over | beyond
        whole = low
    limits = f"not within {info.min} to {info.max}"
    problems = faults(
        (inexact if safe else None, "not a whole number", "drops fractions"),
        (over, limits),
        (outside(whole, info.min, info.max), limits),
    )
    return whole.astype(target.storage), problems


def to_floats(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert decimals to the nearest floats, exact if these round to the same decimals at the same scale."""
    numbers, scale, dtype = unscaled(source, values), source.scale, target.storage
    result = np.zeros(len(values), np.float64)
    is_exact = np.ones(len(values), np.bool_)
    easy = _easy(numbers, scale)
    some = numbers if easy is None else numbers[easy]
    if len(some):
        near = _scaled_floats(some.reshape(-1) if some.ndim == 1 else some[:, 0].view("<i8"), -scale)
        with np.errstate(over="ignore"):
            narrow = near.astype(dtype).astype(np.float64)
            exact = near == narrow if dtype == np.float64 else _reads_back(narrow, scale, some)
        if easy is None:
            result, is_exact = near, exact
        else:
            result[easy], is_exact[easy] = near, exact
    if easy is not None:
        hard = np.flatnonzero(~easy)
        pairs = [_float_of(number, scale, dtype) for number in decimal_integers(numbers[hard])]
        result[hard] = [pair[0] for pair in pairs]
        is_exact[hard] = [pair[1] for pair in pairs]
    with np.errstate(over="ignore"):
        floats = result.astype(dtype)
    lost = f"more digits than a {8 * dtype.itemsize}-bit float keeps"
    return floats, faults((~is_exact if safe and not is_exact.all() else None, lost, "rounds"))


def _easy(numbers: Unscaled, scale: int) -> Mask | None:
    """Mark the decimals that a single floating-point division rounds correctly; None for all."""
    if abs(scale) > _POWER:
        return np.zeros(len(numbers), np.bool_)
    if numbers.ndim == 1:
        hard = outside(numbers, 1 - _CERTAIN, _CERTAIN - 1)
        return None if hard is None else ~hard
    low = numbers[:, 0].view("<i8") if numbers.flags.c_contiguous else np.ascontiguousarray(numbers[:, 0]).view("<i8")
    fits: Mask = (numbers[:, 1:].view("<i8") == (low >> 63)[:, None]).all(axis=1)
    return fits & (low > -_CERTAIN) & (low < _CERTAIN)


def _scaled_floats(numbers: Values, by: int) -> Values:
    """Numbers, exact as floats, times ``10 ** by``, for ``abs(by) <= 22``."""
    wide = numbers.astype(np.float64)
    return wide * 10.0**by if by >= 0 else wide / 10.0**-by


def _reads_back(floats: Values, scale: int, numbers: Values) -> Mask:
    low = numbers if numbers.ndim == 1 else numbers[:, 0].view("<i8")
    return np.rint(_scaled_floats(floats, scale)) == low


def _float_of(number: int, scale: int, dtype: Any) -> tuple[float, bool]:
    """The float nearest to a decimal, and whether it rounds back to that decimal."""
    scale = max(min(scale, _FAR), -_FAR)
    try:
        near = number / 10**scale if scale >= 0 else float(number * 10**-scale)
    except OverflowError:
        return (float("inf") if number > 0 else float("-inf")), False
    with np.errstate(over="ignore"):
        near = float(dtype.type(near))
    return near, _nearest(near, scale) == number if near - near == 0 else False


def _nearest(value: float, scale: int) -> int:
    """A finite float times ``10 ** scale``, rounded to the nearest integer, halves to even."""
    up, down = value.as_integer_ratio()
    if scale >= 0:
        up *= 10**scale
    else:
        down *= 10**-scale
    whole, rest = divmod(up, down)
    return whole + (2 * rest > down or (2 * rest == down and whole & 1))


def from_floats(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert floats to the nearest decimals, exact if these round back to the same floats."""
    scale, dtype = max(min(target.scale, _FAR), -_FAR), values.dtype
    wide = values.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        scaled = np.rint(_scaled_floats(wide, scale)) if abs(scale) <= _POWER else np.full(len(wide), np.nan)
        easy = np.abs(scaled) < _CERTAIN
        numbers = np.where(easy, scaled, 0)
        back = _scaled_floats(numbers, -scale).astype(dtype) if abs(scale) <= _POWER else numbers
    is_exact = back == values
    result = numbers.astype(np.int64)
    precision = _WIDE.format(target.precision)
    if easy.all():
        storage, over = stored(target, result)
        return storage, faults(
            (~is_exact if safe and not is_exact.all() else None, _LOST.format(target.scale), "rounds"),
            (over, precision),
        )
    hard = np.flatnonzero(~easy)
    over = np.zeros(len(values), np.bool_)
    integers = []
    bound = 10**target.precision
    for slot, value in zip(hard.tolist(), wide[hard].tolist(), strict=True):
        number = _nearest(value, scale) if value - value == 0 else bound
        if over_one := not -bound < number < bound:
            number = 0
        over[slot] = over_one
        integers.append(number)
        is_exact[slot] = over_one or _float_of(number, scale, dtype)[0] == value
    try:
        result[hard] = integers
    except OverflowError:
        result = _widened(result)
        words = b"".join([number.to_bytes(32, "little", signed=True) for number in integers])
        result[hard] = np.frombuffer(words, "<u8").reshape(-1, 4)
    storage, wide_ones = stored(target, result)
    problems = faults(
        (over, precision),
        (wide_ones, precision),
        (~is_exact if safe and not is_exact.all() else None, _LOST.format(target.scale), "rounds"),
    )
    return storage, problems
