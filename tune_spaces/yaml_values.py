"""YAML as users write settings in it: every value means what it looks like.

YAML 1.1, which PyYAML reads, takes 032 for 26, 1:30 for 90, 3e-5 for a text and 2026-11-30 for a
date, and of a key that occurs twice the last value.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cotbert_core.errors import UserError, first_line

_INT, _FLOAT, _DATE = (f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$")


class _Loader(yaml.SafeLoader):
    """Reads numbers in decimal notation alone, no dates, and each key of a mapping once."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node, seen = super().compose_mapping_node(anchor), set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.composer.ComposerError(
                        problem=f"{key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag not in (_INT, _FLOAT, _DATE)]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# The first pattern that fits decides: a whole number with leading zeros is a text, not a decimal.
for _tag, _pattern in (
    (_INT, _WHOLE),
    ("tag:yaml.org,2002:str", re.compile(r"[-+]?0[0-9]+$")),
    (_FLOAT, _DECIMAL),
):
    _Loader.add_implicit_resolver(_tag, _pattern, list("-+.0123456789"))


def parse_value(text: str) -> Any:
    """Return the value of a YAML text; raises yaml.YAMLError."""
    return yaml.load(text, _Loader)


def read_yaml(path: Path) -> Any:
    """Return the value in a YAML file; UserError, in words that follow the file's name."""
    try:
        return parse_value(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"it is not valid YAML{where} ({error.problem}); correct it") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or first_line(error)
        raise UserError(f"it cannot be read ({why}); give a YAML file") from None
