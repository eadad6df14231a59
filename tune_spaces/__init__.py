"""Search spaces: what `cotbert tune` varies, each under a name or in a file of the user's.

A space knows nothing of training: it says which settings of a recipe take which values, by Ray
Tune's sampling functions. Whoever runs it makes settings of a sample by `changes`.
"""

from tune_spaces.builtin_spaces import SPACES
from tune_spaces.search_space import (
    VARIANT,
    Space,
    changes,
    corners,
    describe,
    label,
    param_space,
    published_figure,
    size,
)
from tune_spaces.user_spaces import open_space

__all__ = [
    "SPACES",
    "VARIANT",
    "Space",
    "changes",
    "corners",
    "describe",
    "label",
    "open_space",
    "param_space",
    "published_figure",
    "size",
]
