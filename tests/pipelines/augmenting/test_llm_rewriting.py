"""Requests to a language model against a local server that answers well, badly or not at all."""

from __future__ import annotations

import errno
import json
import threading
import time

import pytest
from chat_server import KEY, PROMPT, ChatServer, answer, paraphrase

from cotbert_core.errors import UserError
from pipelines.augmenting import chat_endpoint, llm_rewriting
from pipelines.augmenting.chat_answers import Answer, read_answer
from pipelines.augmenting.chat_endpoint import (
    ChatEndpoint,
    StoppedError,
    check_url,
    read_key,
)
from pipelines.augmenting.ledger import Rewrite
from pipelines.augmenting.llm_options import LlmRewriting, read_prompt
from pipelines.augmenting.llm_rewriting import (
    FIRST_ANSWERS,
    MOST_FAILURES,
    LlmRewriter,
    TokenBudget,
)
from pipelines.augmenting.rate_limiter import RateLimiter

# A message that is cut within the key, which follows it.
LONG = "x" * 190
TEXTS = {number: f"sentence {number} of the text" for number in range(30)}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(chat_endpoint, "FIRST_WAIT", 0.01)


def options(server, **changes):
    small = {"concurrency": 4, "timeout": 5.0, "retries": 3}
    return LlmRewriting("a-model", PROMPT, server.url, **{**small, **changes})


