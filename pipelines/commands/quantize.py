"""cotbert quantize: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_facts
from pipelines.options import shared
from pipelines.options.jobs import QuantizeOptions
from pipelines.runtime.ending import print_ending


@dataclass(frozen=True, kw_only=True)
class Quantize:
    options: QuantizeOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def run(given: Quantize) -> None:
    from pipelines.evaluating.quantizing import quantize

    result = quantize(given.options, given.output)
    sentences = result.pop("sentences")
    print_facts(result, given.verbose)
    command = ("embed", given.output, "--input", given.options.inputs[0], "--output", "vectors")
    print_ending(" ".join(sentences), given.output, command)
