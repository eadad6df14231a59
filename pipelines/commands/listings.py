"""cotbert recipes, cotbert spaces and cotbert templates: list the names, or print one entry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.commands.printing import print_texts
from pipelines.options.declare import Option

if TYPE_CHECKING:
    from tune_spaces import Space

# Number of points of a space that are checked; of a larger one, each pair of values is.
CHECKED = 100


@dataclass(frozen=True, kw_only=True)
class Recipes:
    recipe: str | None = Option(
        "print the settings of this recipe", "RECIPE", positional=True, default="list all recipes"
    ).field(None)

    def run(self) -> None:
        from cotbert_core.errors import unknown
        from cotbert_core.settings import flatten
        from pipelines.recipes import RECIPES

        if self.recipe is None:
            rows = [(name, (recipe.__doc__ or "").strip()) for name, recipe in RECIPES.items()]
            print_texts(rows)
        elif self.recipe in RECIPES:
            print_texts([(k, json.dumps(v)) for k, v in flatten(RECIPES[self.recipe]()).items()])
        else:
            raise unknown("recipe", self.recipe, RECIPES)


@dataclass(frozen=True, kw_only=True)
class Spaces:
    space: str | None = Option(
        "print what this space varies: a name, or a YAML or Python file of your own",
        "SPACE",
        positional=True,
        path="name",
        default="list all spaces",
    ).field(None)

    def run(self) -> None:
        from tune_spaces import SPACES, open_space

        if self.space is not None:
            space = open_space(self.space)
            _check_settings(space)
            print_texts(_space_rows(space))
            return
        made = [make() for make in SPACES.values()]
        rows = [(space.name, _size(space), space.recipe, space.purpose) for space in made]
        print_texts([("space", "size", "recipe", "purpose"), *rows])


@dataclass(frozen=True, kw_only=True)
class Templates:
    def run(self) -> None:
        from cotbert_core.templates.template_texts import TEMPLATES

        print_texts([(name, template.text) for name, template in TEMPLATES.items()])


def _check_settings(space: Space) -> None:
    """Raise UserError for an unknown recipe, or a setting that is unknown or has a wrong value."""
    from cotbert_core.settings import override
    from pipelines.recipes import settings_for
    from tune_spaces.search_space import changes, enough_corners

    base = settings_for(space.recipe, None, [], {})
    for point in enough_corners(space, CHECKED):
        override(base, changes(space, point))


def _size(space: Space) -> str:
    """Return the number of different trials of a space."""
    from tune_spaces import size

    count = size(space)
    return "continuous" if count is None else str(count)


def _space_rows(space: Space) -> list[tuple[str, str]]:
    """Return the axes of a space's settings, then the settings of each variant."""
    rows = [
        ("space", space.name),
        ("purpose", space.purpose),
        ("recipe", space.recipe),
        ("size", _size(space)),
        *((path, str(axis)) for path, axis in space.settings.items()),
    ]
    for name, variant in space.variants.items():
        values = (f"{path}={json.dumps(value, default=str)}" for path, value in variant.items())
        rows.append((f"variant {name}", "  ".join(values)))
    if space.published:
        figures = "; ".join(f"{key}: {figure:.2f}" for key, figure in space.published.items())
        rows.append(("published", figures + (f" ({space.source})" if space.source else "")))
    return rows
