"""Rewriting by a language model: one request a sentence, some under way at a time.

Each answer is given as soon as it is there, those under way too when the job must stop: they are
paid for. A kill loses at most the requests under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice

from pipelines.augmenting.chat_endpoint import Answer, ChatEndpoint, StoppedError
from pipelines.augmenting.ledger import Rewrite
from pipelines.augmenting.llm_options import LlmRewriting

FAILED = "failed"
# So many sentences in a row without an answer mean that the endpoint, not a sentence, is at fault.
GIVE_UP = 10


@dataclass
class Spending:
    """Tokens so far, those of earlier runs too, and how many rows they were for."""

    budget: int | None
    tokens: int = 0
    rows: int = 0

    def add(self, tokens: int) -> None:
        self.tokens += tokens
        self.rows += 1

    def allows(self, under_way: int) -> bool:
        """Whether one more request fits, were all that are under way to cost the average."""
        if self.budget is None:
            return True
        average = self.tokens / self.rows if self.rows else 0.0
        return self.tokens + average * (under_way + 1) <= self.budget


@dataclass
class LlmRewriter:
    """A rewriter (pipelines.augmenting.parts) for all parts of a corpus, one after the other."""

    options: LlmRewriting
    endpoint: ChatEndpoint
    spending: Spending
    _unpaid: list[Rewrite] = field(default_factory=list)
    """Rows that failed at no cost since the last answer: whose fault it is, is not known yet."""
    _failures: int = 0
    """Rows that failed since the last answer."""

    def rewrite(
        self, texts: Mapping[int, str], done: Mapping[int, Rewrite]
    ) -> Iterator[list[Rewrite]]:
        """One at a time; whatever stops it is raised once those under way are given."""
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
                        yield from self._settled(pending.pop(future), future.result())
                except (Exception, KeyboardInterrupt) as reason:
                    stopped = stopped or reason
                    self.endpoint.stop.set()
        if stopped is not None:
            raise stopped
        yield self._take_unpaid()

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        left: Iterator[tuple[int, str]],
        pending: dict[Future[Answer], int],
    ) -> None:
        """Keep as many requests under way as there may be: no more are bound to be paid for."""
        free = self.options.concurrency - len(pending)
        for number, text in islice(left, free):
            if not self.spending.allows(len(pending)):
                raise StoppedError(
                    f"--budget-tokens {self.spending.budget:,} is spent: the same command with a "
                    "larger one goes on"
                )
            prompt = self.options.prompt.replace("{sentence}", text)
            pending[pool.submit(self.endpoint.ask, prompt)] = number

    def _settled(self, number: int, answer: Answer) -> Iterator[list[Rewrite]]:
        """The rewrite of a row, kept back while it may be that the endpoint is gone."""
        paid = (answer.tokens_in, answer.tokens_out)
        self.spending.add(answer.tokens_in + answer.tokens_out)
        if answer.text is not None:
            self._failures = 0
            yield [*self._take_unpaid(), Rewrite(number, answer.text, "", False, *paid)]
            self._check_usage(answer)
            return
        if self.endpoint.stop.is_set():
            return  # cut short, so it may yet succeed when the job goes on
        if self.options.on_failure == "stop":
            raise StoppedError(
                f"row {number} got no rewrite ({answer.reason}) and --on-failure is stop: the same "
                "command goes on"
            )
        failed = Rewrite(number, None, FAILED, False, *paid)
        if answer.paid:
            yield [failed]
        else:
            self._unpaid.append(failed)
        self._failures += 1
        if self._failures >= GIVE_UP:
            raise StoppedError(
                f"{GIVE_UP} sentences in a row got no rewrite (the last: {answer.reason}): see to "
                "the endpoint; the same command goes on"
            )

    def _take_unpaid(self) -> list[Rewrite]:
        taken, self._unpaid = self._unpaid, []
        return taken

    def _check_usage(self, answer: Answer) -> None:
        if self.spending.budget is not None and not answer.paid:
            raise StoppedError(
                "the endpoint does not say how many tokens it used, so --budget-tokens cannot be "
                "kept: leave it out"
            )