def run(server, texts=TEXTS, done=None, spent=0, **changes):
    """All rewrites that come, by id, and the reason why no more did, if there is one."""
    chosen = options(server, **changes)
    endpoint = ChatEndpoint(chosen)
    budget = TokenBudget(chosen.budget_tokens, spent, spent // 16)
    rewriter = LlmRewriter(chosen, endpoint, budget, keeps_failures=True)
    found, reason = {}, None
    try:
        for rewrites in rewriter.rewrite(texts, done or {}):
            for rewrite in rewrites:
                assert rewrite.id not in found
                found[rewrite.id] = rewrite
    except StoppedError as error:
        reason = str(error)
    finally:
        endpoint.close()
    return found, reason


def asked(server, sentence="a", stop=None, **changes):
    """The endpoint's answer to one sentence."""
    endpoint = ChatEndpoint(options(server, **changes), stop or threading.Event())
    try:
        return endpoint.complete(f"Say again: {sentence}")
    finally:
        endpoint.close()


def test_each_sentence_is_asked_for_once_and_its_answer_kept():
    done = {n: Rewrite(n, "done") for n in range(0, 30, 2)}
    left = {n: text for n, text in TEXTS.items() if n not in done}
    with ChatServer(delay=0.02) as server:
        found, reason = run(server, done=done, temperature=0.7, max_answer_tokens=64)
    assert reason is None
    assert found == {n: Rewrite(n, paraphrase(t), "", False, 11, 5) for n, t in left.items()}
    assert sorted(server.asked) == sorted(left.values())
    assert 1 < server.most <= 4
    assert server.keys == {f"Bearer {KEY}"}
    asked = [{name: v for name, v in body.items() if name != "messages"} for body in server.bodies]
    assert asked == [{"model": "a-model", "temperature": 0.7, "max_tokens": 64}] * len(left)


def test_an_answer_is_given_while_another_is_awaited():
    """A killed job loses only the requests that are pending."""
    given = threading.Event()

    def reply(sentence, number):
        if sentence == TEXTS[0]:
            given.wait(2.0)
        return answer(paraphrase(sentence))

    with ChatServer(reply) as server:
        endpoint = ChatEndpoint(chosen := options(server))
        rewrites = LlmRewriter(chosen, endpoint, TokenBudget(None)).rewrite(
            {n: TEXTS[n] for n in range(2)}, {}
        )
        assert [r.id for r in next(rewrites)] == [1]
        assert TEXTS[0] not in server.answered
        given.set()
        assert [r.id for some in rewrites for r in some] == [0]
        endpoint.close()


def test_pending_answers_are_kept_when_the_terminal_is_gone(monkeypatch):
    wait, interrupts = llm_rewriting.wait, [KeyboardInterrupt]

    def interrupted(*given, **options):
        if interrupts:
            raise interrupts.pop()
        return wait(*given, **options)

    def refused(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(llm_rewriting, "wait", interrupted)
    monkeypatch.setattr(llm_rewriting, "say", refused)
    found = []
    with ChatServer(delay=0.1) as server:
        endpoint = ChatEndpoint(chosen := options(server))
        rewrites = LlmRewriter(chosen, endpoint, TokenBudget(None)).rewrite(TEXTS, {})
        with pytest.raises(KeyboardInterrupt):
            found.extend(rewrite for some in rewrites for rewrite in some)
        endpoint.close()
    assert sorted(TEXTS[rewrite.id] for rewrite in found) == sorted(server.asked)


def test_nothing_is_sent_that_was_not_asked_for_and_the_key_is_hidden_in_an_answer():
    with ChatServer(lambda s, n: answer(f"your key is {KEY}")) as server:
        found, _ = run(server, {1: "a {sentence} of {braces}"})
    message = {"role": "user", "content": "Say again: a {sentence} of {braces}"}
    assert server.bodies == [{"model": "a-model", "messages": [message]}]
    assert found[1].text == "your key is ***"


def test_a_key_that_is_a_word_stays_in_answers(monkeypatch):
    """As local servers accept any; an error says what is wrong with the request."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    said = {"error": {"message": "Use 'max_completion_tokens' in\nplace of 'none'." + "." * 300}}

    def reply(sentence, number):
        return answer("Six of them, none left") if sentence == "a" else (400, {}, json.dumps(said))

    with ChatServer(reply) as server:
        assert asked(server).text == "Six of them, none left"
        reason = asked(server, "b").reason
    assert reason.startswith("status 400: Use 'max_completion_tokens' in place of 'none'...")
    assert len(reason) == len("status 400: ") + 200


BAD = {
    "status 500": (500, {}, "oops"),
    "status 503": (503, {}, ""),
    "status 429": (429, {"Retry-After": "0"}, "slow down"),
    "status 408": (408, {"Retry-After": "0.05"}, ""),
    "no JSON": (200, {}, "<html>"),
    "a list": (200, {}, "[1]"),
    "no choices": (200, {}, '{"choices": []}'),
    "no text": (200, {}, '{"choices": [{"message": {"content": null}}]}'),
    "blank text": answer(" \n", None),
    "tokens without a text": answer("", (7, 1)),
    "not UTF-8": (200, {}, b'{"choices": \xff\xfe'),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_is_asked_for_again(bad):
    def reply(sentence, number):
        return BAD[bad] if number < 3 else answer(paraphrase(sentence))

    texts = {n: TEXTS[n] for n in range(6)}
    with ChatServer(reply) as server:
        found, reason = run(server, texts)
    tokens = (7 + 7 + 11, 1 + 1 + 5) if bad == "tokens without a text" else (11, 5)
    assert reason is None
    assert found == {n: Rewrite(n, paraphrase(t), "", False, *tokens) for n, t in texts.items()}
    assert len(server.asked) == 18


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<html>Log in</html>", "an answer that is not a JSON object"),
        ('{"choices": [{"mess', "an answer that is not a JSON object"),
        ("[1]", "an answer that is not a JSON object"),
        ('{"choices": []}', "an answer without a text"),
    ],
)
def test_the_reason_says_why_there_is_no_text(body, reason):
    assert read_answer(body) == Answer(None, reason)


def test_a_refusal_keeps_the_source_and_is_not_asked_for_again():
    refused = {"choices": [{"message": {"content": None, "refusal": "I cannot\nhelp."}}]}
    assert read_answer(json.dumps(refused)).reason == "a refusal: I cannot help."

    def reply(sentence, number):
        body = json.dumps(refused | {"usage": {"prompt_tokens": 11, "completion_tokens": 5}})
        return (200, {}, body) if sentence == TEXTS[3] else answer(paraphrase(sentence))

    with ChatServer(reply) as server:
        found, reason = run(server, on_failure="stop")
    assert reason is None
    kept = [rewrite for rewrite in found.values() if rewrite.text is None]
    assert kept == [Rewrite(3, None, "refusal", False, 11, 5)]
    assert len(found) == len(server.asked) == len(TEXTS)


def ended_early(finish, *sentences):
    """Answers for all sentences; those to some of them end early for this reason."""

    def reply(sentence, number):
        status, headers, body = answer(paraphrase(sentence))
        values = json.loads(body)
        values["choices"][0]["finish_reason"] = finish if sentence in sentences else "stop"
        return status, headers, json.dumps(values)

    return reply


@pytest.mark.parametrize(
    ("finish", "failure"), [("length", "cut_off"), ("content_filter", "content_filter")]
)
def test_a_text_that_ends_early_keeps_its_source_and_is_not_asked_for_again(finish, failure):
    with ChatServer(ended_early(finish, TEXTS[3])) as server:
        found, reason = run(server, on_failure="stop")
    assert reason is None
    kept = [rewrite for rewrite in found.values() if rewrite.text is None]
    assert kept == [Rewrite(3, None, failure, False, 11, 5)]
    assert len(found) == len(server.asked) == len(TEXTS)


def test_an_endpoint_that_ends_every_text_early_stops_the_job():
    with ChatServer(ended_early("length", *TEXTS.values())) as server:
        found, reason = run(server, concurrency=1)
    assert "got no rewrite (the last: finish_reason length): check the model, then" in reason
    assert len(found) == len(server.asked) == MOST_FAILURES, "what was paid for is kept"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>\nFirst, it says\n</think>\n\nSaid again", "Said again"),
        ("It says\n</think>\nSaid again", "Said again"),
        ("<think>\n\n</think>\n\nI <think> so", "I <think> so"),
        ("I <think> so", "I <think> so"),
    ],
)
def test_the_reasoning_of_a_model_is_not_part_of_its_answer(content, text):
    with ChatServer(lambda *_: answer(content)) as server:
        found, reason = run(server, {1: "a b"})
    assert (found[1].text.strip(), reason) == (text, None)


def test_reasoning_without_an_end_is_no_answer():
    with ChatServer(lambda *_: answer("<think>\nFirst, it says")) as server:
        found, _ = run(server, {1: "a b"}, retries=1)
    assert found == {1: Rewrite(1, None, "failed", False, 22, 10)}


@pytest.mark.parametrize("usable", [None, 3])
def test_answers_of_which_none_can_be_used_stop_the_job_before_all_are_paid(usable):
    texts = {n: f"sentence {n} of the text" for n in range(2 * FIRST_ANSWERS)}

    def reply(sentence, number):
        good = usable is not None and sentence == texts[usable]
        return answer(paraphrase(sentence) if good else f"Here it is:\n\n{sentence}")

    with ChatServer(reply) as server:
        found, reason = run(server, texts, concurrency=1)
    if usable is not None:
        assert (len(found), reason) == (len(texts), None)
        return
    assert len(found) == len(server.asked) == FIRST_ANSWERS, "what was paid for is kept"
    assert reason.startswith(
        "none of the first 50 answers can be used (the last, several_lines: 'Here it is: sentence"
    )


def test_a_request_without_an_answer_in_time_is_asked_again():
    answered = threading.Event()

    def reply(sentence, number):
        if number == 1:
            answered.wait()
        return answer(paraphrase(sentence))

    with ChatServer(reply) as server:
        found, reason = run(server, {1: "a b"}, timeout=1.0, retries=20)
        answered.set()
    assert (reason, found[1].text) == (None, "In other words, a b")
    assert len(server.asked) >= 2


def test_a_timeout_is_described_by_its_seconds(capsys):
    """It is reported at once: a model that never ends its answers would otherwise leave the job
    silent for the minutes of all retries."""
    answered = threading.Event()

    def reply(sentence, number):
        answered.wait()
        return answer(paraphrase(sentence))

    with ChatServer(reply) as server:
        assert asked(server, retries=1, timeout=0.1).reason == "no answer within 0.1 s"
        answered.set()
    assert capsys.readouterr().err == (
        f"the endpoint {server.url} gave no answer within 0.1 s to a request: if this continues, "
        "raise --timeout, lower --concurrency, or give --max-answer-tokens\n"
    )


@pytest.mark.parametrize(("blank", "failures"), [(0.05, 1), (0.001, 0)])
def test_blank_lines_before_an_answer_do_not_extend_the_timeout(blank, failures):
    with ChatServer(blank=blank) as server:
        found, _ = run(server, {1: "a b"}, timeout=1.0, retries=0)
    assert [rewrite.failure for rewrite in found.values()] == ["failed"] * failures + [""] * (
        1 - failures
    )


def test_an_answer_without_an_end_is_not_read_into_memory(monkeypatch):
    monkeypatch.setattr(chat_endpoint, "LARGEST_BODY", 1_000)
    with ChatServer(lambda *_: answer("a" * 2_000)) as server:
        assert "did not end within 1000 bytes" in asked(server, retries=0).reason


def without_row_3(status):
    """Answers for all sentences but one, which always gets this status."""
    return lambda sentence, number: (
        (status, {}, "") if sentence == TEXTS[3] else answer(paraphrase(sentence))
    )


@pytest.mark.parametrize(("status", "tries"), [(500, 4), (400, 1)])
def test_a_sentence_that_never_gets_an_answer_fails_alone(status, tries):
    with ChatServer(without_row_3(status)) as server:
        found, reason = run(server)
    assert reason is None
    assert [r for r in found.values() if r.text is None] == [Rewrite(3, None, "failed")]
    assert server.asked.count(TEXTS[3]) == tries
    assert len(found) == len(TEXTS)


def test_or_stops_the_job_if_that_is_asked_for():
    with ChatServer(without_row_3(500)) as server:
        found, reason = run(server, on_failure="stop")
    assert reason.startswith("row 3 got no rewrite (status 500) and --on-failure is stop")
    assert 3 not in found
    assert set(server.answered) == {TEXTS[n] for n in found}, "what was answered is kept"


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_endpoint_that_has_gone_stops_the_job_and_costs_no_row(concurrency):
    """Only the first rows are answered. A row counts as failed if another one was answered after
    it failed, which with several requests at a time may happen to the last answer; all others are
    requested again when the job continues."""

    def reply(sentence, number):
        if sentence in early:
            return answer(paraphrase(sentence))
        while len(server.answered) < len(early):  # an answer sets the count of failures to 0
            time.sleep(0.01)
        return 500, {}, ""

    early = {TEXTS[n] for n in range(8)}
    with ChatServer(reply) as server:
        found, reason = run(server, retries=1, concurrency=concurrency)
    assert reason.startswith(
        f"{MOST_FAILURES} sentences in a row got no rewrite (the last: status 500)"
    )
    assert {r.id for r in found.values() if r.text is not None} == set(range(8))
    assert sum(r.text is None for r in found.values()) <= (MOST_FAILURES if concurrency > 1 else 0)


@pytest.mark.parametrize(
    ("status", "body", "what"),
    [
        (401, f"wrong key {KEY}", "401: check the key"),
        (401, json.dumps({"error": f"no, {KEY}"}), "401 (no, ***): check the key"),
        (404, '{"error": {"message": "no model x"}}', "404 (no model x): check the model or the "),
        (404, json.dumps({"error": LONG + KEY}), f"404 ({LONG}***): check the model or the "),
    ],
)
def test_what_no_retry_mends_stops_in_one_sentence(status, body, what):
    with ChatServer(lambda *_: (status, {}, body)) as server:
        found, reason = run(server)
    assert reason.startswith(f"the endpoint {server.url} answers {what}")
    assert reason.endswith(", then give the same command again to continue")
    assert (found, len(server.asked) <= 4) == ({}, True)


def test_the_budget_stops_before_it_is_passed_and_earlier_runs_count():
    with ChatServer(delay=0.01) as server:
        found, reason = run(server, budget_tokens=16 * 12)
        assert reason == (
            "--budget-tokens 192 is spent: give the same command with a larger budget to continue"
        )
        assert len(found) == 12
        more, reason = run(server, done=found, spent=192, budget_tokens=16 * 20)
        assert (len(more), len(server.asked)) == (8, 20)
        none, reason = run(server, done={**found, **more}, spent=320, budget_tokens=320)
    assert (none, len(server.asked)) == ({}, 20)
    assert reason is not None


def test_rows_that_took_no_tokens_do_not_lower_the_average():
    budget = TokenBudget(100)
    for tokens in (40, 0, 0, 0):
        budget.add(tokens)
    assert budget.allows(0)
    assert not budget.allows(1), "40 + 2 * 40 tokens"


def test_a_budget_needs_an_endpoint_that_counts():
    with ChatServer(lambda s, n: answer(paraphrase(s), None)) as server:
        found, reason = run(server, budget_tokens=1000)
    assert "does not report the tokens it used" in reason
    assert len(found) == len(server.answered) <= 4


class Waits:
    """A clock, and an event in its stop's place: each wait is written down and moves the clock."""

    def __init__(self):
        self.now, self.seconds = 100.0, []

    def wait(self, seconds):
        self.seconds.append(round(seconds, 6))
        self.now += seconds

    def is_set(self):
        return False


def test_requests_are_spread_over_the_minute():
    waits = Waits()
    limiter = RateLimiter(1200, clock=lambda: waits.now)
    for _ in range(3):
        limiter.wait(waits)
    unlimited = RateLimiter(None, clock=lambda: waits.now)
    unlimited.wait(waits)
    assert waits.seconds == [0.0, 0.05, 0.05, 0.0]


@pytest.mark.parametrize(("header", "seconds"), [("4", 4.0), ("86400", 600.0), ("soon", 0.0)])
def test_status_429_is_waited_out_as_long_as_the_endpoint_says(header, seconds, capsys):
    def reply(sentence, number):
        limited = (429, {"Retry-After": header}, "")
        return limited if number == 1 else answer(paraphrase(sentence))

    with ChatServer(reply) as server:
        assert asked(server, "a b", waits := Waits()).text == "In other words, a b"
    assert waits.seconds == [0.0, seconds, 0.0], "of the rate limit, and before the retry"
    said = "asks for a pause of more than a minute (status 429), and the job waits; Ctrl-C ends it"
    assert (said in capsys.readouterr().err) == (seconds > 60)


def test_an_endpoint_is_tried_before_anything_starts():
    with ChatServer(models=404) as server:
        ChatEndpoint(options(server)).check()
    with pytest.raises(UserError, match=r"http://.* cannot be reached \(ConnectionError: HTTP"):
        ChatEndpoint(options(server)).check()
    with ChatServer(models=401) as server, pytest.raises(UserError) as caught:
        ChatEndpoint(options(server)).check()
    assert str(caught.value) == f"the endpoint {server.url} answers 401: check the key"
    assert server.asked == []


def test_the_key_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("OTHER", f" {KEY}2\n")
    assert read_key(None, "http://here/v1") == KEY
    assert read_key("OTHER", "http://here/v1") == KEY + "2"
    monkeypatch.delenv("OPENAI_API_KEY")
    assert read_key(None, "http://here/v1") == ""
    for variable, url in ((None, "https://api.openai.com/v1/"), ("NONE", "http://here/v1")):
        with pytest.raises(UserError, match="is not set: put the endpoint's key in it"):
            read_key(variable, url)
    monkeypatch.setenv("OTHER", "two words")
    with pytest.raises(UserError, match="OTHER has no valid key") as caught:
        read_key("OTHER", "http://here/v1")
    assert "two words" not in str(caught.value)


def test_an_address_holds_no_secret():
    assert check_url("https://host:8000/v1/") == "https://host:8000/v1"
    for url in ("host/v1", "ftp://host", "https://", "http://[", "http://host:99999/"):
        with pytest.raises(UserError, match="base_url is not an http address"):
            check_url(url)
    for url in ("https://me:pw@host/v1", "https://host/v1?key=pw", "https://host/v1#pw"):
        with pytest.raises(UserError, match="contains more than an address") as caught:
            check_url(url)
        assert "pw" not in str(caught.value)


def test_prompts_are_files_with_a_place_for_the_sentence(tmp_path):
    assert LlmRewriting("m").prompt.count("{sentence}") == 1
    (tmp_path / "good").write_text("\ufeffAgain: {sentence}", encoding="utf-8")
    assert read_prompt(tmp_path / "good") == "Again: {sentence}"
    (tmp_path / "bad").write_text("Again: {text}")
    with pytest.raises(UserError, match=r"bad' has no \{sentence\}: put it where"):
        read_prompt(tmp_path / "bad")
    (tmp_path / "latin").write_bytes(b"caf\xe9 {sentence}")
    for name, fault in (("latin", "is not UTF-8"), ("none", "cannot be read")):
        with pytest.raises(UserError, match=f"{name}' {fault}"):
            read_prompt(tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"concurrency": 0}, "concurrency is 0: give at least 1"),
        ({"retries": -1}, "retries is -1: give at least 0"),
        ({"timeout": 0.0}, "timeout is 0.0: give a number above 0"),
        ({"requests_per_minute": float("inf")}, "requests_per_minute is inf"),
        ({"budget_tokens": 0}, "budget_tokens is 0"),
        ({"price_in": 1.0}, "only one of price_in and price_out is given"),
    ],
)
def test_options_out_of_range_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        LlmRewriting(**{"model": "m", "prompt": PROMPT, **changes})
