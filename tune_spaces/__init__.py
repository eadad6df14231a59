"""Search spaces: what `cotbert tune` varies, each under a name or in a file of the user's.

A space knows nothing of training: it says which settings of a recipe take which values. Whoever
runs it makes settings of a sample by `changes`.
"""

from tune_spaces.builtin_spaces import SPACES
from tune_spaces.search_space import (
    VARIANT,
    Space,
    axes_of,
    changes,
    corners,
    label,
    published_figure,
    size,
)
from tune_spaces.user_spaces import open_space

__all__ = [
    "SPACES",
    "VARIANT",
    "Space",
    "axes_of",
    "changes",
    "corners",
    "label",
    "open_space",
    "published_figure",
    "size",
]
