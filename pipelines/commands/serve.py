"""cotbert serve: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.serving.options import ServeOptions


@dataclass(frozen=True, kw_only=True)
class Serve:
    options: ServeOptions

    def run(self) -> None:
        from pipelines.serving.service import serve_model

        serve_model(self.options)
