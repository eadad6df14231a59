"""Rewriting by a language model: one request per sentence, several concurrently.

Each answer is yielded as soon as it arrives. When the job stops, the answers to pending requests
are yielded too, since they are paid for. A kill loses at most the pending requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field

from pipelines.augmenting.chat_answers import Answer
from pipelines.augmenting.chat_endpoint import ChatEndpoint, StoppedError
from pipelines.augmenting.ledger import Rewrite
from pipelines.augmenting.llm_options import LlmRewriting
from pipelines.augmenting.options import Limits
from pipelines.augmenting.rewrite_filter import fault
from pipelines.runtime.progress import say

FAILED = "failed"
# After this many consecutive failures the endpoint is at fault, not the sentences.
MOST_FAILURES = 10
# If none of the first answers of a run can be used, nor will the others: the prompt or the model is
# wrong, and each answer costs.
FIRST_ANSWERS = 50


@dataclass
class TokenBudget:
    """A limit on tokens, with the tokens of this and earlier runs, and the rows that took any."""

    limit: int | None
    tokens: int = 0
    rows: int = 0

    def add(self, tokens: int) -> None:
        self.tokens += tokens
        self.rows += tokens > 0

    def allows(self, pending: int) -> bool:
        """Return whether another request fits, if all pending ones use the average."""
        if self.limit is None:
            return True
        average = self.tokens / self.rows if self.rows else 0.0
        return self.tokens + average * (pending + 1) <= self.limit


@dataclass
class LlmRewriter:
    """The rewriter (pipelines.augmenting.parts) that uses a language model."""

    options: LlmRewriting
    endpoint: ChatEndpoint
    budget: TokenBudget
    limits: Limits = field(default_factory=Limits)
    keeps_failures: bool = False
    """Whether rows that failed at no cost after the last answer count as failed. Else they are left
    out, since the endpoint may be at fault."""
    _unpaid: list[Rewrite] = field(default_factory=list)
    """Rows that failed at no cost since the last answer: sentence or endpoint may be at fault."""
    _failures: int = 0
    """The number of rows that failed since the last answer."""
    _useless: int | None = 0
    """The number of answers so far while none of them can be used; None once one can."""

    def rewrite(
        self, texts: Mapping[int, str], done: Mapping[int, Rewrite]
    ) -> Iterator[list[Rewrite]]:
        """Yield rewrites one at a time; an error is raised after pending answers are yielded."""
        left = iter([(number, text) for number, text in texts.items() if number not in done])
        pending: dict[Future[Answer], int] = {}
        stopped: BaseException | None = None
        with ThreadPoolExecutor(self.options.concurrency) as pool:
            while True:
                try:
                    if stopped is None:
                        self._submit(pool, left, pending)
                    if not pending:
                        break
                    for future in wait(pending, return_when=FIRST_COMPLETED).done:
                        number, answer = pending.pop(future), future.result()
                        yield from self._finish(number, answer)
                        self._check_use(texts[number], answer)
                except (Exception, KeyboardInterrupt) as reason:
                    stopped = stopped or reason
                    self.endpoint.stop.set()
                    if isinstance(reason, KeyboardInterrupt) and pending:
                        with suppress(OSError):  # SIGHUP: the terminal is gone
                            say(f"waiting for {len(pending)} answers, which are paid for")
        if stopped is not None:
            raise stopped
        unpaid = self._take_unpaid()
        if self.keeps_failures:
            yield unpaid

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        left: Iterator[tuple[int, str]],
        pending: dict[Future[Answer], int],
    ) -> None:
        """Submit requests until `concurrency` are pending, or as many as the budget allows.

        Raises StoppedError if none is pending and the budget is spent.
        """
        while len(pending) < self.options.concurrency:
            allowed = self.budget.allows(len(pending))
            if pending and not allowed:
                return  # they may use less than the average
            if (row := next(left, None)) is None:
                return
            if not allowed:
                raise StoppedError(
                    f"--budget-tokens {self.budget.limit:,} is spent: give the same command "
                    "with a larger budget to continue"
                )
            number, text = row
            prompt = self.options.prompt.replace("{sentence}", text)
            pending[pool.submit(self.endpoint.complete, prompt)] = number

    def _finish(self, number: int, answer: Answer) -> Iterator[list[Rewrite]]:
        """Yield the rewrite of a row; unpaid failures are withheld until the endpoint answers."""
        paid = (answer.tokens_in, answer.tokens_out)
        self.budget.add(answer.tokens_in + answer.tokens_out)
        if answer.text is not None or answer.unfinished:
            rewrite = Rewrite(number, answer.text, answer.unfinished, False, *paid)
            yield [*self._take_unpaid(), rewrite]
            if self.budget.limit is not None and not answer.paid:
                raise StoppedError(
                    "the endpoint does not report the tokens it used, so --budget-tokens cannot be "
                    "checked: leave it out"
                )
        elif self.endpoint.stop.is_set():
            return  # interrupted: the request may succeed when the job is continued
        elif self.options.on_failure == "stop":
            raise StoppedError(
                f"row {number} got no rewrite ({answer.reason}) and --on-failure is stop: give the "
                "same command again to continue"
            )
        elif answer.paid:
            yield [Rewrite(number, None, FAILED, False, *paid)]
        else:
            self._unpaid.append(Rewrite(number, None, FAILED))
        self._failures = 0 if answer.text is not None else self._failures + 1
        if self._failures >= MOST_FAILURES:
            cause = "the model" if answer.unfinished else "the endpoint"
            raise StoppedError(
                f"{MOST_FAILURES} sentences in a row got no rewrite (the last: {answer.reason}): "
                f"check {cause}, then give the same command again to continue"
            )

    def _check_use(self, source: str, answer: Answer) -> None:
        """Raise StoppedError after FIRST_ANSWERS answers if the filter drops all of them."""
        if answer.text is None or self._useless is None:
            return
        why = fault(source, answer.text, self.limits, by_model=True)
        self._useless = self._useless + 1 if why else None
        if self._useless == FIRST_ANSWERS:
            raise StoppedError(
                f"none of the first {FIRST_ANSWERS} answers can be used (the last, {why}: "
                f"{' '.join(answer.text.split())[:200]!r}): change --prompt or --model and give a "
                f"new --output, or give the same command again for {FIRST_ANSWERS} more"
            )

    def _take_unpaid(self) -> list[Rewrite]:
        taken, self._unpaid = self._unpaid, []
        return taken
