"""cotbert recipes, cotbert templates and cotbert spaces: tables of what there is."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from pipelines.commands.options import Arguments
from pipelines.commands.printing import print_texts

if TYPE_CHECKING:
    from tune_spaces import Space


def recipes_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", metavar="RECIPE", help="print this one's settings")


def recipes(arguments: Arguments) -> None:
    from cotbert_core.errors import unknown
    from cotbert_core.settings import flatten
    from pipelines.recipes import RECIPES

    if arguments.name is None:
        rows = [(name, (recipe.__doc__ or "").strip()) for name, recipe in RECIPES.items()]
        print_texts(rows)
    elif arguments.name in RECIPES:
        print_texts([(k, json.dumps(v)) for k, v in flatten(RECIPES[arguments.name]()).items()])
    else:
        raise unknown("recipe", arguments.name, RECIPES)


def templates(arguments: Arguments) -> None:
    from cotbert_core.templates.template_texts import TEMPLATES

    print_texts([(name, template.text) for name, template in TEMPLATES.items()])


def spaces_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "name", nargs="?", metavar="SPACE", help="print this one, or a YAML or Python file's"
    )


def spaces(arguments: Arguments) -> None:
    from tune_spaces import SPACES, open_space

    if arguments.name is not None:
        print_texts(_space_rows(open_space(arguments.name)))
        return
    made = [make() for make in SPACES.values()]
    rows = [(space.name, _size(space), space.recipe, space.purpose) for space in made]
    print_texts([("space", "size", "recipe", "purpose"), *rows])


def _size(space: Space) -> str:
    """How many different trials it has."""
    from tune_spaces import size

    count = size(space)
    return "continuous" if count is None else str(count)


def _space_rows(space: Space) -> list[tuple[str, str]]:
    """What a space varies: its settings' axes, then the settings of each variant."""
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
        rows.append(("published", f"{figures} ({space.source})"))
    return rows


def no_options(command: argparse.ArgumentParser) -> None:
    pass
