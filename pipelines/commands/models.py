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

    def run(self) -> None:
        from pipelines.exporting.export import export

        print_result(export(self.options, self.output))


@dataclass(frozen=True, kw_only=True)
class Quantize:
    options: QuantizeOptions
    output: shared.OutputFolder

    def run(self) -> None:
        from pipelines.exporting.quantize import quantize

        result = quantize(self.options, self.output)
        sentences = result.pop("sentences")
        print_facts(result)
        options = self.options
        rows = rows_again(options.inputs, options.text_column)
        reading = reading_words({"encoding": options.encoding, "delimiter": options.delimiter})
        print_ending(
            " ".join(sentences),
            self.output,
            ("embed", self.output, "--input", *rows, *reading, "--output", "vectors"),
        )


@dataclass(frozen=True, kw_only=True)
class Merge:
    options: MergeOptions
    output: shared.OutputFolder

    def run(self) -> None:
        from pipelines.adapting.merging import merge_tracked

        result = merge_tracked(self.options, self.output)
        print_facts(result)
        asked = ("evaluate", self.options.first, self.output)
        print_ending("The average of both encoders is written.", self.output, asked)
