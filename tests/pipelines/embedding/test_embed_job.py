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

from cotbert_core.errors import UserError
from cotbert_core.evaluation.passages import cut_passages
from cotbert_core.exporting.int8_graph import save_int8
from cotbert_core.exporting.openvino_model import with_openvino
from cotbert_core.exporting.quantization import quantized
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines import embed as embed_job
from pipelines.cli import main
from pipelines.embed import EmbedOptions, embed
from pipelines.embedding import worker
from pipelines.reading import pieces

pytestmark = pytest.mark.usefixtures("without_ray")

LONG = "A man is playing the guitar " * 30


def skipped(folder):
    return [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]


def rows_of(folder):
    return pd.concat([pd.read_parquet(p) for p in sorted(folder.glob("data/part-*"))])


def options_for(model, path, **more):
    return EmbedOptions(model, (str(path),), precision="fp32", **more)


def test_rows_that_cannot_be_used_are_listed_with_what_they_hold(tmp_path, bert_folder):
    lines = [
        b'{"n": 5, "text": "A man"}',
        b'{"n": 6, "text": null}',
        b'{"n": 7, "text": ["A man"]}',
        b'{"n": 8, "text": "  "}',
        b'{"n": 1.5, "text": "Two dogs"}',
        b'{"n": 9, "tex',
        b'{"n": 10, "other": "A man"}',
        b'{"n": 11, "text": "' + b"A man " * 200 + b'"}',
        b'{"n": 12, "text": "oil"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    options = options_for(bert_folder, tmp_path / "a.jsonl", id_column="n", on_long="error")
    result = embed(options, tmp_path / "out")
    assert sorted(by_id(tmp_path / "out")) == [5, 12]
    place = str(tmp_path / "a.jsonl")
    shown = [
        (row["row"], row["id"], row["reason"], row["text"]) for row in skipped(tmp_path / "out")
    ]
    assert {row["file"] for row in skipped(tmp_path / "out")} == {place}
    assert shown == [
        (1, 6, "null", ""),
        (2, 7, "not_text", "['A man']"),
        (3, 8, "empty", "  "),
        (4, 1.5, "bad_id", "Two dogs"),
        (5, None, "invalid_json", '{"n": 9, "tex'),
        (6, 10, "no_text_column", '{"n": 10, "other": "A man"}'),
        (7, 11, "too_many_tokens", ("A man " * 200)[:80]),
    ]
    assert (result["rows"], result["skipped"], result["skipped_too_many_tokens"]) == (2, 7, 1)


def test_nothing_is_listed_where_nothing_was_skipped(tmp_path, bert_folder):
    (tmp_path / "a.txt").write_text("A man\n" + LONG + "\nA man")
    result = embed(options_for(bert_folder, tmp_path / "a.txt"), tmp_path / "out")
    assert not (tmp_path / "out" / "skipped.jsonl").exists()
    assert (result["rows"], result["truncated"], result["duplicates"]) == (3, 1, 1)
    assert 0 < result["padding_waste"] < 1
    assert result["worker_peak_mib"] > 10


def test_a_long_text_may_be_the_mean_of_its_pieces(tmp_path, bert_folder):
    (tmp_path / "a.txt").write_text("A man\n" + LONG)
    vectors = {}
    for way in ("truncate", "split-mean"):
        options = options_for(bert_folder, tmp_path / "a.txt", on_long=way, normalize=True)
        result = embed(options, tmp_path / way)
        vectors[way] = by_id(tmp_path / way)
    assert (result["split"], result["truncated"]) == (1, 0)
    np.testing.assert_allclose(vectors["truncate"][0], vectors["split-mean"][0], atol=1e-5)
    assert np.abs(vectors["truncate"][1] - vectors["split-mean"][1]).max() > 1e-3
    assert np.linalg.norm(vectors["split-mean"][1]) == pytest.approx(1, abs=1e-5)


def test_texts_that_are_cut_are_counted_in_words_unless_all_of_them_is_embedded(
    tmp_path, bert_folder, capsys
):
    (tmp_path / "a.txt").write_text(f"A man\n{LONG}")
    command = ["embed", bert_folder, "--input", str(tmp_path / "a.txt"), "--precision", "fp32"]
    for name, words, is_said in (
        ("cut", [], True),
        ("mean", ["--on-long", "split-mean"], False),
        ("passages", ["--passages", "60"], False),
    ):
        assert main([*command, "--output", str(tmp_path / name), *words]) == 0
        said = "note: 1 of 2 texts have more tokens than the model reads, and only their beginning"
        assert (said in capsys.readouterr().err) is is_said


@pytest.mark.parametrize("normalize", [False, True])
def test_a_long_text_has_the_vectors_of_its_passages(tmp_path, bert_folder, normalize):
    """Whole texts stay as they are; a passage that the model cannot read whole is several."""
    texts = ["A man", LONG, "A man", " ".join(["ether" * 16] * 6), LONG]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    options = options_for(bert_folder, tmp_path / "a.txt", normalize=normalize)
    embed(options, tmp_path / "plain")
    embed(replace(options, passages=4), tmp_path / "out")
    plain, rows = rows_of(tmp_path / "plain"), rows_of(tmp_path / "out")
    np.testing.assert_allclose(np.stack(rows["embedding"]), np.stack(plain["embedding"]), atol=1e-5)
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    passages = [cut_passages(text, 4) for text in texts]
    found = [np.array([*vectors]).reshape(-1, 32) for vectors in rows["passages"]]
    for row in (0, 1, 2, 4):
        expected = np.zeros((0, 32))
        if passages[row]:
            expected = encoder.encode(passages[row], normalize=normalize, precision="fp32")
        np.testing.assert_allclose(found[row], expected, atol=1e-5)
    assert len(found[3]) > len(passages[3]) > 1
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["passage_words"] == 4
    assert manifest["passages"] == sum(map(len, found))
    assert "passages" not in json.loads((tmp_path / "plain" / "manifest.json").read_text())


def test_columns_are_kept_with_their_types(tmp_path, bert_folder):
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
    embed(options_for(bert_folder, tmp_path / "a.parquet", keep=keep), tmp_path / "out")
    parts = sorted((tmp_path / "out").glob("data/part-*"))
    assert len(parts) == 2
    found = pa.concat_tables([pq.read_table(p) for p in parts])
    assert found.column_names == ["id", *keep, "embedding"]
    assert found["kind"].type == pa.string()
    expected = table.filter(pa.compute.is_valid(table["text"]))
    for name in keep:
        assert found[name].to_pylist() == expected[name].to_pylist()


def test_columns_of_json_and_csv_are_kept_as_text(tmp_path, bert_folder):
    (tmp_path / "a.jsonl").write_text('{"text": "A man", "n": 3}\n{"text": "oil"}\n')
    (tmp_path / "b.csv").write_text("n,text\n4,Two dogs\n")
    embed(options_for(bert_folder, tmp_path / "[ab].*", keep=("n",)), tmp_path / "out")
    assert rows_of(tmp_path / "out")["n"].fillna("none").tolist() == ["3", "none", "4"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("a.txt", "A man", "has no columns and so no 'n'"),
        ("a.csv", "text\nA man", "has no column 'n': it has text; name one with --keep"),
    ],
)
def test_columns_that_are_not_there_are_reported_first(tmp_path, bert_folder, file, text, message):
    (tmp_path / file).write_text(text)
    with pytest.raises(UserError, match=message):
        embed(options_for(bert_folder, tmp_path / file, keep=("n",)), tmp_path / "out")


