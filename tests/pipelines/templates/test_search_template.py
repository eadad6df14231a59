"""cotbert search-template: the scores themselves, and the job."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import Pairs, read_pairs, score_pairs
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.template_search.search import score_template, tokenize_pairs
from cotbert_core.templates.template_texts import TEMPLATES, resolve_template
from pipelines.cli import main
from pipelines.templates import template_search as job
from pipelines.templates.options import TemplateSearchOptions
from pipelines.templates.template_ledger import search_table
from pipelines.templates.template_search import search_template
from pipelines.training.dev_sets import BUILT_IN_PAIRS

LONGEST = TEMPLATES["promptbert/manual"].text
TEXTS = (
    "[X] [MASK] .",
    "This sentence of [X] means [MASK] .",
    LONGEST,
    "This sentence : ' [X] ' means [MASK] .",
    "Also [MASK]. [X]",
)
PAIRS = """score\tsentence1\tsentence2
4.5\tA man is playing the guitar.\tA man plays a guitar
3.0\tTwo dogs run\tTwo dogs are running across the field
1.5\tWhat do you want?\tIt's what he didn't say that they'll remember
0.0\toil\tThe children watch the penguin on the ice while a woman is singing
2.0\tShe said [MASK] and <mask> to her [PAD]\tA man
4.0\tA man\tA man walks
"""


@pytest.fixture
def pairs_file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(PAIRS)
    return path


@pytest.fixture
def choices(tmp_path, pairs_file, bert_folder):
    """Options of a small search: 1 + 2 relations and 2 prefixes."""
    lists = {"relations": "means\nis\n", "prefixes": 'This\nThis sentence : "[X]"\n'}
    for name, lines in lists.items():
        (tmp_path / name).write_text(lines)
    files = {name: tmp_path / name for name in lists}
    return TemplateSearchOptions(bert_folder, dev_pairs=pairs_file, precision="fp32", **files)


def written(folder):
    """The scored templates in the file of a search."""
    return [json.loads(line) for line in (folder / "templates.jsonl").open()]


def test_scores_equal_the_encoders(encoder_folder, pairs_file):
    """With special tokens as text, and a sentence that is cut to leave room for the template."""
    odd, many = read_pairs(pairs_file), read_pairs(BUILT_IN_PAIRS, split="dev")
    long = "a man is playing the guitar and " * 40
    left, right = [*odd.left, *many.left[:60], long], [*odd.right, *many.right[:60], long[4:]]
    pairs = Pairs(left, right, np.concatenate([odd.gold, many.gold[:60], [5.0]]))
    backbone = load_backbone(encoder_folder)
    tokens = tokenize_pairs(backbone, pairs)
    scores = []
    for text in TEXTS:
        encoder = SentenceEncoder.from_pretrained(encoder_folder, template=text)
        assert tokens.sentences.lengths.max() > encoder.max_length
        slow = score_pairs(lambda s, e=encoder: e.encode(s, precision="fp32"), pairs).spearman
        fast = score_template(backbone, tokens, resolve_template(text), "fp32")
        assert fast == pytest.approx(slow, abs=1e-6)
        scores.append(fast)
    assert len(set(np.round(scores, 3))) == len(TEXTS)


def test_the_command_finds_tracks_and_prints(own_store, tmp_path, choices, capsys):
    words = ["search-template", choices.encoder, "--precision", "fp32", "--output", "out"]
    for name in ("relations", "prefixes", "dev_pairs"):
        words += [f"--{name.replace('_', '-')}", str(getattr(choices, name))]
    assert main(words) == 0
    stdout = capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    rows = written(tmp_path / "out")
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["stage"] for row in rows] == ["relation"] * 3 + ["prefix"] * 2
    assert result["dev_spearman"] == max(row["spearman"] for row in rows)
    assert result["templates"] == 5
    (best,) = [line for line in stdout.splitlines() if line.endswith("  best")]
    assert best.startswith(result["best_template"])
    assert (tmp_path / "out" / "templates.txt").read_text().count("best") == 1

    run = own_store.get_run(result["mlflow_run_id"])
    assert (run.info.run_name, run.info.status) == ("search-template / out", "FINISHED")
    assert run.data.tags["best_template"] == result["best_template"]
    assert run.data.params["relations"] == "2"
    assert run.data.params["dev"] == result["dev"] == choices.dev_pairs.name
    history = own_store.get_metric_history(run.info.run_id, "dev_spearman")
    assert [(m.step, m.value) for m in history] == [(r["number"], r["spearman"]) for r in rows]
    artifacts = {a.path for a in own_store.list_artifacts(run.info.run_id)}
    assert artifacts == {"templates.jsonl", "templates.txt", "settings.json", "result.json"}


def test_the_table_is_ordered_and_short_when_asked():
    scores = (("a", 1.0), ("b", None), ("c", 3.0), ("d", 2.0))
    rows = [{"template": t, "stage": "given", "spearman": s} for t, s in scores]
    shown = [line.split() for line in search_table(rows, "c").splitlines()[2:]]
    expected = [["b", "given", "none"], ["a", "given", "1.00"]]
    expected += [["d", "given", "2.00"], ["c", "given", "3.00", "best"]]
    assert shown == expected
    assert [line.split() for line in search_table(rows, "c", 2).splitlines()[2:]] == expected[2:]


def test_pairs_that_are_not_distinguished_fail_the_job(unrecorded, tmp_path, choices, monkeypatch):
    monkeypatch.setattr(job, "score_template", lambda *rest: float("nan"))
    with pytest.raises(RuntimeError, match="every template gives equal cosines"):
        search_template(choices, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_stopped_search_is_begun_anew(unrecorded, tmp_path, choices, monkeypatch):
    scores = iter([1.0, KeyboardInterrupt()])

    def score(*rest):
        value = next(scores, 2.0)
        if isinstance(value, KeyboardInterrupt):
            raise value
        return value

    monkeypatch.setattr(job, "score_template", score)
    with pytest.raises(KeyboardInterrupt):
        search_template(choices, tmp_path / "out")
    assert search_template(choices, tmp_path / "out")["templates"] == 5
    assert len(written(tmp_path / "out")) == 5


def test_mistakes_are_found_before_anything_is_written(tmp_path, choices):
    (tmp_path / "templates").write_text("[X] [MASK] .\n")
    (tmp_path / "long").write_text("means " * 130 + "\n")
    # Together these are too long by tokens, but not each with the longest word, which is one token.
    (tmp_path / "parts").write_text(". " * 70 + "\n" + "x" * 200 + "\n")
    mistakes = {
        "rounds is 0: give at least 1": {"rounds": 0},
        "cannot be combined with relations, prefixes": {"templates": tmp_path / "templates"},
        "the template has .* shorten the template": {"relations": tmp_path / "long"},
        "the template has 1.. tokens": dict.fromkeys(("relations", "prefixes"), tmp_path / "parts"),
        "does not exist": {"dev_pairs": tmp_path / "none.tsv"},
        "encoder folder './none' does not exist": {"encoder": "./none"},
    }
    for message, values in mistakes.items():
        with pytest.raises(UserError, match=message):
            search_template(replace(choices, **values), tmp_path / "out")
    assert not (tmp_path / "out").exists()
