"""cotbert search-template: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_result
from pipelines.options import shared
from pipelines.runtime.progress import print_output
from pipelines.templates.options import TemplateSearchOptions

# Maximum number of rows per stage in the printed table; the file has all rows.
SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class SearchTemplate:
    options: TemplateSearchOptions
    output: shared.OutputFolder
    resume: shared.Resume = False
    verbose: shared.Verbose = False


def run(given: SearchTemplate) -> None:
    from pipelines.templates.template_search import search_template, shown_table

    result = search_template(given.options, given.output, resume=given.resume)
    print_output(shown_table(given.output, SHOWN), end="\n\n")
    print_result(result)