def test_a_column_of_two_types_is_refused(tmp_path, bert_folder):
    for name, kind in (("a", pa.int32()), ("b", pa.string())):
        table = pa.table({"text": ["A man"], "n": pa.array([None], kind)})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(UserError, match=r"column 'n' is int32 in .*a.parquet' and string in"):
        embed(options_for(bert_folder, tmp_path / "?.parquet", keep=("n",)), tmp_path / "out")


def test_int8_turned_back_is_the_vector(tmp_path, bert_folder, sentences):
    (tmp_path / "a.txt").write_text("\n".join(sentences))
    plain = options_for(bert_folder, tmp_path / "a.txt", normalize=True, truncate_dim=20)
    embed(plain, tmp_path / "float")
    options = options_for(
        bert_folder, tmp_path / "a.txt", normalize=True, truncate_dim=20, dtype="int8"
    )
    result = embed(options, tmp_path / "int8")
    exact, back = by_id(tmp_path / "float"), by_id(tmp_path / "int8")
    manifest = json.loads((tmp_path / "int8" / "manifest.json").read_text())
    scale = np.asarray(manifest["scale"])
    assert scale.shape == (20,)
    assert manifest["calibration"]["rows"] == 2048
    for row, vector in exact.items():
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
        assert (np.abs(back[row] - vector) <= 0.501 * scale).all()
    schema = pq.read_schema(next((tmp_path / "int8").glob("data/part-*")))
    assert schema.field("embedding").type == pa.list_(pa.int8(), 20)
    facts = json.loads(schema.metadata[b"cotbert.embedding"])
    assert (facts["scale"], facts["truncated_from"]) == (manifest["scale"], 32)
    assert (result["dimension"], manifest["clipped"]) == (20, 0)


