"""Tasks of MTEB by the package mteb (an extra), with data from the Hugging Face hub.

DenoSent's tasks (section Experiment) are ten of classification (its Table 2), four of reranking and
QuoraRetrieval (its Figure 3), in English, on the test split.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, first_line, require_packages
from cotbert_core.evaluation.mteb_model import MtebModel
from cotbert_core.evaluation.pairs import EncodeFunctions
from pipelines.evaluating.scoring import Scored
from pipelines.runtime.progress import say
from pipelines.runtime.ray_log import logged_from

PREFIX = "mteb"
GROUPS = {
    "classification": (
        "AmazonCounterfactualClassification",
        "AmazonReviewsClassification",
        "Banking77Classification",
        "EmotionClassification",
        "MassiveIntentClassification",
        "MassiveScenarioClassification",
        "MTOPDomainClassification",
        "MTOPIntentClassification",
        "ToxicConversationsClassification",
        "TweetSentimentExtractionClassification",
    ),
    "reranking": (
        "AskUbuntuDupQuestions",
        "MindSmallReranking",
        "SciDocsRR",
        "StackOverflowDupQuestions",
    ),
    "retrieval": ("QuoraRetrieval",),
}
DENOSENT = tuple(name for names in GROUPS.values() for name in names)
# Selecting by language would include a second English subset, which MTEB's table leaves out.
_SUBSETS = {"AmazonCounterfactualClassification": ["en"]}
# The scores of reranking and retrieval that DenoSent reports; MTEB's main scores differ.
AT_ONE = ("map_at_1", "mrr_at_1")


def split_tasks(requested: str) -> tuple[str, tuple[str, ...]]:
    """Return a list of tasks split into SentEval's and MTEB's.

    All names after `mteb:` are MTEB's, which also has tasks called STS12; `mteb` alone means all of
    DenoSent's tasks.
    """
    own, names = list[str](), list[str]()
    items = [item.strip() for item in requested.split(",")]
    while items:
        item = items.pop(0)
        if item == PREFIX:
            names += DENOSENT
        elif item.startswith(f"{PREFIX}:"):
            items.insert(0, item.removeprefix(f"{PREFIX}:").lstrip())
            names += [name for i in items for name in GROUPS.get(i, (i,))]
            break
        else:
            own.append(item)
    return ",".join(own), tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class MtebTasks:
    """Tasks with their data."""

    tasks: tuple[Any, ...]

    def score_into(self, scored: Scored, encode: EncodeFunctions) -> None:
        """Add an entry mteb/NAME for each task, and mteb_TYPE_average for types with several."""
        model = MtebModel(encode)
        types: dict[str, list[str]] = {}
        for task in self.tasks:
            say(f"mteb {task.metadata.name}")
            name = f"{PREFIX}/{task.metadata.name}"
            scored.add(name, _entry(task, _evaluate(model, task)), np.empty(0))
            types.setdefault(task.metadata.type.lower(), []).append(name)
        for kind, names in types.items():
            if len(names) > 1:
                scored.add_average(f"{PREFIX}_{kind}_average", names)


def open_tasks(names: Sequence[str], allow_missing: bool) -> MtebTasks:
    """Return the tasks with their data, which stay in memory (most of it mapped) for all models.

    Raises UserError for a missing package, unknown names, and data that cannot be loaded; with
    allow_missing, tasks without data are skipped with a warning.
    """
    require_packages("a task of MTEB", ["mteb"], "mteb")
    tasks = [_task(name) for name in names]
    missing: dict[str, str] = {}
    for task in tasks:
        if why := _load(task):
            missing[task.metadata.name] = why
        if missing and (not allow_missing or len(missing) == len(tasks)):
            last = "leave out the tasks" if allow_missing else "skip the task with --allow-missing"
            raise UserError(
                f"data of MTEB's {', '.join(missing)} cannot be loaded ({why}): run with access to "
                f"the Hugging Face hub, set HF_HOME to a cache that has the data, or {last}"
            )
    if missing:
        say(f"warning: skipped {', '.join(missing)}: data cannot be loaded from the hub")
    return MtebTasks(tuple(task for task in tasks if task.metadata.name not in missing))


def _task(name: str) -> Any:
    import mteb

    subsets = _SUBSETS.get(name)
    with _quiet():
        try:
            task = mteb.get_task(name, languages=["eng"], hf_subsets=subsets)
        except KeyError as error:
            hint = str(error.args[0]).partition("found")[2].strip(" .")
            raise UserError(
                f"MTEB has no task {name!r}{f' ({hint})' if hint else ''}: choose one of "
                f"{', '.join(GROUPS)} or a task's own name"
            ) from None
        except ValueError as error:
            raise UserError(f"MTEB's {name} has no English part ({error}): leave it out") from None
        if "test" in task.eval_splits:
            task.filter_eval_splits(["test"])
    if task.metadata.modalities != ["text"]:
        raise UserError(f"MTEB's {name} needs other data than text: leave it out")
    return task


def _load(task: Any) -> str | None:
    """Load a task's data; return None, or the reason of the failure."""
    with _quiet():
        try:
            task.load_data()
        except Exception as error:  # errors of the hub, the network or the data set's files
            return first_line(error).rstrip(".")
    return None


def _evaluate(model: MtebModel, task: Any) -> Any:
    import mteb

    with _quiet():
        result = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
    return result.task_results[0]


def _entry(task: Any, result: Any) -> dict[str, Any]:
    """Return main_score x 100 over subsets and splits, its metric, and DenoSent's scores."""
    parts = [part for parts in result.scores.values() for part in parts]
    at_one = {
        key: 100 * float(np.mean([part[key] for part in parts]))
        for key in AT_ONE
        if all(key in part for part in parts)
    }
    main_score = 100 * float(np.mean([part["main_score"] for part in parts]))
    return {"main_score": main_score, "metric": task.metadata.main_score, **at_one}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence mteb's advice about newer versions of tasks, batch sizes and metadata."""
    with logged_from(logging.getLogger("mteb"), logging.ERROR), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
