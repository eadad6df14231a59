"""cotbert recipes and cotbert templates: tables of what there is."""

from __future__ import annotations

import argparse
import json

from pipelines.commands.options import Arguments
from pipelines.commands.printing import print_texts


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
    from cotbert_core.templates import TEMPLATES

    print_texts([(name, template.text) for name, template in TEMPLATES.items()])


def no_options(command: argparse.ArgumentParser) -> None:
    pass
