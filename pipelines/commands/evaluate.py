"""cotbert evaluate: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pipelines.commands.printing import print_differences, print_scores
from pipelines.evaluating.options import MODELS, EvaluateOptions
from pipelines.options.declare import OUTPUT, Option


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    models: Annotated[
        tuple[str, ...],
        replace(MODELS, help=f"{MODELS.help}; later ones are compared with the first"),
    ]
    options: EvaluateOptions
    output: Path | None = Option(
        "write the scores into this JSON file", "FILE", group=OUTPUT, default="no file"
    ).field(None)
    report: tuple[Path, ...] = Option(
        "write the scores beside published ones as a page (.html) or a Markdown table (.md); "
        "may be repeated",
        "FILE",
        group=OUTPUT,
        append=True,
        default="no report",
    ).field(())

    def run(self) -> None:
        from pipelines.evaluating.evaluate import evaluate, evaluate_several
        from pipelines.evaluating.model_specs import options_of_model

        several = [options_of_model(self.options, model) for model in self.models]
        show = print_scores if len(several) == 1 else print_differences
        files: dict[str, Any] = {"output": self.output, "reports": self.report, "on_failure": show}
        if len(several) == 1:
            show(evaluate(several[0], **files))
        else:
            show(evaluate_several(several, **files))