def test_more_dimensions_than_there_are_are_refused(tmp_path, bert_folder):
    (tmp_path / "a.txt").write_text("A man")
    with pytest.raises(UserError, match="truncate_dim is 33 and the model's vectors have 32"):
        embed(options_for(bert_folder, tmp_path / "a.txt", truncate_dim=33), tmp_path / "out")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 4)


def write_rows(path, rows):
    texts = [None if n % 7 == 6 else "A man" + " and dogs" * n for n in range(rows)]
    pq.write_table(pa.table({"id": range(100, 100 + rows), "text": texts}), path)


@pytest.mark.usefixtures("small_blocks")
def test_the_next_block_is_read_while_a_gpu_encodes(tmp_path, bert_folder, monkeypatch):
    """The first block's encoder waits until the second one's texts are tokenized; it would wait in
    vain if blocks were done one after the other. Two blocks never have the encoder together."""
    write_rows(tmp_path / "a.parquet", 30)
    undisturbed = embed(options_for(bert_folder, tmp_path / "a.parquet"), tmp_path / "quiet")
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
    result = embed(options_for(bert_folder, tmp_path / "a.parquet"), tmp_path / "out")
    assert waited == [True]
    assert result["rows"] == undisturbed["rows"] == 26
    found, expected = by_id(tmp_path / "out"), by_id(tmp_path / "quiet")
    assert [*found] == [*expected]
    np.testing.assert_array_equal(np.stack([*found.values()]), np.stack([*expected.values()]))


class StoppedError(Exception):
    pass


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("again", "earlier"), [(1, False), (3, False), (2, True)])
def test_a_stopped_job_continues_and_does_no_block_twice(
    tmp_path, bert_folder, monkeypatch, capsys, again, earlier
):
    """One row group, the shape of a large file, by 2 workers and then by any number.

    earlier: whether the job was begun by a version that wrote the parts beside the manifest.
    """
    write_rows(tmp_path / "a.parquet", 30)
    undisturbed = embed(options_for(bert_folder, tmp_path / "a.parquet"), tmp_path / "quiet")
    encoded, encode = [], worker.encode_block

    def stop_at_fourth(encoder, texts, *more):
        if len(encoded) == 3:
            raise StoppedError
        encoded.append(texts[0])
        return encode(encoder, texts, *more)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(worker, "encode_block", stop_at_fourth)
        with pytest.raises(StoppedError):
            embed(options_for(bert_folder, tmp_path / "a.parquet", workers=2), out)
    assert not out.exists()
    parts = {
        p.name: p.stat().st_mtime_ns for p in tmp_path.glob("out.partial/*/output/data/part-*")
    }
    assert len(parts) == 3
    if earlier:
        for part in tmp_path.glob("out.partial/*/output/data/*"):
            part.rename(part.parent.parent / part.name)

    def record(encoder, texts, *more):
        encoded.append(texts[0])
        return encode(encoder, texts, *more)

    monkeypatch.setattr(worker, "encode_block", record)
    result = embed(options_for(bert_folder, tmp_path / "a.parquet", workers=again), out)
    assert len(encoded) == len(set(encoded)) == 8
    assert {name: (out / "data" / name).stat().st_mtime_ns for name in parts} == parts
    expected = by_id(tmp_path / "quiet")
    assert by_id(out).keys() == expected.keys()
    np.testing.assert_array_equal(np.stack([*by_id(out).values()]), np.stack([*expected.values()]))
    assert skipped(out) == skipped(tmp_path / "quiet")
    of_a_run = ("rows_of_this_run", "seconds", "sentences_per_second", "workers", "driver_peak_mib")
    own = [key for key in result if key not in (*of_a_run, "worker_peak_mib")]
    assert {key: result[key] for key in own} == {key: undisturbed[key] for key in own}
    assert (result["rows"], result["rows_of_this_run"]) == (26, 26 - 12)
    assert f"continuing {out}.partial: 12 rows are done" in capsys.readouterr().err


@pytest.mark.usefixtures("small_blocks")
def test_another_job_does_not_touch_what_a_stopped_one_left(tmp_path, bert_folder, monkeypatch):
    write_rows(tmp_path / "a.parquet", 30)
    out, encode = tmp_path / "out", worker.write_json_atomic

    def stop(path, value):
        encode(path, value)
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(worker, "write_json_atomic", stop)
        with pytest.raises(StoppedError):
            embed(options_for(bert_folder, tmp_path / "a.parquet"), out)
    before = sorted(tmp_path.rglob("out*/**/*"))
    with pytest.raises(UserError, match=r"settings \(options.normalize differ\): give the same"):
        embed(options_for(bert_folder, tmp_path / "a.parquet", normalize=True), out)
    write_rows(tmp_path / "a.parquet", 31)
    with pytest.raises(UserError, match=r"unfinished job with other settings \(files"):
        embed(options_for(bert_folder, tmp_path / "a.parquet"), out)
    assert sorted(tmp_path.rglob("out*/**/*")) == before


