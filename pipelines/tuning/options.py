"""The options of `cotbert tune`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cotbert_core.errors import UserError, unknown
from pipelines.recording.registry import check_registry
from pipelines.tuning.optuna_plan import OPTUNA, OptunaPlan, check_optuna
from pipelines.tuning.run_trials import Stopping
from pipelines.tuning.trial_plan import GRID, TrialPlan, sampled_plan
from tune_spaces import Space

# How trials are chosen: the grid with random samples from ranges, or Optuna.
SEARCHES: dict[str, Callable[..., TrialPlan]] = {GRID: sampled_plan, OPTUNA: OptunaPlan}


@dataclass(frozen=True)
class TuneOptions:
    """The space to search and how. Raises UserError for an invalid value.

    trials: number of samples of the space (None: all points of a grid, 12 of other spaces). seeds:
    each sample is trained with every seed. draw_seed: seed of the sampling. max_concurrent: most
    trials at a time, None for as many as fit. stopping: early stopping, None to let every trial run
    to its end. register: the best model's name in MLflow's registry. search: one of SEARCHES.
    """

    space: Space
    recipe: str
    trials: int | None = None
    seeds: tuple[int, ...] = (0,)
    draw_seed: int = 0
    max_concurrent: int | None = None
    stopping: Stopping | None = None
    register: str | None = None
    search: str = GRID

    def __post_init__(self) -> None:
        if self.search not in SEARCHES:
            raise unknown("search", self.search, SEARCHES)
        if self.search == OPTUNA:
            check_optuna()
        if self.trials is not None and self.trials < 1:
            raise UserError(f"trials is {self.trials}: give at least 1")
        if self.register is not None:
            check_registry(self.register)
