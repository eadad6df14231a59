"""The commands that make another folder of an encoder: export, quantize and merge."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_facts, print_result
from pipelines.options import shared
from pipelines.options.jobs import ExportOptions, MergeOptions, QuantizeOptions
from pipelines.runtime.ending import print_ending, reading_words, rows_again


@dataclass(frozen=True, kw_only=True)
class Export:
    options: ExportOptions
    output: shared.OutputFolder
    verbose: bool = shared.VERBOSE.field(False)


def export(given: Export) -> None:
    from pipelines.exporting.export import export

    print_result(export(given.options, given.output))


@dataclass(frozen=True, kw_only=True)
class Quantize:
    options: QuantizeOptions
    output: shared.OutputFolder
    verbose: bool = shared.VERBOSE.field(False)


def quantize(given: Quantize) -> None:
    from pipelines.exporting.quantize import quantize

    result = quantize(given.options, given.output)
    sentences = result.pop("sentences")
    print_facts(result, given.verbose)
    options = given.options
    rows = rows_again(options.inputs, options.text_column)
    reading = reading_words({"encoding": options.encoding, "delimiter": options.delimiter})
    print_ending(
        " ".join(sentences),
        given.output,
        ("embed", given.output, "--input", *rows, *reading, "--output", "vectors"),
    )


@dataclass(frozen=True, kw_only=True)
class Merge:
    options: MergeOptions
    output: shared.OutputFolder
    verbose: bool = shared.VERBOSE.field(False)


def merge(given: Merge) -> None:
    from pipelines.adapting.merging import merge_tracked

    result = merge_tracked(given.options, given.output)
    print_facts(result, given.verbose)
    asked = ("evaluate", given.options.first, given.output)
    print_ending("The average of both encoders is written.", given.output, asked)
