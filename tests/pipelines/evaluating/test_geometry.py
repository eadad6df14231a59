"""cotbert geometry: its numbers by hand, its files, its labels, and what it refuses."""

from __future__ import annotations

import re
import shutil
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from graded_pairs import graded, write_pairs, write_stsb

from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import PairScores, cosines, read_pairs, spearman
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.evaluating import geometry as job
from pipelines.evaluating.geometry import geometry
from pipelines.evaluating.model_specs import label_of, options_of_model
from pipelines.evaluating.options import EvaluateOptions, GeometryOptions
from pipelines.reading.text_files import sample
from pipelines.reports import similarity_plot
from pipelines.reports.similarity_plot import similarity_panels
from pipelines.runtime.progress import say_once
from pipelines.training.dev_sets import BUILT_IN_PAIRS


@pytest.fixture
def pairs_file(tmp_path):
    return write_pairs(tmp_path / "graded.tsv", graded(0, 24))


def unit(vector):
    return vector / max(1e-30, np.sqrt(float(vector @ vector)))


def mean_cosine(vectors):
    """PromptBERT eq. (1). A row of zeros, RoBERTa's padding, is at right angles to all others."""
    units = np.array([unit(np.asarray(v, np.float64)) for v in vectors])
    products = units @ units.T
    return abs(products.sum() - np.trace(products)) / (len(units) * (len(units) - 1))


def by_hand(encoder, pairs, sentences=None):
    """CoT-BERT eqs. (4) and (5) in loops, and PromptBERT eq. (1)."""
    distinct = list(dict.fromkeys([*pairs.left, *pairs.right]))
    vectors = encoder.encode(distinct, precision="fp32").astype(np.float64)
    made = dict(zip(distinct, vectors, strict=True))
    left, right = (np.array([made[s] for s in side]) for side in (pairs.left, pairs.right))
    alike = [
        np.square(unit(a) - unit(b)).sum()
        for a, b, gold in zip(left, right, pairs.gold, strict=True)
        if gold > 4
    ]
    apart = [np.exp(-2 * np.square(unit(a) - unit(b)).sum()) for a, b in combinations(vectors, 2)]
    table = encoder.backbone.model.get_input_embeddings().weight.detach().numpy()
    own = encoder.encode(sentences, precision="fp32") if sentences else vectors
    return {
        "spearman": spearman(cosines(left, right), pairs.gold),
        "alignment": np.mean(alike),
        "uniformity": np.log(np.mean(apart)),
        "anisotropy": mean_cosine(own),
        "token_anisotropy": mean_cosine(table),
    }


def test_the_numbers_are_those_of_the_formulas(unrecorded, tmp_path, pairs_file, encoder_folder):
    short = encoder_folder.rsplit("/", 1)[1]
    models = (encoder_folder, f"{encoder_folder},template=cot-bert/anchor")
    options = GeometryOptions(models, pairs=pairs_file, precision="fp32")
    result = geometry(options, tmp_path / "out")
    pairs = read_pairs(pairs_file)
    labels = [key.partition("/")[2] for key in result if key.startswith("spearman/")]
    assert [label.split("/", 1)[1] for label in labels] == [
        f"{short} mean",
        f"{short} [MASK] cot-bert/anchor",
    ]
    for label, template in zip(labels, (None, "cot-bert/anchor"), strict=True):
        encoder = SentenceEncoder.from_pretrained(encoder_folder, template)
        for name, value in by_hand(encoder, pairs).items():
            assert result[f"{name}/{label}"] == pytest.approx(value, rel=1e-5), name
    assert result[f"uniformity/{labels[0]}"] != result[f"uniformity/{labels[1]}"]
    assert (result["pairs"], result["pairs_above_4"]) == (24, 4)


def test_the_sentences_of_a_corpus_give_the_anisotropy(
    unrecorded, tmp_path, pairs_file, bert_folder, sentences
):
    (tmp_path / "text.txt").write_text("\n".join([*sentences, "", sentences[0]]) + "\n")
    options = GeometryOptions(
        (bert_folder,), pairs=pairs_file, corpus=str(tmp_path / "text.txt"), precision="fp32"
    )
    result = geometry(options, tmp_path / "out")
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    expected = by_hand(encoder, read_pairs(pairs_file), sentences)
    (found,) = (v for k, v in result.items() if k.startswith("anisotropy/"))
    assert found == pytest.approx(expected["anisotropy"], rel=1e-5)
    assert found != pytest.approx(by_hand(encoder, read_pairs(pairs_file))["anisotropy"], rel=1e-3)
    assert (result["corpus_read"], result["corpus_dropped_empty"]) == (len(sentences) + 2, 1)
    assert result["corpus_sentences"] == len(sentences)


def test_a_sample_is_seeded_distinct_and_in_order():
    texts = [f"line {i % 50}" for i in range(100)]
    drawn = sample(texts, 10)
    assert drawn == sample(texts, 10)
    assert drawn == [t for t in texts[:50] if t in set(drawn)]
    assert len(set(drawn)) == 10
    assert drawn != texts[:10]
    assert sample(texts, 50) == texts[:50] == sample(texts, 1000)


