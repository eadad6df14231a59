"""cotbert evaluate --labelled: how often the nearest text has the same label."""

from __future__ import annotations

import json

import numpy as np
import pytest
from trainings import ENDS, SUBJECTS

from cotbert_core.errors import UserError
from cotbert_core.evaluation.bootstrap import interval, resampled_mean, seed_of, wider
from cotbert_core.evaluation.labelled import Labelled, nearest_labels, same_label, widening
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.evaluating import labelled_texts
from pipelines.evaluating.evaluate import evaluate
from pipelines.evaluating.options import EvaluateOptions

TEXTS = [f"{subject} is singing {end}" for subject in SUBJECTS[:6] for end in ENDS]
LABELS = [number % 5 for number in range(len(TEXTS))]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def labelled(tmp_path):
    rows = [{"text": t, "label": n} for t, n in zip(TEXTS, LABELS, strict=True)]
    return write(tmp_path / "labelled.jsonl", rows)


def test_it_is_scored_with_an_interval(own_store, labelled, bert_folder):
    result = evaluate(EvaluateOptions(bert_folder, labelled=labelled, precision="fp32"))
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    one = Labelled(TEXTS, np.array(LABELS))
    found = same_label(lambda t: encoder.encode(t, precision="fp32"), one)
    nearest = nearest_labels(lambda t: encoder.encode(t, precision="fp32"), one)
    factor = widening(found, [nearest])
    assert (nearest.found == found).all()
    assert factor > 1.05, "many texts are each other's nearest"
    ends = interval(wider(resampled_mean(found, 1000, seed_of("same-label")), factor))
    score = {"accuracy": 100 * found.mean(), "low": ends.low, "high": ends.high}
    counts = {"texts": len(TEXTS), "labels": 5, "by_chance": one.chance}
    assert result["same-label"] == {**score, **counts}
    assert 0 < score["accuracy"] < 100
    assert not [name for name in result if name.startswith("pairs-")], "they were not asked for"
    metrics = own_store.get_run(result["mlflow_run_id"]).data.metrics
    assert metrics["same-label.accuracy"] == score["accuracy"]


def test_two_models_are_compared(unrecorded, labelled, bert_folder, tmp_path, capsys):
    models = [f"{bert_folder},readout={name}" for name in ("mean", "cls")]
    words = ["--labelled", labelled, "--output", str(tmp_path / "all.json"), "--precision", "fp32"]
    assert main(["evaluate", *models, *words, "--report", str(tmp_path / "page.html")]) == 0
    assert "<td>accuracy, by chance 16.7</td>" in (tmp_path / "page.html").read_text()
    (entries,) = read_json(tmp_path / "all.json")["differences"].values()
    assert list(entries) == ["same-label"]
    shown = capsys.readouterr()
    assert "texts whose nearest text has the same label, in %." in shown.out
    assert f"labelled texts: {len(TEXTS)}, with 5 labels; a random other" in shown.err


def test_a_missing_value_that_is_written_out_is_a_label_and_noted(tmp_path, capsys):
    labels = [{3: "n/a", 4: "NaN"}.get(number, number) for number in LABELS]
    rows = [f"{text},{label}" for text, label in zip(TEXTS, labels, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]))
    read = labelled_texts.read_labelled(EvaluateOptions(labelled=str(tmp_path / "a.csv")))
    assert read.label_count == 5
    first, _ = capsys.readouterr().err.splitlines()
    count = LABELS.count(3) + LABELS.count(4)
    assert first.startswith(
        f"note: the label of {count} texts in '{tmp_path}/a.csv' is 'n/a' or 'NaN', read"
    )


