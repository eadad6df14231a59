"""The output files of `cotbert evaluate`: JSON, a Markdown table, an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.files import write_json, write_text
from pipelines.evaluating.tables import Model
from pipelines.recording.tracking import Run
from pipelines.storage.output_folder import require_new_file

REPORTS = (".html", ".md")
Show = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Files:
    """The files to write.

    output: the JSON file. reports: files with a suffix of REPORTS. on_failure: shows the scores,
    which may have taken hours, if the disk is too full for the files.
    """

    output: Path | None
    reports: tuple[Path, ...]
    on_failure: Show | None = None

    @classmethod
    def checked(
        cls, output: Path | None, reports: Sequence[Path], on_failure: Show | None = None
    ) -> Files:
        """Return the files with absolute paths; UserError for an existing or repeated file, or a
        report with an unknown suffix."""
        for path in reports:
            if path.suffix.lower() not in REPORTS:
                raise UserError(
                    f"report {str(path)!r} ends in {path.suffix or 'nothing'}: give a file that "
                    f"ends in {' or '.join(REPORTS)}"
                )
        files = cls(
            require_new_file(output) if output else None,
            tuple(map(require_new_file, reports)),
            on_failure,
        )
        named = [path for path in (files.output, *files.reports) if path]
        if len(set(named)) < len(named):
            raise UserError(
                f"a file is given twice in {', '.join(map(str, named))}: give each its own name"
            )
        return files

    def write(self, run: Run, result: dict[str, Any], models: Sequence[Model]) -> None:
        """Write the files and log them to the run; show the result if that fails."""
        try:
            if self.output is not None:
                write_json(self.output, result)
                run.artifact(self.output)
            for path in self.reports:
                from pipelines.evaluating import pages  # matplotlib

                page = pages.evaluation_page if path.suffix.lower() == ".html" else pages.markdown
                write_text(path, page(result, models))
                run.artifact(path)
        except Exception:
            if self.on_failure is not None:
                self.on_failure(result)
            raise
