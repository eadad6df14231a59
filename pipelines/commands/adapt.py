"""cotbert adapt: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.adapting.options import AdaptOptions
from pipelines.options import shared
from pipelines.runtime.progress import print_output


@dataclass(frozen=True, kw_only=True)
class Adapt:
    options: AdaptOptions
    kept: shared.KeptFiles
    output: shared.JobFolder

    def run(self) -> None:
        from pipelines.adapting.adapt import adapt
        from pipelines.adapting.report import summary

        result = adapt(self.options, self.output, kept=self.kept)
        print_output(summary(result, self.options, self.output))
