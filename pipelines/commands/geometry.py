"""cotbert geometry: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.evaluating.options import GeometryOptions
from pipelines.options import shared


@dataclass(frozen=True, kw_only=True)
class Geometry:
    options: GeometryOptions
    output: shared.OutputFolder

    def run(self) -> None:
        from pipelines.evaluating.geometry import geometry
        from pipelines.evaluating.geometry_page import header, table_rows
        from pipelines.runtime.ending import places
        from pipelines.runtime.progress import print_output, table

        result = geometry(self.options, self.output)
        print_output(table(table_rows(result), header(result)))
        print_output("\n" + places(self.output))
