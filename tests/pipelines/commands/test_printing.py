"""What reaches the terminal: no control character of a corpus, a file's name or an argument."""

from __future__ import annotations

import io
import json
import re
from contextlib import nullcontext

import pytest
from embeddings_folders import write_folder

from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines import cli
from pipelines.adapting import quickstart
from pipelines.cli import main
from pipelines.commands.printing import print_scores
from pipelines.reports import html_page
from pipelines.runtime.progress import Progress, print_output, say

pytestmark = pytest.mark.drawn

# Clear screen, title, clipboard (OSC 52), C1 introducer, return, direction override.
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b]52;c;Y3VybA==\x1b\\\x9b2J\rover\u202egnp.exe\u2066"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
TEXTS = [f"harmless {ESCAPES} words", "two dogs run", "oil"]


def harmless(captured):
    """Both streams, after a look at them."""
    for text in captured:
        assert not OBEYED.search(text), repr(text)
    return captured


@pytest.fixture
def embeddings(tmp_path, bert_folder):
    vectors = SentenceEncoder.from_pretrained(bert_folder).encode(TEXTS, precision="fp32")
    kept = {"text": TEXTS}
    return write_folder(tmp_path / "e", range(3), vectors, kept, parts=1, model=bert_folder)


def test_search_shows_the_escapes_of_a_corpus(embeddings, capsys):
    query = f"two {ESCAPES} dogs"
    assert main(["search", str(embeddings), query, "oil", "--precision", "fp32"]) == 0
    out, _ = harmless(capsys.readouterr())
    assert out.count("harmless \\u001b[2J\\u001b]0;owned\\u0007\\u001b]52;c;Y3VybA==") == 2
    assert "\\u009b2J over\\u202egnp.exe\\u2066 words" in out
    assert out.startswith("query: two \\u001b[2J")
    json_words = ["oil", "--precision", "fp32", "--json", "--top", "3"]
    assert main(["search", str(embeddings), *json_words]) == 0
    out, _ = harmless(capsys.readouterr())
    assert sorted(m["text"] for m in json.loads(out)["matches"]) == sorted(TEXTS), "as they are"


@pytest.mark.parametrize(
    "words",
    [
        ["search", f"/nowhere/{ESCAPES}", "a query"],
        ["prepare", "--input", f"{ESCAPES}.txt", "--encoder", "none", "--output", "out"],
        ["train", f"recipe{ESCAPES}", "--corpus", "none", "--output", "out"],
        ["track-sync", f"/nowhere/{ESCAPES}"],
        ["templates", ESCAPES],
        [f"command{ESCAPES}"],
    ],
    ids=lambda words: words[0].partition(ESCAPES)[0],
)
def test_an_error_repeats_a_value_without_sending_it(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(words)
    except SystemExit as end:  # the command line's own errors
        status = end.code
    out, message = harmless(capsys.readouterr())
    assert (status, out, message.count("\n")) == (2, "", 1)
    assert re.search(r"\\x1b\[2J|\\u001b\[2J", message)


def test_a_traceback_is_shown_without_escapes_and_credentials(monkeypatch, capsys):
    def job(arguments):
        raise RuntimeError(f"no luck {ESCAPES} at http://user:S3cret@host")

    monkeypatch.setattr(cli.COMMANDS["tokens"].options, "run", job)
    for words in (["tokens", "bert"], ["tokens", "bert", "--verbose"]):
        assert main(words) == 1
        _, message = harmless(capsys.readouterr())
        assert "no luck \\u001b[2J" in message
        assert "S3cret" not in message
    assert "Traceback" in message
    assert "raise RuntimeError" in message


def test_neighbours_of_the_quickstart_are_shown(tmp_path, monkeypatch, capsys):
    own = {"found_first": 50.0, "low": 40.0, "high": 60.0, "queries": 2}
    searches = ("held-out", "held-out-with-keywords")
    adapted = {
        "encoder": "bert",
        "chosen": "untouched",
        "winner": "untouched",
        "baseline": "mean pooling",
        "documents": {"by": "row", "documents": 9, "held_out": 4},
        "sentences": 20,
        "keyword_search": 40.0,
        "dev": {"untouched": 50.0, "simcse": 40.0},
        "trials": [],
        "table": {name: {"before": 50.0, "after": 50.0} for name in searches},
        "models": {"untouched": dict.fromkeys(searches, own)},
    }
    found = [("a query", [(0.5, TEXTS[0])])]
    monkeypatch.setattr(quickstart, "adapt", lambda *_, **__: adapted)
    monkeypatch.setattr(quickstart, "nearest", lambda *_: found)
    monkeypatch.setattr(quickstart, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(quickstart, "write_report", lambda *_: None)
    run = nullcontext(quickstart.tracking.Run(None, None))
    monkeypatch.setattr(quickstart.tracking, "tracked_run", lambda *_, **__: run)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:S3cretWord@host:5000")
    quickstart.quickstart(tmp_path / "out")
    out, _ = harmless(capsys.readouterr())
    assert "0.50  harmless \\u001b[2J" in out
    assert "mlflow ui --backend-store-uri 'http://***@host:5000'" in out


def test_progress_and_messages_show_what_they_name(capsys):
    say(f"reading {ESCAPES} of http://user:S3cret@host")
    print_output(f"a\tb {ESCAPES}", end="\n\n")
    for terminal in (False, True):
        stream = io.StringIO()
        stream.isatty = lambda terminal=terminal: terminal
        Progress("embed", 2, "row", stream).show(2, ESCAPES)
        assert not OBEYED.search(stream.getvalue().removeprefix("\r"))
    out, message = harmless(capsys.readouterr())
    assert (out[:4], out[-2:]) == ("a\tb ", "\n\n")
    assert message.endswith("\\u202egnp.exe\\u2066 of http://***@host\n")


def test_a_report_turns_no_direction_and_holds_no_html_of_a_corpus():
    text = f"<b>{ESCAPES}</b>"
    page = html_page.page(text, text, [(text, html_page.table((text,), [(text,)]))])
    assert not OBEYED.search(page)
    assert "<b>" not in page
    assert page.count("&lt;b&gt;\\u001b[2J") == 6


def test_scores_of_a_transfer_task_are_printed_without_its_regularisations(capsys):
    print_scores(
        {
            "CR": {
                "accuracy": 88.04,
                "dev_accuracy": 87.5,
                "train": 3024,
                "regularisation": [1, 4],
            },
            "STS-B": {"spearman": 82.03, "low": None, "high": None, "subsets": {"news": 1.0}},
            "transfer_average": 88.04,
        }
    )
    header, _, *rows = (line.split() for line in capsys.readouterr().out.splitlines() if line)
    assert "regularisation" not in header
    assert "subsets" not in header
    shown = {row[0]: row[1:] for row in rows}
    assert {"88.04", "87.50", "3,024"} <= set(shown["CR"])
    assert "82.03" in shown["STS-B"]
    assert shown["transfer_average"] == ["88.04"]
