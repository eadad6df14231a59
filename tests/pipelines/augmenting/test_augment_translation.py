"""cotbert augment by back-translation on Ray, with models that translate an invented language."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tiny_marian
from forked import Command
from tiny_corpus import rows, write_corpus
from waiting import until

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from pipelines.augmenting import augment, methods
from pipelines.augmenting.back_translation import BackTranslator, plan_translation
from pipelines.augmenting.ledger import read_ledger
from pipelines.augmenting.options import BackTranslation, Limits
from pipelines.augmenting.parts import PartPlan, augment_part
from pipelines.cli import main
from pipelines.runtime import shard_tasks

pytestmark = [pytest.mark.usefixtures("own_store", "own_cache")]

SENTENCES = tiny_marian.sentences(90, seed=3)


@pytest.fixture
def corpus(tmp_path, bert_folder):
    return write_corpus(tmp_path / "corpus", bert_folder, SENTENCES[:50], SENTENCES[50:])


def command(corpus, models, out, *more):
    words = ["augment", "--corpus", str(corpus), "--method", "back-translation", "--output", out]
    words += ["--forward", models[0], "--backward", models[1], "--beam", "1"]
    return [*map(str, words), *more]


EXPECTED = [tiny_marian.there_and_back(text) for text in SENTENCES]


@pytest.mark.ray_local
@pytest.mark.usefixtures("ray_here")
def test_every_row_has_its_translation_there_and_back(
    corpus, tiny_models, tmp_path, own_store, capsys
):
    words = command(corpus, tiny_models, tmp_path / "out", "--workers", "2")
    assert main([*words, "--batch-tokens", "60", "--precision", "float32"]) == 0
    found, before = rows(tmp_path / "out"), rows(corpus)
    for name in ("id", "text", "input_ids"):
        assert found[name].equals(before[name])
    assert found["augmented_text"].to_pylist() == EXPECTED

    equal = sum(text == other for text, other in zip(SENTENCES, EXPECTED, strict=True))
    entry = read_json(tmp_path / "out/manifest.json")["augmentation"]
    assert 0 < equal < 20
    assert entry["counts"] == {
        "rewritten": 90 - equal,
        "source_kept": {"equal": equal},
        "truncated": 0,
        "inputs_cut": 0,
    }
    assert (entry["engine"], entry["device"]) == ("ctranslate2", "cpu")
    assert entry["forward"] == tiny_models[0]
    assert entry["forward_digest"] != entry["backward_digest"]
    result = read_json(tmp_path / "out/result.json")
    assert (result["rows"], result["source_kept_equal"]) == (90, equal)
    captured = capsys.readouterr()
    assert "translating with ctranslate2 in float32 on CPUs" in captured.err
    assert "augment  row 90/90" in captured.err
    run = own_store.get_run(result["mlflow_run_id"])
    assert run.data.params["beam"] == "1"


@pytest.mark.ray_local
@pytest.mark.usefixtures("ray_here")
def test_a_killed_driver_loses_no_row_and_none_is_translated_again(
    tiny_models, bert_folder, tmp_path
):
    many = tiny_marian.sentences(500, seed=4)
    corpus = write_corpus(tmp_path / "corpus", bert_folder, many[:300], many[300:])
    small = ("--batch-tokens", "64", "--engine", "transformers")
    words = command(corpus, tiny_models, tmp_path / "out", *small)
    ledgers, pattern = tmp_path / "out.partial", "*/scratch/*.jsonl"
    driver = Command(*words, stderr=subprocess.PIPE, text=True)
    until(
        lambda: sum(path.stat().st_size for path in ledgers.glob(pattern)) >= 4_000, process=driver
    )
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stderr.close()
    assert not (tmp_path / "out").exists()
    kept = sum(len(read_ledger(path)) for path in ledgers.glob(pattern))
    assert 0 < kept < len(many)
    assert main(words) == 0
    result = read_json(tmp_path / "out/result.json")
    # Its workers may have continued for a moment.
    assert 0 < result["rows_of_this_run"] <= len(many) - kept
    assert rows(tmp_path / "out")["augmented_text"].to_pylist() == undisturbed(corpus, tiny_models)


def undisturbed(corpus, models):
    """What the translator itself gives for each row, a part at a time."""
    options = BackTranslation(*models, engine="transformers", beam=1, batch_tokens=64)
    translator = BackTranslator(plan_translation(options, gpu=False), 1)
    found = []
    for part in sorted(corpus.glob("data/part-*.parquet")):
        table = pq.read_table(part)
        ids = table["id"].to_pylist()
        texts = dict(zip(ids, table["text"].to_pylist(), strict=True))
        batches = translator.rewrite(texts, {})
        rewrites = {rewrite.id: rewrite.text for batch in batches for rewrite in batch}
        found += [rewrites[number] for number in ids]
    return found


@pytest.mark.real
def test_a_single_worker_on_cpus_starts_no_ray(corpus, tiny_models, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(methods, "ray_session", None)
    for runs in ("ray_runs", "names_cluster"):  # whatever an earlier test has left running
        monkeypatch.setattr(shard_tasks, runs, lambda: False)
    words = command(corpus, tiny_models, tmp_path / "out", "--precision", "float32")
    assert main([*words, "--batch-tokens", "60"]) == 0
    assert rows(tmp_path / "out")["augmented_text"].to_pylist() == EXPECTED
    assert "augment  row 90/90" in capsys.readouterr().err


@pytest.mark.real
def test_every_node_of_a_cluster_must_see_the_corpus_and_both_models(
    corpus, tiny_models, tmp_path, monkeypatch
):
    seen = []

    def check(output, inputs):
        seen.extend(inputs)
        raise UserError("a node does not see it")

    monkeypatch.setattr(augment, "on_all_nodes", check)
    assert main(command(corpus, tiny_models, tmp_path / "out")) == 2
    assert seen == [str(corpus), *tiny_models]


class _StoppedError(Exception):
    pass


@pytest.mark.real
@pytest.mark.parametrize("engine", ["transformers", "ctranslate2"])
def test_a_part_stopped_anywhere_becomes_the_same_part(corpus, tiny_models, tmp_path, engine):
    """With sampling, which would show any difference between the samples."""
    drawn = {"temperature": 2.0, "seed": 4, "batch_tokens": 40, "precision": "float32"}
    options = BackTranslation(*tiny_models, engine=engine, **drawn)
    translation = plan_translation(options, gpu=False)
    tokenizer = read_json(corpus / "manifest.json")["encoder"] + "/tokenizer.json"
    name = "part-000000.parquet"

    def write(folder, batches):
        """The part, or what is kept of it when the job is stopped after so many batches."""
        (tmp_path / folder / "scratch").mkdir(parents=True, exist_ok=True)
        places = (corpus / "data", tmp_path / folder, tmp_path / folder / "scratch")
        settings = (Path(tokenizer).read_text(), 32, Limits(), False)
        plan = PartPlan(*places, (name,), *settings)
        reported = []

        def tell(rows):
            reported.append(rows)
            if len(reported) == batches:
                raise _StoppedError

        augment_part(plan, name, BackTranslator(translation, 1), tell)
        return reported

    whole = write("whole", None)
    for batches in (1, 3):
        with pytest.raises(_StoppedError):
            write("other", batches)
    rest = write("other", None)
    assert len(rest) == len(whole) - 4
    one, other = (pq.read_table(tmp_path / folder / name) for folder in ("whole", "other"))
    assert one.equals(other)
    assert one["augmented_text"].to_pylist() != EXPECTED[:50], "drawn, not the best"
