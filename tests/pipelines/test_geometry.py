"""cotbert geometry: its numbers by hand, its files, its labels, and what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from cotbert_core.errors import UserError
from cotbert_core.evaluation import read_pairs
from cotbert_core.evaluation.pairs import cosines, spearman
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.evaluating.geometry import geometry
from pipelines.evaluating.model_specs import ModelSpec, numbered
from pipelines.evaluating.options import GeometryOptions
from pipelines.reading.text_files import read_texts, sample
from pipelines.reports import similarity_plot
from pipelines.reports.similarity_plot import similarity_figure, similarity_panels
from pipelines.training.dev_sets import BUILT_IN_PAIRS

WORDS = ("man", "dog", "penguin", "woman", "stage", "field", "price", "oil", "song", "line")


def pair_lines(count=24):
    draw = np.random.default_rng(0)
    for number in range(count):
        left = draw.choice(WORDS, 5, replace=False)
        right = np.concatenate([left[: number % 6], draw.choice(WORDS, 5 - number % 6)])
        yield float(number % 6), " ".join(left), " ".join(right)


@pytest.fixture
def pairs_file(tmp_path):
    path = tmp_path / "graded.tsv"
    rows = "".join(f"{g}\t{a}\t{b}\n" for g, a, b in pair_lines())
    path.write_text("score\tsentence1\tsentence2\n" + rows)
    return path


@pytest.fixture
def senteval(tmp_path):
    home = tmp_path / "senteval" / "STS" / "STSBenchmark"
    home.mkdir(parents=True)
    lines = [f"main\tx\t2015\t{n}\t{g}\t{a}\t{b}\n" for n, (g, a, b) in enumerate(pair_lines())]
    (home / "sts-test.csv").write_text("".join(lines))
    return tmp_path / "senteval"


def unit(vector):
    return vector / np.sqrt(float(vector @ vector))


def mean_cosine(vectors):
    """PromptBERT eq. (1), pair by pair."""
    units = [unit(np.asarray(v, np.float64)) for v in vectors]
    values = [a @ b for i, a in enumerate(units) for j, b in enumerate(units) if i != j]
    return abs(sum(values)) / len(values)


def by_hand(encoder, pairs, sentences=None):
    """CoT-BERT eqs. (4) and (5) and PromptBERT eq. (1) in loops."""
    distinct = list(dict.fromkeys([*pairs.left, *pairs.right]))
    made = dict(zip(distinct, encoder.encode(distinct, precision="fp32"), strict=True))
    left = np.array([made[s] for s in pairs.left], np.float64)
    right = np.array([made[s] for s in pairs.right], np.float64)
    alike = [
        np.square(unit(a) - unit(b)).sum()
        for a, b, gold in zip(left, right, pairs.gold, strict=True)
        if gold > 4
    ]
    units = [unit(np.asarray(made[s], np.float64)) for s in distinct]
    apart = [
        np.exp(-2 * np.square(a - b).sum()) for i, a in enumerate(units) for b in units[i + 1 :]
    ]
    table = encoder.backbone.model.get_input_embeddings().weight.detach().numpy()
    own = encoder.encode(sentences, precision="fp32") if sentences else made.values()
    return {
        "spearman": spearman(cosines(left, right), pairs.gold),
        "alignment": np.mean(alike),
        "uniformity": np.log(np.mean(apart)),
        "anisotropy": mean_cosine(own),
        "token_anisotropy": mean_cosine(table[np.square(table).sum(axis=1) > 0]) * _share(table),
    }


def _share(table):
    """A row of zeros, RoBERTa's padding, counts as a vector at right angles to all others."""
    count, full = len(table), int((np.square(table).sum(axis=1) > 0).sum())
    return full * (full - 1) / (count * (count - 1))


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
def test_the_folder_and_the_run(own_store, tmp_path, senteval, bert_folder, capsys):
    out = tmp_path / "out"
    command = ["geometry", f"{bert_folder},readout=cls", f"{bert_folder},readout=cls"]
    assert main([*command, "--senteval", str(senteval), "--output", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "geometry.json",
        "report.html",
        "result.json",
        "scatter.svg",
    ]
    result = json.loads((out / "result.json").read_text())
    assert not any(isinstance(value, (dict, list)) for value in result.values())
    assert result["pairs_source"] == "STS-B test"
    first, second = json.loads((out / "geometry.json").read_text())["models"]
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


def test_without_a_pair_above_4_there_is_no_alignment(unrecorded, tmp_path, bert_folder, capsys):
    path = tmp_path / "low.tsv"
    path.write_text("score\tsentence1\tsentence2\n4\ta man\ta dog\n1\tan oil\ta song\n2\tx\ty\n")
    command = ["geometry", bert_folder, "--dev-pairs", str(path), "--output", "out"]
    assert main(command) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [v for k, v in result.items() if k.startswith("alignment/")] == [None]
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
    assert ModelSpec.parse("bert") == ModelSpec("bert")
    assert ModelSpec.parse("a/b,readout=cls") == ModelSpec("a/b", None, "cls")
    text = 'Say "[X]" , which is [MASK] , so [MASK] .'
    assert ModelSpec.parse(f"a,template={text}") == ModelSpec("a", text)
    assert ModelSpec.parse("a,template=x,readout=cls") == ModelSpec("a", "x", "cls")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr,readout=cls").mkdir()
    assert ModelSpec.parse("lr,readout=cls") == ModelSpec("lr,readout=cls")
    assert ModelSpec.parse("lr,readout=cls,readout=mean") == ModelSpec(
        "lr,readout=cls", None, "mean"
    )


def test_equal_labels_are_numbered():
    assert numbered(["a", "b", "a", "a"]) == ["a", "b", "a no. 2", "a no. 3"]


MISTAKES = {
    "readout": ("{bert},readout=max", {}, "unknown readout 'max': choose one of cls"),
    "mask": ("{bert},readout=mask", {}, "give a template too"),
    "template": ("{bert},template=none", {}, "unknown template 'none'"),
    "option": ("{bert},layer=3", {}, "unknown model option 'layer': choose one of readout, temp"),
    "twice": ("{bert},readout=cls,readout=cls", {}, "names its readout twice"),
    "folder": ("./none", {}, r"folder './none' does not exist"),
    "head": ("{bert},readout=top-tokens", {}, "has no masked-language-model head"),
    "no sentences": ("{bert}", {"sentences": 0}, "sentences is 0: give at least 2"),
    "corpus": ("{bert}", {"corpus": "none.txt"}, r"'none\.txt' does not exist"),
    "empty corpus": ("{bert}", {"corpus": "blank.txt"}, r"no text \(2 rows: 2 empty\)"),
    "one sentence": ("{bert}", {"corpus": "one.txt"}, "has 1 distinct sentence"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused_before_anything_starts(own_store, tmp_path, bert_folder, name):
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "one.txt").write_text("A man.\nA man.\n")
    model, changes, message = MISTAKES[name]
    options = GeometryOptions((bert_folder, model.format(bert=bert_folder)), **changes)
    with pytest.raises(UserError, match=message):
        geometry(options, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert own_store.get_experiment_by_name("cotbert") is None


def test_an_earlier_output_is_kept(unrecorded, tmp_path, bert_folder):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(UserError, match="already holds something"):
        geometry(GeometryOptions((bert_folder,)), tmp_path / "out")


def test_text_is_read_with_its_rows_counted(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"A  man.\n\n\xff\nA man.\n")
    texts = read_texts(str(tmp_path))
    assert texts.sentences == ["A man.", "A man."]
    assert (texts.read, texts.dropped) == (4, {"empty": 1, "invalid_utf8": 1})


def drawn(svg):
    """The y of each point of a scatter, as drawn."""
    return np.array(
        [float(y) for y in re.findall(r'<use [^>]*? y="([\d.]+)" style="fill: var\(--blue', svg)]
    )


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


@pytest.mark.drawn
def test_the_high_cosines_of_a_single_model_lie_at_the_top():
    gold = np.linspace(0, 5, 20)
    (high, low) = (
        drawn(similarity_panels(gold, [("m", np.linspace(start, start + 0.05, 20), 1.0)]))
        for start in (0.9, 0.1)
    )
    assert high.max() < low.min() - 50, "the axis holds 0 and 1, whatever the cosines"


@pytest.mark.drawn
@pytest.mark.parametrize("count", [1, 4])
def test_a_page_has_a_plot_and_a_figure_a_panel_for_each_model(count):
    gold = np.linspace(0, 5, 4)
    panels = [(f"m{i}", gold / 5, 1.0) for i in range(count)]
    assert similarity_panels(gold, panels).count("<svg") == count
    svg = similarity_figure(gold, panels)
    assert svg.count("gold similarity") == count
    assert len(re.findall(r'<g id="axes_\d+">', svg)) == count


@pytest.mark.drawn
def test_many_points_become_a_picture():
    gold = np.random.default_rng(0).uniform(0, 5, similarity_plot.VECTOR_POINTS + 1)
    svg = similarity_panels(gold, [("m", gold / 5, 99.0)])
    assert "data:image/png" in svg
    assert len(svg) < 400_000
