"""Give Ray Tune the trials of a plan, one whenever resources are free."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from cotbert_core.settings import override
from pipelines.tuning.state import ENDED, status_of
from pipelines.tuning.trial import RUN_NAME, SETTINGS, TRIAL
from pipelines.tuning.trial_plan import TrialPlan


class PlanSearcher(Searcher):  # type: ignore[misc]
    """Suggest the known trials that have not ended, then new trials of the plan.

    cpus: number of cores of each worker. Ray Tune's reports are ignored: the outcome of a trial is
    read from its folder.
    """

    def __init__(self, plan: TrialPlan, folder: Path, cpus: int | None) -> None:
        super().__init__()
        self._plan, self._cpus = plan, cpus
        self._known = deque(
            trial for trial in plan.trials.values() if status_of(folder / trial.name) not in ENDED
        )
        self.left = len(self._known) + plan.total - len(plan.trials)

    def suggest(self, trial_id: str) -> Any:
        trial = self._known.popleft() if self._known else self._plan.grow()
        if trial is None:
            return Searcher.FINISHED
        settings = override(trial.settings, {"cpus_per_worker": self._cpus})
        run_name = f"{trial.name} {trial.description}"
        return {TRIAL: trial.name, SETTINGS: settings.model_dump(), RUN_NAME: run_name}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None: ...

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...
