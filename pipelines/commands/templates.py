"""The commands about templates and the tokens at their masks: their options, and their jobs."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_result, print_texts
from pipelines.options import shared
from pipelines.options.declare import Option
from pipelines.runtime.progress import print_output
from pipelines.templates.options import (
    GenerateOptions,
    TemplateSearchOptions,
    TokenMapOptions,
    TokensOptions,
)

HEADER = ("sentence", "top tokens", "after template denoising")
# Maximum number of rows per stage in the printed table of a search; the file has all rows.
SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Tokens:
    options: TokensOptions

    def run(self) -> None:
        from pipelines.templates.mask_predictions import top_tokens_of

        rows = top_tokens_of(self.options)
        lines = [(row.sentence, ", ".join(row.plain), ", ".join(row.denoised)) for row in rows]
        print_texts([HEADER, *lines])


@dataclass(frozen=True, kw_only=True)
class TokenMap:
    options: TokenMapOptions
    output: shared.OutputFolder

    def run(self) -> None:
        from pipelines.templates.mask_predictions import token_map

        print_result(token_map(self.options, self.output))


@dataclass(frozen=True, kw_only=True)
class SearchTemplate:
    options: TemplateSearchOptions
    output: shared.OutputFolder
    resume: bool = Option("", obsolete="an interrupted search starts again").field(False)

    def run(self) -> None:
        from pipelines.templates.template_ledger import search_table
        from pipelines.templates.template_search import search_template

        result = search_template(self.options, self.output)
        print_output(search_table(result.pop("rows"), result["best_template"], SHOWN), end="\n\n")
        print_result(result)


@dataclass(frozen=True, kw_only=True)
class GenerateTemplates:
    options: GenerateOptions
    output: shared.OutputFile

    def run(self) -> None:
        from pipelines.templates.template_generation import generate_templates

        print_result(generate_templates(self.options, self.output))