def test_columns_are_named_cleaned_and_counted(unrecorded, bert_folder, tmp_path, capsys):
    """A title and a body make a text; a row without label, or of a known text, is dropped."""
    pairs = zip(TEXTS, LABELS, strict=True)
    rows = [{"title": f"<b>{t}</b>", "body": "It rains.", "kind": f" k{n} "} for t, n in pairs]
    rows += [rows[0], {**rows[1], "body": "No label", "kind": " "}, {**rows[1], "kind": None}]
    path = write(tmp_path / "rows.jsonl", rows)
    options = EvaluateOptions(
        bert_folder,
        labelled=path,
        label_column="kind",
        text_column="title,body",
        clean=("markup",),
        precision="fp32",
    )
    assert labelled_texts.read_labelled(options).texts == [f"{t}. It rains." for t in TEXTS]
    assert "(rows dropped: 1 repeated, 2 no_label)" in capsys.readouterr().err
    table = "".join(f"{r['title']};{r['kind']}\n" for r in rows[: len(TEXTS)])
    (tmp_path / "rows.csv").write_text("title;kind\n" + table)
    words = ["--labelled", str(tmp_path / "rows.csv"), "--text-column", "title", "--delimiter", ";"]
    assert main(["evaluate", bert_folder, *words, "--label-column", "kind"]) == 0
    assert "same-label" in capsys.readouterr().out


def test_many_texts_are_sampled(labelled, capsys):
    options = EvaluateOptions(labelled=labelled)
    first, again = (labelled_texts.read_labelled(options, most=10) for _ in "ab")
    assert first.texts == again.texts == [t for t in TEXTS if t in first.texts]
    assert first.texts != TEXTS[:10]
    names = dict(zip(TEXTS, LABELS, strict=True))
    pairs = {(names[t], n) for t, n in zip(first.texts, first.labels.tolist(), strict=True)}
    assert len(pairs) == len({n for n, _ in pairs}), "each keeps its label"
    assert f"labelled texts: 10 of {len(TEXTS)}, chosen at random" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("aab", "with 2 labels; 1 text with a label of no other text is not scored; a random"),
        ("aabcd", "with 4 labels; 3 texts with a label of no other text are not scored; a random"),
        ("aabb", "with 2 labels; a random"),
    ],
)
def test_texts_that_are_not_scored_are_counted(tmp_path, capsys, labels, said):
    rows = [{"text": str(number), "label": label} for number, label in enumerate(labels)]
    labelled_texts.read_labelled(EvaluateOptions(labelled=write(tmp_path / "a.jsonl", rows)))
    assert f"labelled texts: {len(labels)}, {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        (None, ["--label-column", "kind"], "label_column is 'kind' without labelled texts"),
        (None, ["--clean", "markup,urls"], "clean is 'markup,urls' without labelled texts"),
        ([{"text": "a", "label": None}], [], "in column 'label' (rows dropped: 1 no_"),
        ([{"text": t, "label": 1} for t in "ab"], [], "2 different texts and 1 label:"),
        ([{"text": t, "label": t} for t in "ab"], [], "2 different texts and 2 labels"),
    ],
)
def test_labels_that_tell_nothing_are_refused(
    own_store, bert_folder, tmp_path, capsys, rows, words, message
):
    given = [] if rows is None else ["--labelled", write(tmp_path / "rows.jsonl", rows)]
    assert main(["evaluate", bert_folder, *given, *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert own_store.search_runs(["0", "1"]) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "a b", "has no columns and so no 'label' for --label-column: give csv, tsv, "),
        ("a.csv", "text,kind\na,b", "no column 'label': it has text, kind; name one with --label-"),
    ],
)
def test_a_file_without_the_column_names_the_option(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as raised:
        labelled_texts.read_labelled(EvaluateOptions(labelled=str(tmp_path / name)))
    assert message in str(raised.value)


def test_a_file_that_loses_rows_has_a_warning(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n<b>eins</b>,1\nzwei,1\ndrei,2\nfünf Hütten,2\n", "latin-1")
    read = labelled_texts.read_labelled(EvaluateOptions(labelled=str(path)))
    assert len(read.texts) == 3
    shown = capsys.readouterr().err
    assert "lost 1 of 4 rows (25.0 %): 1 are not UTF-8 but read as" in shown
    assert "give --encoding" in shown
