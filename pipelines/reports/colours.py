"""The colours of pages and plots: each has a name, and a shade for light and for dark pages.

A colour means the same in all plots of a page: blue is a trained model, orange the one that was
chosen, ink (or grey, for a bar) what it is compared with.
"""

from __future__ import annotations

import re

# Name: shade on a light page, shade on a dark page. The light shades are all different, since
# they stand for the names in what Matplotlib writes.
SHADES = {
    "page": ("#ffffff", "#15191e"),
    "box": ("#f5f7fa", "#1f2933"),
    "line": ("#e3e7eb", "#2f3944"),
    "axis": ("#9aa5b1", "#7b8794"),
    "muted": ("#616e7c", "#9aa5b2"),
    "ink": ("#1f2933", "#e4e7eb"),
    "blue": ("#2563a8", "#6aa9ec"),
    "orange": ("#c2571a", "#f4995d"),
}
PAGE, GRID, GREY = (SHADES[name][0] for name in ("page", "line", "axis"))
INK, BLUE, ORANGE = (SHADES[name][0] for name in ("ink", "blue", "orange"))

_NAMES = {light: name for name, (light, _) in SHADES.items()}
_LIGHT = re.compile(f"(?<=: )({'|'.join(_NAMES)})")


def custom_properties(dark: bool) -> str:
    """Return the CSS custom properties of all colours."""
    return " ".join(f"--{name}: {shades[dark]};" for name, shades in SHADES.items())


def by_name(svg: str) -> str:
    """Return an SVG whose colours follow the page's style; in a file of its own it is light."""
    return _LIGHT.sub(lambda found: f"var(--{_NAMES[found[0]]}, {found[0]})", svg)
