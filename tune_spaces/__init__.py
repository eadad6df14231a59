"""Search spaces: the settings that `cotbert tune` varies, by name or in a user's file.

A space has no training code: it gives the values of a recipe's settings. `changes` turns a sample
into settings.
"""

from tune_spaces.builtin_spaces import SPACES
from tune_spaces.search_space import VARIANT, Space, axes_of, changes, corners, size
from tune_spaces.user_spaces import open_space

__all__ = [
    "SPACES",
    "VARIANT",
    "Space",
    "axes_of",
    "changes",
    "corners",
    "open_space",
    "size",
]
