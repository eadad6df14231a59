"""cotbert tokens and cotbert token-map: their options, and the calls of their jobs."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_result
from pipelines.options import shared
from pipelines.runtime.progress import print_output
from pipelines.templates.options import TokenMapOptions, TokensOptions

HEADER = ("sentence", "top tokens", "after template denoising")


@dataclass(frozen=True, kw_only=True)
class Tokens:
    options: TokensOptions
    verbose: shared.Verbose = False


def tokens(given: Tokens) -> None:
    from pipelines.templates.mask_predictions import token_rows, top_tokens_of

    lines = [HEADER, *token_rows(top_tokens_of(given.options))]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    lines.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2]))
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print_output("  ".join(cells).rstrip())


@dataclass(frozen=True, kw_only=True)
class TokenMap:
    options: TokenMapOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def token_map(given: TokenMap) -> None:
    from pipelines.templates.mask_predictions import token_map

    print_result(token_map(given.options, given.output))
