"""The options of `cotbert tune`. The command line imports this file: nothing heavy at its top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cotbert_core.errors import UserError, require_packages
from pipelines.options import shared
from pipelines.options.checks import at_least
from pipelines.options.declare import OUTPUT, SEARCH, TRAINING, Option
from tune_spaces import Space, open_space

# How trials are chosen: a grid with random samples of ranges, or by Optuna.
Search = Literal["grid", "optuna"]


@dataclass(frozen=True)
class Stopping:
    """Asynchronous successive halving (Li et al., MLSys 2020).

    At steps grace, grace x factor, grace x factor^2, ... a trial continues only if it is among the
    best 1/factor of the trials that have reached that step.
    """

    grace: int
    factor: int = 3

    def __post_init__(self) -> None:
        if self.grace < 1:
            raise UserError(f"asha is {self.grace}: give at least 1 step")
        if self.factor < 2:
            raise UserError(f"reduction is {self.factor}: give at least 2")


@dataclass(frozen=True)
class TuneOptions:
    """The trials to run. recipe: the space's own if it is empty."""

    space: Annotated[
        Space,
        Option(
            "search this space: a name from `cotbert spaces`, or a YAML or Python file of your own",
            "SPACE",
            positional=True,
            path="name",
            convert=open_space,
        ),
    ]
    recipe: str = Option(
        "train by this recipe, see `cotbert recipes`",
        "RECIPE",
        group=TRAINING,
        default="the space's own",
    ).field("")
    trials: int | None = Option(
        "run this many trials",
        "N",
        group=SEARCH,
        unit="trials",
        default="all of a grid; 12 of a space with ranges, or more if its grids have more points; "
        "12 of optuna, or all of a smaller space",
    ).field(None)
    seeds: tuple[int, ...] | None = shared.SEEDS.field(None)
    draw_seed: int = Option(
        "sample the trials with this seed",
        "N",
        group=SEARCH,
        flag="--sampling-seed",
        old_flags=("--draw-seed",),
    ).field(0)
    max_concurrent: int | None = shared.MAX_CONCURRENT.field(None)
    stopping: Stopping | None = Option(
        "stop weak trials (ASHA): after this many steps, and again after 3 times, 9 times, ... "
        "as many, only the best third continues",
        "STEPS",
        group=SEARCH,
        flag="--asha",
        unit="steps",
        default="every trial runs to its end",
        kind=int,
        convert=Stopping,
    ).field(None)
    register: str | None = Option(
        "register the best model in MLflow as models:/NAME@best",
        "NAME",
        group=OUTPUT,
        default="no registration",
    ).field(None)
    search: Search = Option(
        "choose trials from the space's grid, with ranges sampled at random, or let Optuna "
        "choose them by the scores of earlier trials",
        group=SEARCH,
    ).field("grid")

    def __post_init__(self) -> None:
        from pipelines.recording.registry import check_registry

        object.__setattr__(self, "recipe", self.recipe or self.space.recipe)
        if self.search == "optuna":
            require_packages("search 'optuna'", ["optuna"], "optuna")
        at_least(self, 1, "trials")
        if self.register is not None:
            check_registry(self.register)
