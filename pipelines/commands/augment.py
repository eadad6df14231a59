"""cotbert augment: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.augmenting.options import AugmentOptions
from pipelines.commands.printing import print_result
from pipelines.options import shared


@dataclass(frozen=True, kw_only=True)
class Augment:
    options: AugmentOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def run(given: Augment) -> None:
    from pipelines.augment import augment

    print_result(augment(given.options, given.output, given.verbose))
