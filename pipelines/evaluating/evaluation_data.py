"""The data to score encoders on: SentEval and MTEB tasks, graded pairs, held-out documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cotbert_core.errors import UserError
from cotbert_core.evaluation.held_out import HeldOut, HeldOutScores, score_keywords
from cotbert_core.evaluation.labelled import Labelled, nearest_labels
from cotbert_core.evaluation.pairs import EncodeFunctions, Pairs, score_pairs
from cotbert_core.evaluation.searches import score_searches
from pipelines.evaluating.counting import read_splits
from pipelines.evaluating.evaluation_tasks import Tasks, choose_tasks
from pipelines.evaluating.labelled_texts import read_labelled
from pipelines.evaluating.mteb_tasks import MtebTasks, open_tasks, split_tasks
from pipelines.evaluating.options import READING, EvaluateOptions
from pipelines.evaluating.scoring import Scored, add_held_out, add_labelled, add_pairs
from pipelines.evaluating.transforms import sample_file, sample_name
from pipelines.storage.held_out_file import read_held_out
from pipelines.training.dev_sets import BUILT_IN_PAIRS

# With fewer resamples the 2.5th percentile would be one of the two lowest.
LEAST_RESAMPLES = 100


@dataclass(frozen=True)
class EvaluationData:
    """The tasks and pairs to score, read before any encoder is opened.

    held_out: the test queries of held-out documents. dev: their dev queries, by which the weight of
    keyword search is chosen.
    """

    tasks: Tasks | None
    pairs: dict[str, Pairs]
    mteb: MtebTasks | None = None
    held_out: HeldOut | None = None
    dev: HeldOut | None = None
    labelled: Labelled | None = None

    @cached_property
    def by_keywords(self) -> HeldOutScores:
        """The scores of keyword search in the held-out documents, equal for all models."""
        assert self.held_out is not None
        return score_keywords(self.held_out)

    def sentences(self) -> list[str]:
        """Return all distinct texts of the SentEval tasks, the pairs and the documents."""
        own = [s for p in self.pairs.values() for s in (*p.left, *p.right)]
        if self.held_out is not None:
            own += [*self.held_out.queries, *self.held_out.targets]
        if self.labelled is not None:
            own += self.labelled.texts
        return list(dict.fromkeys([*(self.tasks.sentences() if self.tasks else ()), *own]))

    def score(self, encode: EncodeFunctions, resamples: int) -> Scored:
        """Return the scores of the tasks, their averages, the pairs and the documents."""
        scored, texts = Scored(), encode.texts
        if self.tasks is not None:
            self.tasks.score_into(scored, texts, resamples)
        splits = {name: (score_pairs(texts, p), p) for name, p in self.pairs.items()}
        add_pairs(scored, splits, resamples)
        if self.held_out is not None:
            found = score_searches(encode, self.held_out, self.dev)
            add_held_out(scored, self.held_out, self.by_keywords, found, resamples)
        if self.labelled is not None:
            add_labelled(scored, self.labelled, nearest_labels(texts, self.labelled), resamples)
        if self.mteb is not None:
            self.mteb.score_into(scored, encode)
        return scored


def only_mteb(options: EvaluateOptions) -> bool:
    """Return whether only tasks of MTEB are scored, which have no intervals."""
    own, mteb = split_tasks(options.tasks or "sts")
    others = (options.pairs, options.corpus, options.labelled)
    return bool(mteb) and not own and others == (None, None, None)


def read_evaluation_data(
    options: EvaluateOptions, labelled: Labelled | None = None
) -> EvaluationData:
    """Read the tasks and pairs; UserError if they are missing. labelled: texts that stand for those
    of options.labelled."""
    if 0 < options.resamples < LEAST_RESAMPLES or options.resamples < 0:
        raise UserError(
            f"resamples is {options.resamples}: give at least {LEAST_RESAMPLES}, or 0 for none"
        )
    folder, (own, mteb) = options.senteval, split_tasks(options.tasks or "sts")
    if options.tasks is not None and own and folder is None:
        raise UserError(f"tasks is {options.tasks!r} without a SentEval folder: give --senteval")
    if not own and folder is not None:
        raise UserError(
            f"senteval is {str(folder)!r} and tasks is {options.tasks!r}, none of which is in that "
            "folder: leave --senteval out, or name tasks of it too"
        )
    sample = sample_file(options)
    unread = READING if options.labelled is None and not sample else ()
    for name in unread:
        if given := getattr(options, name):
            raise UserError(
                f"{name} is {given!r} and concerns the files of --labelled, --whiten, --rank and "
                "--flow: give one of them, or leave it out"
            )
    if mteb and sample_name(options) is not None:
        raise UserError(
            "MTEB's tasks cannot be whitened, ranked or mapped by a flow: leave --whiten, --rank, "
            "--flow or mteb out"
        )
    tasks = choose_tasks(folder, own, options.allow_missing) if folder and own else None
    held_out = dev = None
    if options.corpus is not None:
        held_out = read_held_out(options.corpus, "test")
        dev = read_held_out(options.corpus, "dev", least=0)
    labelled = labelled or read_labelled(options, also=sample)
    others = (tasks, mteb, held_out, labelled)
    use_pairs = options.pairs is not None or not any(others)
    pairs = read_splits(options.pairs or BUILT_IN_PAIRS) if use_pairs else {}
    opened = open_tasks(mteb, options.allow_missing) if mteb else None
    return EvaluationData(tasks, pairs, opened, held_out, dev or None, labelled)
