"""Run each method of rewriting over the parts of a corpus.

A job is a method that is ready to run; its constructor raises UserError for anything invalid.
record: everything that determines the rewrites; a run only continues one with an equal record.
folders: the folders that workers read; none if this process does the work. run: writes the named
parts, and calls `report` with numbers of finished rows. manifest_entries: returns the method's
entries of manifest and result, from the counts of all parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.augmenting.back_translation import BackTranslator, Translation, plan_translation
from pipelines.augmenting.ledger import read_ledger
from pipelines.augmenting.llm_options import LlmRewriting
from pipelines.augmenting.options import BackTranslation
from pipelines.augmenting.parts import PartPlan, Report, augment_part
from pipelines.runtime.message_queue import message_queue
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.shard_tasks import map_shards_with_actors, report_workers, runs_alone
from pipelines.runtime.worker_resources import has_gpus, worker_pool


class TranslationJob:
    """Back-translation by Ray Data actors that rewrite one part at a time.

    A single worker without a GPU, on a machine that uses no cluster, is this process.
    """

    def __init__(self, options: BackTranslation, workers: int | None) -> None:
        self._workers = workers
        self._plan = plan_translation(options, has_gpus())
        self.folders: tuple[str, ...] = (self._plan.forward.folder, self._plan.backward.folder)
        models = {"forward_digest": self._plan.forward.digest}
        models["backward_digest"] = self._plan.backward.digest
        chosen = {**vars(self._plan.options), "device": "gpu" if self._plan.on_gpu else "cpu"}
        self.record: dict[str, Any] = {"method": options.name, **chosen, **models}

    def run(self, plan: PartPlan, names: Sequence[str], report: Report) -> None:
        if not names:
            return
        if runs_alone({}, self._workers) and not self._plan.on_gpu:
            rewriter = BackTranslator(self._plan, worker_pool(None, on_gpus=False)[2])
            for name in names:
                augment_part(plan, name, rewriter, report)
            return
        with (
            ray_session(),
            message_queue(lambda sent: report(sum(one["rows"] for one in sent))) as messages,
        ):
            # Workers beyond the number of parts would only occupy cores.
            workers, resources, threads = worker_pool(
                self._workers, len(names), on_gpus=self._plan.on_gpu
            )
            report_workers(self._workers, workers, len(names))
            arguments = {
                "plan": plan,
                "names": list(names),
                "translation": self._plan,
                "threads": threads,
                "messages": messages,
            }
            for _ in map_shards_with_actors(
                TranslatePart, arguments, len(names), workers, resources
            ):
                pass

    def manifest_entries(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        return {"inputs_cut": summary["inputs_cut"]}


class TranslatePart:
    """An actor that back-translates parts."""

    def __init__(
        self,
        plan: PartPlan,
        names: list[str],
        translation: Translation,
        threads: int,
        messages: Any,
    ) -> None:
        self._plan, self._names, self._messages = plan, names, messages
        self._rewriter = BackTranslator(translation, threads)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        name = self._names[int(row["id"])]
        augment_part(self._plan, name, self._rewriter, self._report)
        return {}

    def _report(self, rows: int) -> None:
        self._messages.put.remote([{"rows": rows}])


class LlmJob:
    """Requests from this process, part by part: limits apply to all, and the key stays here."""

    def __init__(self, options: LlmRewriting) -> None:
        from pipelines.augmenting.chat_endpoint import ChatEndpoint  # it imports requests

        self.folders: tuple[str, ...] = ()
        self._options = options
        self._endpoint = ChatEndpoint(options)
        self._endpoint.check()
        if not self._endpoint.has_key:
            say("no key is set: requests are sent without one")
        deciding = {name: getattr(options, name) for name in options.deciding}
        self.record: dict[str, Any] = {"method": options.name, **deciding}

    def run(self, plan: PartPlan, names: Sequence[str], report: Report) -> None:
        """Write the named parts; rows that failed at the end of a part are asked for once more."""
        from pipelines.augmenting.llm_rewriting import LlmRewriter, TokenBudget

        budget = TokenBudget(self._options.budget_tokens)
        for name in plan.names:
            for row in read_ledger(plan.ledger(name)).values():
                budget.add(row.tokens_in + row.tokens_out)
        parts = self._options, self._endpoint, budget, plan.limits
        rewriter = LlmRewriter(*parts)
        try:
            unfinished = [name for name in names if not augment_part(plan, name, rewriter, report)]
            if unfinished:
                self._endpoint.check()
                again = LlmRewriter(*parts, keeps_failures=True)
                for name in unfinished:
                    augment_part(plan, name, again, report)
        finally:
            self._endpoint.close()

    def manifest_entries(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of rewrites that another row has too, the tokens, and their cost if
        prices are given."""
        counts = {name: summary[name] for name in ("repeated", "tokens_in", "tokens_out")}
        prices = self._options.price_in, self._options.price_out
        if prices[0] is None or prices[1] is None:
            return counts
        cost = (counts["tokens_in"] * prices[0] + counts["tokens_out"] * prices[1]) / 1e6
        return {**counts, "cost": round(cost, 6)}


AugmentJob = TranslationJob | LlmJob