@pytest.mark.drawn
def test_the_folder_and_the_run(own_store, tmp_path, bert_folder, capsys):
    out, senteval = tmp_path / "out", write_stsb(tmp_path / "senteval", graded(0, 24))
    command = ["geometry", f"{bert_folder},readout=cls", f"{bert_folder},readout=cls"]
    assert main([*command, "--senteval", str(senteval), "--output", str(out)]) == 0
    files = ["geometry.json", "report.html", "result.json", "scatter.svg"]
    assert sorted(p.name for p in out.iterdir()) == files
    result = read_json(out / "result.json")
    assert not any(isinstance(value, (dict, list)) for value in result.values())
    assert result["pairs_source"] == "STS-B test"
    first, second = read_json(out / "geometry.json")["models"]
    assert first["label"].endswith("[CLS]")
    assert second["label"] == f"{first['label']} no. 2"
    assert first["uniformity"] == result[f"uniformity/{first['label']}"] == second["uniformity"]

    page = (out / "report.html").read_text()
    assert (out / "scatter.svg").read_text().count('<g id="axes_') == 2
    assert page.count("<svg") == 4, "on the same axis and normalized"
    assert not re.search(r'(?:src|href)="(?!#)(?!data:)', page)
    shown = capsys.readouterr().out
    assert f"{first['spearman']:.2f}" in shown
    assert f"{first['uniformity']:.4f}" in shown

    run = own_store.get_run(result["mlflow_run_id"])
    assert (run.info.run_name, run.info.status) == ("geometry / out", "FINISHED")
    label = first["label"].replace("[CLS]", "CLS")
    assert run.data.metrics[f"alignment/{label}"] == pytest.approx(first["alignment"])
    assert f"uniformity/{label} no. 2" in run.data.metrics
    assert len(own_store.list_artifacts(run.info.run_id)) == 4


def test_the_test_half_of_pairs_with_halves(unrecorded, tmp_path, bert_folder):
    result = geometry(GeometryOptions((bert_folder,)), tmp_path / "out")
    assert result["pairs"] == len(read_pairs(BUILT_IN_PAIRS, "test"))
    assert result["pairs"] < len(read_pairs(BUILT_IN_PAIRS))
    assert result["pairs_source"] == "pairs.tsv, test"


def test_a_folder_with_an_int8_graph_is_scored_in_torch_which_a_note_says(
    unrecorded, tmp_path, bert_folder, pairs_file, capsys
):
    say_once.cache_clear()
    shutil.copytree(bert_folder, tmp_path / "fast")
    (tmp_path / "fast" / "int8").mkdir()
    geometry(GeometryOptions((str(tmp_path / "fast"),), pairs=pairs_file), tmp_path / "out")
    assert "fast is scored in torch, without its int8 graph" in capsys.readouterr().err


def test_without_a_pair_above_4_there_is_no_alignment(unrecorded, tmp_path, bert_folder, capsys):
    path = tmp_path / "low.tsv"
    path.write_text("score\tsentence1\tsentence2\n4\ta man\ta dog\n1\tan oil\ta song\n2\tx\ty\n")
    command = ["geometry", bert_folder, "--dev-pairs", str(path), "--output", "out"]
    assert main(command) == 0
    result = read_json(tmp_path / "out" / "result.json")
    assert [v for k, v in result.items() if k.startswith("alignment/")] == [None]
    assert " none " in capsys.readouterr().out


def test_equal_cosines_have_no_correlation(unrecorded, tmp_path, bert_folder, monkeypatch, capsys):
    """Null in the files, and a file without a test half is scored by its dev half."""
    equal = PairScores(float("nan"), float("nan"), 0.0, np.ones(4))

    def scored(encode, pairs):
        encode(pairs.left)
        return equal

    monkeypatch.setattr(job, "score_pairs", scored)
    path = tmp_path / "dev.tsv"
    lines = [f"{n}\ta {n}\tb\tdev" for n in range(4)]
    path.write_text("\n".join(["score\tsentence1\tsentence2\tsplit", *lines]))
    assert main(["geometry", bert_folder, "--dev-pairs", str(path), "--output", "out"]) == 0
    result = read_json(tmp_path / "out" / "result.json")
    (score,) = (value for key, value in result.items() if key.startswith("spearman/"))
    assert (score, result["pairs_source"]) == (None, "dev.tsv, dev")
    assert read_json(tmp_path / "out" / "geometry.json")["models"][0]["spearman"] is None
    assert " none " in capsys.readouterr().out


