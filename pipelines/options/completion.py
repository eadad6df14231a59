"""Scripts with which shells complete commands, options, files and names, by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.options.declare import Declared
from pipelines.options.parser import add_arguments

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")


def completion_script(shell: str, program: str, models: Mapping[str, tuple[str, type]]) -> str:
    """Return the script for a shell. models: the help line and the options of each command."""
    import shtab

    from pipelines.recipes import RECIPES
    from tune_spaces import SPACES

    names = {"recipe": [*RECIPES], "entries": [*RECIPES], "space": [*SPACES]}

    def complete(one: Declared, action: Any) -> None:
        if one.field in names:
            action.choices = names[one.field]
        elif one.kind is Path or one.option.path:
            action.complete = shtab.FILE

    parser = argparse.ArgumentParser(prog=program)
    commands = parser.add_subparsers()
    for name, (line, model) in models.items():
        command = commands.add_parser(name, help=line.replace("%", "%%"), add_help=False)
        add_arguments(command, model, on_added=complete)
    return str(shtab.complete(parser, shell))
