"""cotbert quantize: a folder with an int8 graph that costs no more than the user allows."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.exporting.openvino_model import with_openvino
from cotbert_core.saving.keyword_weights import WEIGHTS_FILE, save_keyword_weights
from cotbert_core.templates.template_texts import Template
from pipelines.cli import main
from pipelines.evaluating.differences import differences
from pipelines.evaluating.scoring import Scored
from pipelines.exporting import quantize as job
from pipelines.exporting.calibration_texts import calibration_texts
from pipelines.options.jobs import QuantizeOptions
from pipelines.serving import encoder_replica
from pipelines.serving.encoder_replica import EncoderReplica
from pipelines.serving.options import ServeOptions

WORDS = ("man", "dog", "guitar", "field", "green", "penguin", "plays", "runs", "sees", "walks")


@pytest.fixture(autouse=True)
def libraries(unrecorded):
    if not all(map(find_spec, ("openvino", "nncf"))):
        pytest.skip("needs the extra 'int8'")


@pytest.fixture(scope="module")
def model(tmp_path_factory, bert_folder):
    """A folder that this package wrote, with keyword weights and a line of the user's in its
    card."""
    place = tmp_path_factory.mktemp("model") / "model"
    SentenceEncoder(load_backbone(bert_folder), PoolingConfig("mean")).save_pretrained(place)
    card = place / "README.md"
    card.write_text(card.read_text() + "\nMy own line.\n\n## int8\n\nOf an earlier graph.\n")
    save_keyword_weights(place, 0.07, 0.08)
    return place


@pytest.fixture(scope="module")
def files(tmp_path_factory, model):
    """A file of texts, and one of pairs that are graded by the model's own cosines in fp32."""
    folder, numbers = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    drawn = [" ".join(numbers.choice(WORDS, numbers.integers(2, 20))) for _ in range(160)]
    (folder / "texts.txt").write_text("\n".join(drawn) + "\n")
    left, right = drawn[::2], drawn[1::2]
    encode = SentenceEncoder.from_pretrained(model).encode
    grades = cosines(*(encode(side, precision="fp32") for side in (left, right)))
    rows = [f"{g}\t{one}\t{two}" for g, one, two in zip(grades, left, right, strict=True)]
    (folder / "pairs.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
    return folder


def quantize(files, model, output, *more):
    given = ("--input", str(files / "texts.txt"), "--dev-pairs", str(files / "pairs.tsv"))
    return main(["quantize", str(model), *given, "--output", str(output), *more])


@pytest.mark.real
def test_the_folder_is_the_model_with_a_graph_beside_it(
    files, model, tmp_path, monkeypatch, capsys
):
    output = tmp_path / "fast"
    assert quantize(files, model, output) == 0
    facts = json.loads((output / "int8" / "quantization.json").read_text())
    before, after = (facts["scores"][when]["pairs-all"]["spearman"] for when in ("before", "after"))
    assert facts["differences"]["pairs-all"]["difference"] == pytest.approx(after - before)
    different = len(set((files / "texts.txt").read_text().splitlines()))
    assert facts["calibration_texts"] + facts["compared_texts"] == different
    assert facts["speedup"] == pytest.approx(
        facts["sentences_per_second"] / facts["sentences_per_second_torch"]
    )
    assert 0.99 < facts["cosine_mean_full_length"] < 1 - 1e-7
    whole = SentenceEncoder.from_pretrained(model)
    kept, others = SentenceEncoder.from_pretrained(output), ["a dog runs", "two men", ""]
    exact = whole.encode(others, precision="fp32")
    np.testing.assert_array_equal(kept.encode(others, precision="fp32"), exact)
    fast = with_openvino(kept).encode(others)
    assert 0.99 < cosines(exact, fast).min() < 1 - 1e-7
    assert (output / WEIGHTS_FILE).read_bytes() == (model / WEIGHTS_FILE).read_bytes()
    card = (output / "README.md").read_text()
    assert "My own line." in card
    assert card.count("## int8") == 1
    assert "Of an earlier graph" not in card
    told = capsys.readouterr().out
    assert f"embed fast --input {files}/texts.txt --output vectors" in told.replace(
        f"{tmp_path}/", ""
    )
    sentence = f"Spearman of pairs-all: {before:.2f} before, {after:.2f} in int8"
    assert all(sentence in text for text in (card, told))
    # `serve` runs the graph too, in a process of Ray's, which these functions would start here.
    monkeypatch.setattr(encoder_replica, "use_own_device", lambda: None)
    monkeypatch.setattr(encoder_replica.ray_private, "keep_replica_on_loopback", lambda: None)
    replica = EncoderReplica(ServeOptions(str(output), backend="openvino"), torch.get_num_threads())
    served, _ = replica._encode(others, queries=False)
    np.testing.assert_allclose(served, fast, atol=1e-6)


@pytest.mark.real
def test_a_graph_that_loses_more_than_allowed_is_not_written(files, model, tmp_path, capsys):
    assert quantize(files, model, tmp_path / "fast", "--max-loss", "0") == 1
    error = capsys.readouterr().err
    assert "int8 changes pairs-all from 100.00 to 9" in error
    assert "more than --max-loss 0 allows" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
def test_a_graph_of_other_vectors_is_not_written(
    files, model, bert_folder, tmp_path, monkeypatch, capsys
):
    torch.manual_seed(3)
    other = load_backbone(bert_folder)
    for weight in other.model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    ruined, real = SentenceEncoder(other, PoolingConfig("mean")), job.quantized
    monkeypatch.setattr(job, "quantized", lambda _, texts: real(ruined, texts))
    assert quantize(files, model, tmp_path / "fast", "--max-loss", "100") == 1
    assert re.search(r"have a mean cosine of -?0\.[0-4]", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_texts_are_from_all_over_a_file_of_one_shard(tmp_path):
    path = tmp_path / "sorted.csv"
    path.write_text("\n".join(["text", *(f"row {number}" for number in range(4000))]) + "\n")
    texts = calibration_texts(QuantizeOptions("model", (str(path),), rows=200))
    places = [int(text.split()[1]) for text in texts]
    assert len(places) == 400
    assert all(70 < count < 130 for count in np.bincount(np.array(places) // 1000, minlength=4))


def test_a_folder_of_small_files_gives_texts_of_all_of_them(tmp_path):
    """Some of them would not be enough: 16 files of 50 have 48 texts."""
    for number in range(50):
        lines = [f"text {number} {line}" for line in range(3)]
        (tmp_path / f"{number}.txt").write_text("\n".join(lines))
    texts = calibration_texts(QuantizeOptions("model", (str(tmp_path),), rows=64))
    assert len(texts) == 128
    assert len({text.split()[1] for text in texts}) > 40


def test_a_score_that_falls_is_a_loss_also_in_an_average():
    def facts(*after):
        """Of two STS tasks and held-out documents; the resamples do not matter here."""
        both = []
        for scores in ((80.0, 70.0, 50.0), after):
            scored, resampled = Scored(), np.zeros(100)
            scored.add("STS-B", {"spearman": scores[0]}, resampled)
            scored.add("SICK-R", {"spearman": scores[1]}, resampled)
            scored.add_average("average", ["STS-B", "SICK-R"])
            scored.add("held-out", {"found_first": scores[2]}, resampled)
            both.append(scored)
        before, after = both
        scores = {"before": before.entries, "after": after.entries}
        return {"cosine_mean": 1, "scores": scores, "differences": differences(before, after)}

    job._check_loss(facts(79.6, 70.0, 20.0), 0.5)
    for after, name in ((79.4, "STS-B from 80.00 to 79.40"), (np.nan, "STS-B from 80.00 to nan")):
        with pytest.raises(job.LossError, match=f"int8 changes {name}"):
            job._check_loss(facts(after, 70.0, 50.0), 0.5)
    with pytest.raises(job.LossError, match=r"cosine of 0\.949 to .* least 0\.95"):
        job._check_loss({"cosine_mean": 0.949}, 0.5)


@pytest.mark.parametrize(
    ("after", "low", "high", "chance"),
    [
        (60.0, None, None, True),
        (60.0, -30.0, 5.0, True),
        (60.0, -30.0, -5.0, False),
        (80.0, -7.0, 7.0, False),  # no change
    ],
)
def test_a_change_of_too_few_texts_for_an_interval_may_be_chance(after, low, high, chance):
    scores = {
        when: {"same-label": {"accuracy": one}} for when, one in (("before", 80), ("after", after))
    }
    said = job._change("same-label", "texts", {"low": low, "high": high}, scores)
    assert said.startswith(f"Texts: 80.00 before, {after:.2f} in int8")
    assert said.endswith(", which may be chance.") == chance


@pytest.mark.parametrize(
    ("torch_rate", "words"), [(96.0, "no faster than"), (83.0, "1.2 times as fast as")]
)
def test_a_speed_that_rounds_to_that_of_torch_is_no_gain(torch_rate, words):
    rates = {"sentences_per_second": 100.0, "sentences_per_second_torch": torch_rate}
    (said,) = job._sentences({**rates, "speedup": 100.0 / torch_rate, "differences": {}})
    assert said.startswith(f"int8 is {words} torch on this machine (100 against")


def test_queries_are_scored_by_their_template(bert_folder):
    pooling = PoolingConfig("mean", query=Template("query: [X]"))
    encoder, texts = SentenceEncoder(load_backbone(bert_folder), pooling), ["A man runs."]
    encode = job._scores(SimpleNamespace(score=lambda encode, _: encode), encoder, "fp32")
    expected = encoder.for_queries.encode(texts, precision="fp32")
    np.testing.assert_array_equal(encode.queries(texts), expected)
    assert cosines(encode.texts(texts), expected)[0] < 0.9999


def test_mistakes_end_before_anything_is_computed(files, model, tmp_path, capsys):
    (files / "few.txt").write_text("one\ntwo\nthree\n")
    for more, message in (
        (("--rows", "10"), "rows is 10: give at least 64"),
        (("--max-loss", "-1"), "max_loss is -1.0: give a number of points from 0"),
        (("--input", str(files / "few.txt")), "has 3 different texts: give at least 128"),
    ):
        assert quantize(files, model, tmp_path / "fast", *more) == 2
        assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
