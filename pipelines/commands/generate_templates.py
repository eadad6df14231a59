"""cotbert generate-templates: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_result
from pipelines.options import shared
from pipelines.templates.options import GenerateOptions


@dataclass(frozen=True, kw_only=True)
class GenerateTemplates:
    options: GenerateOptions
    output: shared.OutputFile
    verbose: shared.Verbose = False


def run(given: GenerateTemplates) -> None:
    from pipelines.templates.template_generation import generate_templates

    print_result(generate_templates(given.options, given.output))
