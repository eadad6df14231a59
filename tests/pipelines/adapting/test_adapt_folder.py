"""The folder of an adaptation that is refused, or continued after an interruption."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from dataclasses import replace

import pytest

from cotbert_core.errors import ReadError, UserError
from cotbert_core.evaluation import held_out, searches
from cotbert_core.files import write_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.adapting import adapt as job
from pipelines.adapting import merging
from pipelines.adapting.final_model import SAVED_READOUTS
from pipelines.adapting.job_record import INPUTS_FILE, record, require_same_inputs
from pipelines.adapting.options import AdaptOptions
from pipelines.adapting.report import write_adapt_report
from pipelines.cleaning.options import CleanOptions
from pipelines.options.shared import MODEL_ALONE
from pipelines.preparing.prepare import check_input
from pipelines.storage.held_out_file import read_held_out
from pipelines.storage.output_folder import open_output
from pipelines.storage.resumable_output import locked_output
from pipelines.training.dev_sets import OWN_NAME


@pytest.fixture
def options(tmp_path, bert_folder):
    (tmp_path / "texts.txt").write_text("A dog. It ran.\n")
    return AdaptOptions((str(tmp_path / "texts.txt"),), bert_folder, candidates=("simcse",))


@pytest.fixture
def refused(unrecorded, monkeypatch):
    """Documents that `prepare` refuses."""

    def refuse(*_):
        raise UserError("too few documents")

    monkeypatch.setattr(job, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(job, "prepare", refuse)


def shard_of(output, options):
    """A shard of an adaptation whose documents are being prepared."""
    open_output(output, "adaptation", record(options))
    shard = output / "corpus.partial" / "shard"
    shard.parent.mkdir()
    shard.write_text("1")
    return shard


def test_a_second_start_does_not_touch_a_running_adaptation(tmp_path, options):
    output = tmp_path / "out"
    shard = shard_of(output, options)
    with locked_output(output), pytest.raises(UserError, match="is being written by process"):
        job.adapt(options, output)
    assert shard.is_file()


def test_a_read_error_keeps_what_is_prepared(tmp_path, options, refused, monkeypatch):
    shard = tmp_path / "out" / "corpus.partial" / "shard"

    def fail(*_):
        shard.parent.mkdir()
        shard.write_text("1")
        raise ReadError("timed out: give the same command again")

    monkeypatch.setattr(job, "prepare", fail)
    with pytest.raises(ReadError):
        job.adapt(options, tmp_path / "out")
    assert shard.is_file()


@pytest.mark.parametrize(("file", "stays"), [("record.json", False), ("shard", True)])
def test_nothing_stays_of_a_kill_as_the_corpus_appeared(
    tmp_path, options, refused, monkeypatch, file, stays
):
    def stop(*_):
        raise RuntimeError("the corpus is opened")

    output, partial = tmp_path / "out", tmp_path / "out" / "corpus.partial"
    monkeypatch.setattr(job.Corpus, "open", stop)
    open_output(output, "adaptation", record(options))
    write_json(output / "corpus" / "result.json", {})
    write_json(partial / file, {"job": "prepare"})
    (partial / "0123" / "scratch").mkdir(parents=True)
    with pytest.raises(RuntimeError, match="the corpus is opened"):
        job.adapt(options, output)
    assert partial.exists() is stays


def test_a_refused_continuation_keeps_the_work_of_the_killed_one(tmp_path, options, refused):
    shard = shard_of(tmp_path / "out", options)
    with pytest.raises(UserError, match="too few documents"):
        job.adapt(options, tmp_path / "out")
    others = replace(options, candidates=(), without=("simcse",))
    with pytest.raises(UserError, match=r"started with other settings \(the candidates\): give"):
        job.adapt(others, tmp_path / "out")
    assert shard.is_file()


@pytest.mark.parametrize(
    ("stored", "refused_as"), [(True, "have changed"), (False, "one continues")]
)
def test_a_corpus_of_other_inputs_is_not_continued(
    tmp_path, options, refused, monkeypatch, stored, refused_as
):
    """Adaptations of earlier versions have no stamps and continue."""
    shard_of(tmp_path / "out", options)
    stamps = check_input(options.prepare_options()).stamps
    require_same_inputs(tmp_path / "out", stamps, is_prepared=False)
    write_json(tmp_path / "out" / "corpus" / "result.json", {})
    if not stored:
        (tmp_path / "out" / INPUTS_FILE).unlink()
    (tmp_path / "texts.txt").write_text("Another dog. It ran.\n")

    def refuse(*_, **__):
        raise UserError("this one continues")

    monkeypatch.setattr(job, "_tracked", refuse)
    with pytest.raises(UserError, match=refused_as):
        job.adapt(options, tmp_path / "out")


def test_workers_that_would_never_start_are_refused_first(tmp_path, options):
    many = replace(options, workers=4096, batch_size=4096)
    with pytest.raises(UserError, match="workers is 4096 with 1 core"):
        job.adapt(many, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_labels_that_have_changed_are_not_continued_with(tmp_path, options, refused):
    labels = tmp_path / "labels.csv"
    rows = [f"Ticket {number} is open,{number % 2}\n" for number in range(40)]
    labels.write_text("text,label\n" + "".join(rows))
    labelled = replace(options, labelled=str(labels))
    shard_of(tmp_path / "out", labelled)
    with pytest.raises(UserError, match="too few documents"):
        job.adapt(labelled, tmp_path / "out")
    write_json(tmp_path / "out" / "corpus" / "result.json", {})
    labels.write_text("text,label\n" + "".join(rows[1:]))
    with pytest.raises(UserError, match=r"have changed .* such as '.*labels.csv .labels.'"):
        job.adapt(labelled, tmp_path / "out")


@pytest.mark.parametrize(("made", "left"), [((), False), (("corpus",), False), (("trials",), True)])
def test_a_start_that_is_refused_before_a_training_leaves_nothing(
    tmp_path, options, refused, monkeypatch, made, left
):
    """A mended command would be refused for its other settings."""

    def refuse(_, corpus, *__):
        for name in made:
            (corpus.parent / name).mkdir()
        raise UserError("too few documents")

    monkeypatch.setattr(job, "prepare", refuse)
    with pytest.raises(UserError, match="too few documents"):
        job.adapt(options, tmp_path / "out")
    assert (tmp_path / "out").exists() == left


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        # Of three sentences, two are dev queries.
        (40, {"hold_out": 3}, r"have 1 test query: at least 2 .* a larger --hold-out"),
        # Its rows are packed then, but a mended command would be refused for its other batches.
        (80, {"pretrain": 3}, r"batch_size is 64 and the corpus '.*packed' has \d+ pack"),
    ],
)
def test_what_no_training_can_use_is_refused_before_one_and_leaves_nothing(
    tmp_path, options, without_ray, monkeypatch, rows, changes, message
):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{n} {'man dog ice oil ' * 3}.\n" for n in range(rows)))
    monkeypatch.setattr(job, "ray_session", lambda *_: nullcontext())
    with pytest.raises(UserError, match=message):
        job.adapt(replace(options, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_test_queries_are_asked_once_when_the_winner_is_known(
    tmp_path, options, without_ray, monkeypatch
):
    """By each encoder that is shown; everything before asks dev queries alone."""
    rows = (f"{n} man dog ice {n}. The oil rose {n} by {n}.\n" for n in range(60))
    (tmp_path / "texts.txt").write_text("".join(rows))
    options = replace(options, documents="row", clean=CleanOptions(split="en"))
    asked, real = [], held_out.unit_vectors

    def ask(encode, queries, texts):
        asked.append({*queries})
        return real(encode, queries, texts)

    def train(_, __, corpus, dev, ___):
        asked.append({*dev[OWN_NAME].queries})
        encoder = SentenceEncoder.from_pretrained(options.encoder)
        encoder.save_pretrained(corpus.path.parent / "trials" / "simcse" / "model")
        cells = dict.fromkeys(("best_step", "steps", "error"))
        return [{"name": "simcse", "status": "finished", "dev_found_first": 100.0, **cells}], []

    for module in (held_out, searches):
        monkeypatch.setattr(module, "unit_vectors", ask)
    monkeypatch.setattr(job, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(job, "_train", train)
    result = job.adapt(options, tmp_path / "out")
    assert [*result["models"]] == ["untouched", "simcse", "merged"]
    corpus = tmp_path / "out" / "corpus"
    test, dev = ({*read_held_out(corpus, half).queries} for half in ("test", "dev"))
    assert len(test) == len(dev) == 6, "premise"
    before = [*SAVED_READOUTS, "in the training", "of the average"]
    assert asked == [*(dev for _ in before), *3 * [test | dev]]


def test_graded_pairs_that_are_missing_are_found_before_anything_is_prepared(tmp_path, options):
    dev_alone = tmp_path / "senteval" / "STS" / "STSBenchmark" / "sts-dev.csv"
    dev_alone.parent.mkdir(parents=True)
    start = "main\tnews\t2012\t1\t"
    dev_alone.write_text(f"{start}5.0\tA dog ran.\tIt was running.\n{start}0.0\tA dog.\tRain.\n")
    for given, message in (
        ({"dev_pairs": tmp_path / "none.tsv"}, "none.tsv' does not exist"),
        ({"senteval": tmp_path / "senteval"}, "has none of the tasks STS-B|lacks STS-B"),
    ):
        with pytest.raises(UserError, match=message):
            job.adapt(replace(options, **given), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["Dense", "Pooling"])
def test_an_encoder_whose_modules_are_not_read_is_refused_first(
    tmp_path, options, bert_folder, kind
):
    encoder = tmp_path / "encoder"
    shutil.copytree(bert_folder, encoder)
    write_json(encoder / "modules.json", [{"type": f"models.{kind}", "path": "1"}])
    write_json(encoder / "1" / "config.json", {"pooling_mode_max_tokens": True})
    with pytest.raises(UserError, match="is not supported: copy the folder without modules"):
        job.adapt(replace(options, encoder=str(encoder)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_encoder_with_few_positions_is_refused_first(tmp_path, options, monkeypatch):
    monkeypatch.setattr("cotbert_core.encoder.row_limits.least_tokens", lambda encoder: 0)
    monkeypatch.setattr("cotbert_core.encoder.row_limits.most_tokens", lambda encoder: 65)
    with pytest.raises(UserError, match=r"takes at most 65 tokens and adapt trains on .* up to 64"):
        job.adapt(options, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_best_candidate_is_averaged_anew(tmp_path, monkeypatch):
    """A failed candidate is repeated when the job continues, and may be the best then."""
    made = []

    def merge(first, second, weight, output):
        made.append(second)
        write_json(output / "result.json", {"second": second})

    monkeypatch.setattr(merging, "merge", merge)
    for name in ("simcse", "simcse", "denosent-rest"):
        merging.average("base", tmp_path / name, tmp_path / "merged")
    assert made == [str(tmp_path / "simcse"), str(tmp_path / "denosent-rest")]

    def killed(folder, ignore_errors):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        merging.average("base", tmp_path / "simcse", tmp_path / "merged")
    assert not (tmp_path / "merged" / "result.json").exists()


def test_pretraining_has_the_batches_of_the_candidates(tmp_path, options, monkeypatch):
    monkeypatch.setattr(job, "pretrain", lambda settings, *_, **__: seen.append(settings))
    seen, given = [], replace(options, pretrain=3, batch_size=8)
    asked = job._Job(given, tmp_path, None, (), MODEL_ALONE)
    job._pretrained(asked, options.encoder, None, None)
    assert [settings.batch_size for settings in seen] == [8]


@pytest.mark.parametrize(("seconds", "shown"), [(61.0, " in 1:01."), (None, ".")])
def test_the_time_of_a_continued_job_is_not_that_of_its_last_run(tmp_path, options, seconds, shown):
    result = {"encoder": "MiniLM", "chosen": "untouched", "winner": "untouched", "sentences": 3}
    entry = {"found_first": 1.0, "low": 0.5, "queries": 2, "documents": 1}
    result |= {"changed_queries": None, "models": {"untouched": {"held-out": entry}}}
    result |= {"documents": {"by": "none", "held_out": 3}, "seconds": seconds}
    result |= {"table": {"held-out": {"before": 1.0, "after": 1.0}}}
    result |= {"dev": {"untouched": 1.0, "merged": 0.5}, "notes": ["2 of 3 rows are long"]}
    result["rows"] = {"read": 1300, "kept": 3, "duplicate": 1297}
    failed = {"name": "simcse", "status": "failed", "error": "the loss is nan"}
    result["trials"] = [failed | dict.fromkeys(("dev_found_first", "best_step", "steps"))]
    write_adapt_report(tmp_path / "report.html", result, options)
    page = (tmp_path / "report.html").read_text()
    assert f"tried on 3 sentences{shown}" in page, "the untouched encoder is handed back"
    assert "merged: the average of the best candidate" in page
    assert "simcse failed: the loss is nan" in page
    assert "<td>documents</td><td>none</td>" in page
    read = "1,300 read, 3 kept, 1,297 duplicate (corpus/report.html)"
    cells = page.partition("<h2>Sentences</h2>")[2].partition("</table>")[0]
    assert re.findall(r"<td>(.*?)</td>", cells) == [
        *("rows", read, "held out", "3", "test queries", "2"),
    ]
    found = {"by": "column:topic", "documents": 9, "one_sentence": 2, "held_out": 3}
    write_adapt_report(tmp_path / "report.html", {**result, "documents": found}, options)
    cells = (tmp_path / "report.html").read_text().partition("<h2>Documents</h2>")[2]
    assert re.findall(r"<td>(.*?)</td>", cells.partition("</table>")[0]) == [
        *("rows", read, "a document", "the rows with the same topic"),
        *("documents to train on", "9", "of these with a single sentence", "2", "held out", "3"),
        *("test queries", "2", "documents of the test queries", "1"),
    ]
    assert '<p class="note">Note: 2 of 3 rows are long.</p>' in page