def test_one_scale_for_all_parts_of_a_job(tmp_path, bert_folder, monkeypatch, sentences):
    (tmp_path / "a.txt").write_text("\n".join(sentences))
    options = options_for(bert_folder, tmp_path / "a.txt", dtype="int8")
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.embed.worker_pool", _stop)
        with pytest.raises(StoppedError):
            embed(options, tmp_path / "out")
    (file,) = tmp_path.glob("out.partial/*/scratch/scale.json")
    scale = [2 * s for s in json.loads(file.read_text())]
    file.write_text(json.dumps(scale))
    embed(options, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["scale"] == scale


def _stop(*_, **__):
    raise StoppedError


def test_a_model_of_unit_vectors_gives_them_without_being_asked(tmp_path, bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    from dataclasses import replace

    encoder.pooling = replace(encoder.pooling, normalize=True)
    encoder.save_pretrained(tmp_path / "model")
    (tmp_path / "a.txt").write_text("A man\noil")
    embed(
        options_for(str(tmp_path / "model"), tmp_path / "a.txt", truncate_dim=9), tmp_path / "out"
    )
    norms = [np.linalg.norm(v) for v in by_id(tmp_path / "out").values()]
    np.testing.assert_allclose(norms, 1, rtol=1e-5)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["normalize"] is True


def test_fewer_shards_than_workers_are_said(tmp_path, bert_folder, capsys):
    (tmp_path / "a.txt").write_text("A man\nTwo dogs run\n")
    result = embed(options_for(bert_folder, tmp_path / "a.txt", workers=50), tmp_path / "out")
    assert "note: --workers is 50 and 1 will run: 1 shards of the input" in capsys.readouterr().err
    assert result["workers"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "int4"}, "unknown dtype 'int4': choose one of float16, float32, int8"),
        ({"workers": -1}, "workers is -1"),
        ({"backend": "onnx"}, "unknown backend 'onnx': choose one of auto, openvino, torch"),
        ({"on_long": "cut"}, "unknown on_long 'cut'"),
        ({"truncate_dim": 0}, "truncate_dim is 0: give at least 1"),
        ({"keep": ("a", "a")}, "keep names 'a' twice"),
        ({"keep": ("embedding",)}, "keep names 'embedding', which is also a column"),
    ],
)
def test_options_that_cannot_be(changes, message):
    with pytest.raises(UserError, match=message):
        EmbedOptions("model", ("a.txt",), **changes)


def test_the_openvino_backend_gives_the_vectors_of_torch(tmp_path, bert_folder):
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    (tmp_path / "a.txt").write_text("A man is playing the guitar\nTwo dogs\n" + LONG)
    folders = {name: tmp_path / name for name in ("torch", "openvino")}
    for name, folder in folders.items():
        embed(options_for(bert_folder, tmp_path / "a.txt", backend=name), folder)
    left, right = (by_id(folder) for folder in folders.values())
    assert left.keys() == right.keys()
    for key, vector in left.items():
        np.testing.assert_allclose(right[key], vector, atol=2e-5)
    assert json.loads((folders["openvino"] / "manifest.json").read_text())["backend"] == "openvino"


@pytest.mark.real
def test_an_int8_graph_is_run_and_named(tmp_path, bert_folder):
    for name in ("openvino", "nncf"):
        pytest.importorskip(name, reason="needs the extra 'int8'")
    text = "A man is playing the guitar\nTwo dogs\n" + LONG
    (tmp_path / "a.txt").write_text(text)
    model = tmp_path / "model"
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    encoder.save_pretrained(model)
    save_int8(quantized(encoder, [f"{n} dogs" for n in range(40)] + text.splitlines()), model)
    vectors, made_in = {}, {}
    for precision in ("auto", "fp32"):
        options = replace(options_for(str(model), tmp_path / "a.txt"), precision=precision)
        embed(options, tmp_path / precision)
        vectors[precision] = by_id(tmp_path / precision)
        manifest = json.loads((tmp_path / precision / "manifest.json").read_text())
        made_in[precision] = manifest["backend"], manifest.get("computed_in")
    assert made_in == {"auto": ("openvino", "int8"), "fp32": ("torch", None)}
    expected = with_openvino(SentenceEncoder.from_pretrained(model)).encode(text.splitlines())
    np.testing.assert_allclose(list(vectors["auto"].values()), expected, atol=1e-5)
    assert np.abs(expected - list(vectors["fp32"].values())).max() > 1e-4, "int8 rounds"
