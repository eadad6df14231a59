"""Values as reports show them, in the spelling of the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

# What stands for a score that is not defined: a correlation of equal cosines.
UNDEFINED = "undefined"


def as_typed(value: Any, digits: int | None = None) -> str:
    """Return a value as a user types it: null, true, 2e-5, a,b.

    digits: significant digits of a number with a fraction; None for all.
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return _number(value, digits)
    if isinstance(value, (list, tuple)):
        return ",".join(as_typed(item, digits) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def rounded(value: float) -> str:
    """Return a number with four digits or all before the point, and no power of ten above 1;
    UNDEFINED for NaN."""
    if math.isnan(value):
        return UNDEFINED
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def score_text(value: float | None) -> str:
    """Return a score with two digits after the point, UNDEFINED for NaN, and nothing for None."""
    if value is None:
        return ""
    return UNDEFINED if math.isnan(value) else f"{value:.2f}"


def p_value(value: float) -> str:
    """Return a p-value with three digits after the point, or that it is smaller than those show."""
    return "<0.001" if value < 0.0005 else f"{value:.3f}"


def _number(value: float, digits: int | None) -> str:
    if value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    if digits is None:
        shown = repr(value)
    else:
        small = 0 < abs(value) < 1e-3
        shown = f"{value:.{digits - 1}e}" if small else f"{value:.{digits}g}"
    mantissa, exponential, exponent = shown.partition("e")
    if exponential and "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}" if exponential else mantissa