def test_a_readout_that_needs_no_training(unrecorded, tmp_path, pairs_file, bert_folder):
    """PromptBERT Table 1: means of static token embeddings against means of the last layer."""
    models = tuple(f"{bert_folder},readout={name}" for name in ("static", "last", "mean"))
    options = GeometryOptions(models, pairs=pairs_file, precision="fp32")
    result = geometry(options, tmp_path / "out")
    static, last, mean = (v for k, v in result.items() if k.startswith("anisotropy/"))
    assert last == mean
    assert static != pytest.approx(last, rel=1e-3)


def test_a_model_is_read_from_the_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "lr,readout=cls").mkdir()
    text = 'Say "[X]" , which is [MASK] , so [MASK] .'
    for given, (name, named) in {
        "bert": ("bert", {}),
        "a/b,readout=cls": ("a/b", {"readout": "cls"}),
        f"a,template={text}": ("a", {"template": text}),
        "a,template=x,readout=cls": ("a", {"template": "x", "readout": "cls"}),
        "lr,readout=cls": ("lr,readout=cls", {}),
        "~/lr,readout=cls": ("~/lr,readout=cls", {}),
        "lr,readout=cls,readout=mean": ("lr,readout=cls", {"readout": "mean"}),
    }.items():
        assert options_of_model(EvaluateOptions(), given) == EvaluateOptions(name, **named)


def test_the_label_of_a_folder_leaves_out_the_root(tmp_path, monkeypatch):
    """MLflow refuses metrics whose names have `//` or `~` in them."""
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    mean = SimpleNamespace(readout="mean", template=None)
    top, (one, two) = tmp_path.parents[-2], tmp_path.parts[-2:]
    assert label_of(EvaluateOptions(str(top)), mean) == f"{top.name} mean"
    for given in (str(tmp_path), f"~/{two}"):
        assert label_of(EvaluateOptions(given), mean) == f"{one}/{two} mean"


MISTAKES = (
    ("{bert},readout=max", {}, "unknown readout 'max': choose one of cls"),
    ("{bert},layer=3", {}, "unknown model option 'layer': choose one of readout, temp"),
    ("{bert},readout=cls,readout=cls", {}, "names its readout twice"),
    ("./none", {}, r"folder './none' does not exist"),
    ("{bert},readout=top-tokens", {}, "has no masked-language-model head"),
    ("{bert}", {"sentences": 0, "corpus": "a.txt"}, "sentences is 0: give at least 2"),
    ("{bert}", {"corpus": "none.txt"}, r"'none\.txt' does not exist"),
    ("{bert}", {"corpus": "blank.txt"}, r"no text \(2 rows: 2 empty\)"),
    ("{bert}", {"corpus": "one.txt"}, "has 1 distinct sentence"),
)


def test_mistakes_are_refused_before_anything_starts(own_store, tmp_path, bert_folder):
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "one.txt").write_text("A man.\nA man.\n")
    for model, changes, message in MISTAKES:
        options = GeometryOptions((bert_folder, model.format(bert=bert_folder)), **changes)
        with pytest.raises(UserError, match=message):
            geometry(options, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert own_store.get_experiment_by_name("cotbert") is None


def drawn(svg):
    """The y of each point of a scatter, as drawn."""
    return np.array(re.findall(r'<use [^>]*? y="([\d.]+)" style="fill: var\(--blue', svg), float)


@pytest.mark.drawn
def test_models_share_an_axis_unless_the_page_says_that_they_are_normalized():
    gold = np.linspace(0, 5, 20)
    narrow, wide = np.linspace(0.90, 0.95, 20), np.linspace(-0.2, 0.9, 20)
    panels = [("narrow", narrow, 1.0), ("wide", wide, 1.0)]
    plain = drawn(similarity_panels(gold, panels))
    scaled = drawn(similarity_panels(gold, panels, normalized=True))
    assert len(plain) == len(scaled) == 40
    assert np.ptp(plain[:20]) < 0.1 * np.ptp(plain[20:])
    np.testing.assert_allclose(scaled[:20], scaled[20:], atol=0.01)
    assert similarity_plot.NORMALIZED in similarity_panels(gold, panels, normalized=True)
    assert similarity_plot.SAME_AXIS in similarity_panels(gold, panels)
    four = similarity_plot.similarity_figure(gold[:2], 4 * [("m", gold[:2], 1.0)])
    assert len(re.findall(r'<g id="axes_\d+">', four)) == 4, "in two lines, without empty ones"


@pytest.mark.drawn
def test_the_high_cosines_of_a_single_model_lie_at_the_top():
    gold = np.linspace(0, 5, 20)
    (high, low) = (
        drawn(similarity_panels(gold, [("m", np.linspace(start, start + 0.05, 20), 1.0)]))
        for start in (0.9, 0.1)
    )
    assert high.max() < low.min() - 50, "the axis holds 0 and 1, whatever the cosines"


@pytest.mark.drawn
def test_many_points_become_a_picture():
    gold = np.random.default_rng(0).uniform(0, 5, similarity_plot.VECTOR_POINTS + 1)
    svg = similarity_panels(gold, [("m", gold / 5, 99.0)])
    assert "data:image/png" in svg
    assert len(svg) < 400_000
