"""cotbert embed without Ray: bad rows, kept columns, long texts, int8, continuing after a stop."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_folders import by_id
from tiny_corpus import rows, write_corpus

from cotbert_core.errors import UserError
from cotbert_core.evaluation.passages import cut_passages
from cotbert_core.exporting.int8_graph import save_int8
from cotbert_core.exporting.openvino_model import with_openvino
from cotbert_core.exporting.quantization import quantized
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.embedding import embed as embed_job
from pipelines.embedding.embed import EmbedOptions
from pipelines.embedding.job import open_job
from pipelines.reading import locations

LONG = "A man is playing the guitar " * 30


def skipped(folder):
    return [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]


def manifest(folder):
    return read_json(folder / "manifest.json")


def check_same(left, right, atol=0.0):
    """Two embeddings folders have the same rows and, to within atol, the same vectors."""
    one, other = by_id(left), by_id(right)
    assert [*one] == [*other]
    np.testing.assert_allclose(np.stack([*one.values()]), np.stack([*other.values()]), 0, atol)


MANY = "A man " * 200
# Lines, and what is listed of them: id, reason and text.
ROWS = (
    ('{"n": 5, "text": "A man"}', None),
    ('{"n": 6, "text": null}', (6, "null", "")),
    ('{"n": 7, "text": ["A man"]}', (7, "not_text", "['A man']")),
    ('{"n": 8, "text": "  "}', (8, "empty", "  ")),
    ('{"n": 1.5, "text": "Two dogs"}', (1.5, "bad_id", "Two dogs")),
    ('{"n": 9, "tex', (None, "invalid_json", '{"n": 9, "tex')),
    ('{"n": 10, "other": "A man"}', (10, "no_text_column", '{"n": 10, "other": "A man"}')),
    (f'{{"n": 11, "text": "{MANY}"}}', (11, "too_many_tokens", MANY[:80])),
    ('{"n": 12, "text": "oil"}', None),
)


def test_rows_that_cannot_be_used_are_listed_with_what_they_hold(tmp_path, job):
    (tmp_path / "a.jsonl").write_text("\n".join(line for line, _ in ROWS))
    result = job("out", "a.jsonl", id_column="n", on_long="error")
    assert sorted(by_id(tmp_path / "out")) == [5, 12]
    keys = ("file", "row", "id", "reason", "text")
    assert [tuple(row[key] for key in keys) for row in skipped(tmp_path / "out")] == [
        (str(tmp_path / "a.jsonl"), number, *listed)
        for number, (_, listed) in enumerate(ROWS)
        if listed
    ]
    assert (result["rows"], result["skipped"], result["skipped_too_many_tokens"]) == (2, 7, 1)


def test_texts_that_are_cut_are_counted_in_words(tmp_path, bert_folder, without_ray, capsys):
    (tmp_path / "a.txt").write_text(f"A man\n{LONG}\nA man")
    command = ["embed", bert_folder, "--input", str(tmp_path / "a.txt"), "--precision", "fp32"]
    said, results = [], []
    for number, words in enumerate(([], ["--on-long", "split-mean"], ["--passages", "60"])):
        output = tmp_path / str(number)
        assert main([*command, "--output", str(output), "--workers", "50", *words]) == 0
        said.append(capsys.readouterr().err)
        results.append(read_json(output / "result.json"))
        assert not (output / "skipped.jsonl").exists()
    cut = "note: 1 of 3 texts have more tokens than the model reads, and only their beginning"
    assert [cut in text for text in said] == [True, False, True]
    assert ["--passages" in text for text in said] == [True, False, False]
    assert "embedded, besides any passages: --on-long split-mean averages all" in said[2]
    assert "note: --workers is 50 and 1 will run, at most one for each part of the" in said[0]
    keys = ("rows", "duplicates", "workers", "truncated", "split")
    assert [results[0].get(key) for key in keys] == [3, 1, 1, 1, None]
    assert [results[1].get(key) for key in keys] == [3, 1, 1, 0, 1]
    first, mean = by_id(tmp_path / "0"), by_id(tmp_path / "1")
    np.testing.assert_allclose(first[0], mean[0], atol=1e-5)
    assert np.abs(first[1] - mean[1]).max() > 1e-3


@pytest.mark.parametrize("normalize", [False, True])
def test_a_long_text_has_the_vectors_of_its_passages(tmp_path, bert_folder, job, normalize):
    """Whole texts stay as they are; a passage that the model cannot read whole is several."""
    texts = ["A man", LONG, "A man", " ".join(["ether" * 16] * 6), LONG]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    job("plain", "a.txt", normalize=normalize)
    job("out", "a.txt", normalize=normalize, passages=4)
    check_same(tmp_path / "plain", tmp_path / "out", 1e-5)
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    passages = [cut_passages(text, 4) for text in texts]
    table = pd.read_parquet(tmp_path / "out" / "data")
    found = [np.array([*vectors]).reshape(-1, 32) for vectors in table["passages"]]
    for row in (0, 1, 2, 4):
        expected = np.zeros((0, 32))
        if passages[row]:
            expected = encoder.encode(passages[row], normalize=normalize, precision="fp32")
        np.testing.assert_allclose(found[row], expected, atol=1e-5)
    assert len(found[3]) > len(passages[3]) > 1
    made = manifest(tmp_path / "out")
    assert (made["passage_words"], made["passages"]) == (4, sum(map(len, found)))
    assert "passages" not in manifest(tmp_path / "plain")


def test_columns_are_kept_with_their_types(tmp_path, job):
    table = pa.table(
        {
            "text": ["A man", None, "Two dogs", "oil"],
            "when": pa.array([0, 1, 2, None], pa.timestamp("us")),
            "kind": pa.array(["a", "b", "a", "c"]).dictionary_encode(),
            "tags": [["x"], [], None, ["y", "z"]],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    keep = ("kind", "when", "tags", "text")
    job("out", "a.parquet", keep=keep)
    parts = sorted((tmp_path / "out").glob("data/part-*"))
    assert len(parts) == 2
    found = pa.concat_tables([pq.read_table(p) for p in parts])
    assert found.column_names == ["id", *keep, "embedding"]
    assert found["kind"].type == pa.string()
    expected = table.filter(pa.compute.is_valid(table["text"]))
    for name in keep:
        assert found[name].to_pylist() == expected[name].to_pylist()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (253_402_300_800_000_000, pa.timestamp("us")),  # the year 10000
        (253_402_300_799, pa.timestamp("s", "Europe/Berlin")),
        (1001, pa.time64("ns")),
    ],
)
def test_a_kept_time_that_python_cannot_hold_is_refused(tmp_path, job, values, kind):
    table = pa.table({"text": ["A man"], "when": pa.array([values], kind)})
    pq.write_table(table, tmp_path / "a.parquet", store_schema=True)
    with pytest.raises(UserError, match=r"'when' is of type time.* or leave out --keep$"):
        job("out", "a.parquet", keep=("when",))


def test_a_parquet_file_is_opened_once_before_its_rows_are_read(tmp_path, bert_folder, monkeypatch):
    """In a bucket that takes a tenth of a second."""
    opened, open_file = [], locations.open_file
    monkeypatch.setattr(locations, "open_file", lambda name: opened.append(name) or open_file(name))
    for name in ("a", "b"):
        table = pa.table({"id": [1], "text": ["A man"], "year": [2000]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    made = open_job(EmbedOptions(bert_folder, (str(tmp_path),), keep=("year",)))
    assert (len(opened), made.plan.id_column, made.storage.passthrough) == (
        *(2, "id"), (("year", pa.int64()),)
    )  # fmt: skip


def test_columns_of_json_and_csv_are_kept_as_text(tmp_path, job):
    """Also one that has the name of the column of `--passages`; rows without it are counted."""
    (tmp_path / "a.jsonl").write_text(
        '{"text": "A man", "n": 3, "passages": [7]}\n{"text": "oil"}\n'
    )
    (tmp_path / "b.csv").write_text("n,text,passages\n4,Two dogs,many\n")
    result = job("out", "[ab].*", keep=("n", "passages"))
    kept = pd.read_parquet(tmp_path / "out" / "data").fillna("none")
    assert kept["n"].tolist() == ["3", "none", "4"]
    assert kept["passages"].tolist() == ["[7]", "none", "many"]
    assert "passages" not in result
    (warning,) = manifest(tmp_path / "out")["warnings"]
    assert warning.endswith(
        "a.jsonl' lacks a key that --keep names in 1 of 2 rows (50.0 %), the first row 2: its "
        "value is null there"
    )


@pytest.mark.parametrize(
    ("name", "content", "options", "reasons"),
    [
        ("a.txt", b"", {}, "none read"),
        ("a.txt", b"\n\xff\n", {}, "1 empty, 1 invalid_utf8"),
        ("a.jsonl", b"", {"limit": 3, "keep": ("n",)}, "none read"),
        ("a.jsonl", b'{"text": "A man", "key": null}\n', {"id_column": "key"}, "1 bad_id"),
    ],
)
def test_input_of_nothing_is_refused_and_nothing_left(
    tmp_path, job, name, content, options, reasons
):
    (tmp_path / name).write_bytes(content)
    message = rf"none of \d rows can be embedded \({reasons}\): give other input or options"
    with pytest.raises(UserError, match=message):
        job("out", name, **options)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_the_input_or_the_model_lacks_is_refused(tmp_path, job):
    (tmp_path / "a.txt").write_text("A man")
    (tmp_path / "a.csv").write_text("text\nA man")
    (tmp_path / "a.jsonl").write_text('{"text": "A man"}')
    for name, kind in (("a", pa.int32()), ("b", pa.string())):
        table = pa.table({"text": ["A man"], "n": pa.array([None], kind)})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    for file, options, message in (
        ("a.txt", {"keep": ("n",)}, "has no columns and so no 'n'"),
        ("a.csv", {"keep": ("n",)}, "has no column 'n': it has text; name one with --keep"),
        ("a.jsonl", {"keep": ("n",)}, "has no column 'n': it has text; name one with --keep"),
        ("a.jsonl", {"id_column": "n"}, "has no column 'n': it has text; name one with --id-col"),
        ("?.parquet", {"keep": ("n",)}, r"column 'n' is int32 in .*a.parquet' and string in"),
        ("a.txt", {"id_column": "key"}, "a.txt' has no columns and so no 'key'"),
        ("a.txt", {"truncate_dim": 33}, "truncate_dim is 33 and the model's vectors have 32"),
    ):
        with pytest.raises(UserError, match=message):
            job("out", file, **options)


def test_int8_turned_back_is_the_vector(tmp_path, job, sentences):
    (tmp_path / "a.txt").write_text("\n".join(sentences))
    for dtype in ("float32", "int8"):
        result = job(dtype, "a.txt", normalize=True, truncate_dim=20, dtype=dtype)
    exact, back = (np.stack([*by_id(tmp_path / d).values()]) for d in ("float32", "int8"))
    made = manifest(tmp_path / "int8")
    np.testing.assert_allclose(np.linalg.norm(exact, axis=1), 1, atol=1e-5)
    table = pq.read_table(tmp_path / "int8" / "data")
    most = np.abs(exact).max(axis=1)
    np.testing.assert_allclose(table["scale"], most / 127, rtol=1e-5)
    assert (np.abs(back - exact) <= 0.501 * most[:, None] / 127).all()
    assert table.schema.field("embedding").type == pa.list_(pa.int8(), 20)
    facts = json.loads(table.schema.metadata[b"cotbert.embedding"])
    assert (facts["scale"], facts["truncated_from"]) == (made["scale"], 32) == ("row", 32)
    assert result["dimension"] == 20


def test_a_corpus_keeps_its_ids_in_half_precision_and_unit_length(tmp_path, bert_folder, job):
    corpus = write_corpus(tmp_path / "corpus", bert_folder, ["A man", "oil"], ["Two dogs run"])
    job("out", "corpus", dtype="float16", normalize=True)
    vectors = by_id(tmp_path / "out")
    assert [*vectors] == rows(corpus)["id"].to_pylist()
    encode = SentenceEncoder.from_pretrained(bert_folder).encode
    expected = encode(rows(corpus)["text"].to_pylist(), normalize=True, precision="fp32")
    np.testing.assert_allclose(np.stack([*vectors.values()]), expected, atol=1e-3)
    made, kinds = manifest(tmp_path / "out"), {vector.dtype for vector in vectors.values()}
    facts = (made["id_column"], made["dtype"], made["normalize"], kinds)
    assert facts == ("id", "float16", True, {np.dtype("float16")})


def write_rows(folder, count):
    texts = [None if n % 7 == 6 else "A man" + " and dogs" * n for n in range(count)]
    pq.write_table(pa.table({"id": range(100, 100 + count), "text": texts}), folder / "a.parquet")


@pytest.mark.usefixtures("small_blocks")
def test_the_next_block_is_read_while_a_gpu_encodes(tmp_path, job, monkeypatch):
    """The first block's encoder waits until the second one's texts are tokenized; it would wait in
    vain if blocks were done one after the other. Two blocks never have the encoder together."""
    write_rows(tmp_path, 30)
    undisturbed = job("quiet", "a.parquet")
    tokenize, encode = SentenceEncoder.tokenize, SentenceEncoder.encode_tokens
    tokenized, waited, inside = threading.Semaphore(0), [], threading.Lock()

    def report(self, *arguments, **options):
        ids = tokenize(self, *arguments, **options)
        tokenized.release()
        return ids

    def wait(self, *arguments, **options):
        assert inside.acquire(blocking=False), "two blocks have the encoder"
        if not waited:  # its own tokens, and those of another block
            waited.append(all(tokenized.acquire(timeout=60) for _ in range(2)))
        vectors = encode(self, *arguments, **options)
        inside.release()
        return vectors

    def in_threads(actor, arguments, count, workers, resources, calls):
        made = actor(**arguments)
        with ThreadPoolExecutor(calls) as pool:
            yield from pool.map(made, [{"id": number} for number in range(count)])

    monkeypatch.setattr(SentenceEncoder, "tokenize", report)
    monkeypatch.setattr(SentenceEncoder, "encode_tokens", wait)
    monkeypatch.setattr(embed_job, "map_shards_with_actors", in_threads)
    monkeypatch.setattr(embed_job, "worker_pool", lambda *_, **__: (1, {"num_gpus": 1}, 1))
    opened, open_job = [], embed_job.open_job
    monkeypatch.setattr(embed_job, "open_job", lambda o: opened.append(open_job(o)) or opened[-1])
    monkeypatch.setattr(embed_job, "ray_runs", lambda: True)
    result = job("out", "a.parquet")
    assert waited == [True]
    assert opened[0].encoder.backbone.device.type == "meta", "the driver keeps no weights"
    assert result["rows"] == undisturbed["rows"] == 26
    check_same(tmp_path / "out", tmp_path / "quiet")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("again", [1, 3])
def test_a_stopped_job_continues_and_does_no_block_twice(
    tmp_path, job, encoded, stopped, capsys, again
):
    """One row group, the shape of a large file, by 2 workers and then by any number."""
    write_rows(tmp_path, 30)
    undisturbed, out = job("quiet", "a.parquet"), tmp_path / "out"
    encoded.clear()
    with stopped(3):
        job("out", "a.parquet", workers=2)
    assert not out.exists()
    data = next(tmp_path.glob("out.partial/*/output/data"))
    parts = {part.name: part.stat().st_mtime_ns for part in data.iterdir()}
    assert len(parts) == 3
    result = job("out", "a.parquet", workers=again)
    assert len(encoded) == len(set(encoded)) == 26
    assert {name: (out / "data" / name).stat().st_mtime_ns for name in parts} == parts
    check_same(out, tmp_path / "quiet")
    assert skipped(out) == skipped(tmp_path / "quiet")
    of_a_run = ("rows_of_this_run", "seconds", "sentences_per_second", "workers")
    own = [key for key in result if key not in of_a_run]
    assert {key: result[key] for key in own} == {key: undisturbed[key] for key in own}
    assert (result["rows"], result["rows_of_this_run"]) == (26, 26 - 12)
    assert f"continuing {out}.partial: 12 rows are done" in capsys.readouterr().err


@pytest.mark.usefixtures("small_blocks")
def test_another_job_does_not_touch_what_a_stopped_one_left(tmp_path, job, stopped):
    write_rows(tmp_path, 30)
    with stopped(1):
        job("out", "a.parquet")
    before = sorted(tmp_path.rglob("out*/**/*"))
    with pytest.raises(UserError, match=r"settings \(options.normalize differ\): give the same"):
        job("out", "a.parquet", normalize=True)
    write_rows(tmp_path, 31)
    with pytest.raises(UserError, match=r"unfinished job with other settings \(input /"):
        job("out", "a.parquet")
    assert sorted(tmp_path.rglob("out*/**/*")) == before


def test_a_model_of_unit_vectors_gives_them_without_being_asked(tmp_path, bert_folder, job):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    encoder.pooling = replace(encoder.pooling, normalize=True)
    encoder.save_pretrained(tmp_path / "model")
    (tmp_path / "a.txt").write_text("A man\noil")
    job("out", "a.txt", model=tmp_path / "model", truncate_dim=9)
    norms = [np.linalg.norm(v) for v in by_id(tmp_path / "out").values()]
    np.testing.assert_allclose(norms, 1, rtol=1e-5)
    assert manifest(tmp_path / "out")["normalize"] is True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"truncate_dim": 0}, "truncate_dim is 0: give at least 1"),
        ({"keep_gone": True}, "keep_gone needs update"),
        ({"keep": ("a", "a")}, "keep names 'a' twice"),
        ({"keep": ("embedding",)}, "keep names 'embedding', which is also a column"),
        ({"keep": ("scale",), "dtype": "int8"}, "keep names 'scale', which is also a column"),
    ],
)
def test_options_that_cannot_be(changes, message):
    with pytest.raises(UserError, match=message):
        EmbedOptions("model", ("a.txt",), **changes)


def test_the_openvino_backend_gives_the_vectors_of_torch(tmp_path, job):
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    (tmp_path / "a.txt").write_text("A man is playing the guitar\nTwo dogs\n" + LONG)
    for name in ("torch", "openvino"):
        job(name, "a.txt", backend=name)
    check_same(tmp_path / "torch", tmp_path / "openvino", 2e-5)
    assert manifest(tmp_path / "openvino")["backend"] == "openvino"


@pytest.mark.real
def test_an_int8_graph_is_run_and_named(tmp_path, bert_folder, job, capsys):
    for name in ("openvino", "nncf"):
        pytest.importorskip(name, reason="needs the extra 'int8'")
    texts = ["A man is playing the guitar", "Two dogs", LONG]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    model, encoder = tmp_path / "model", SentenceEncoder.from_pretrained(bert_folder)
    encoder.save_pretrained(model)
    save_int8(quantized(encoder, [f"{n} dogs" for n in range(40)] + texts), model)
    vectors, made_in = {}, {}
    for precision in ("auto", "fp32"):
        job(precision, "a.txt", model=model, precision=precision)
        vectors[precision] = [*by_id(tmp_path / precision).values()]
        made = manifest(tmp_path / precision)
        made_in[precision] = made["backend"], made.get("computed_in")
    assert made_in == {"auto": ("openvino", "int8"), "fp32": ("torch", None)}
    expected = with_openvino(SentenceEncoder.from_pretrained(model)).encode(texts)
    np.testing.assert_allclose(vectors["auto"], expected, atol=1e-5)
    assert np.abs(expected - vectors["fp32"]).max() > 1e-4, "int8 rounds"
    assert "int8" not in capsys.readouterr().err
    job("plain", "a.txt", model=model, precision="auto", attention="plain")
    assert manifest(tmp_path / "plain")["backend"] == "torch"
    assert "--attention plain is for torch: the int8 graph is not used" in capsys.readouterr().err
