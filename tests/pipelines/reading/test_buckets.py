"""`cotbert prepare` from a bucket: a server that speaks S3, on this machine."""

from __future__ import annotations

import gzip
import os

import forked
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from read_inputs import prepared

from cotbert_core.files import read_json
from pipelines.storage.corpus import Corpus


@pytest.fixture
def bucket(monkeypatch):
    """An empty bucket's address; the environment says where it is and lends a key."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield "corpora"
    server.stop()


def exports(home):
    """A folder as users have them: four formats, one file that is of no use."""
    (home / "deep").mkdir(parents=True)
    (home / "a.txt").write_text("one dog\n\ntwo dogs\n")
    (home / "b.csv.gz").write_bytes(gzip.compress(b"n,text\n1,three dogs\n2,one dog\n"))
    jsonl = b'{"text": "four dogs"}\nno json\n'
    (home / "deep" / "c.jsonl.zst").write_bytes(pa.compress(jsonl, codec="zstd", asbytes=True))
    texts = [f"{n} dogs saw a man" for n in range(3000)]
    pq.write_table(pa.table({"text": texts}), home / "deep" / "d.parquet", row_group_size=1000)
    (home / "notes.pdf").write_bytes(b"%PDF")
    return home


@pytest.mark.ray_local
@pytest.mark.usefixtures("without_ray")
def test_a_folder_in_a_bucket_is_read_as_one_on_this_machine(tmp_path, bert_folder, bucket):
    home = exports(tmp_path / "exports")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    system = fs.S3FileSystem(allow_bucket_creation=True, endpoint_override=endpoint)
    system.create_dir(bucket)
    fs.copy_files(str(home), f"{bucket}/exports", destination_filesystem=system)
    ours = prepared(tmp_path / "here", bert_folder, home)

    to = ("--output", str(tmp_path / "there"), "--encoder", bert_folder)
    done = forked.run("prepare", "--input", f"s3://{bucket}/exports", *to)
    assert done.returncode == 0, done.stderr
    found = read_json(tmp_path / "there" / "result.json")
    same = ("rows_read", "rows", "dropped_duplicate", "dropped_empty", "dropped_invalid_json")
    expected = read_json(tmp_path / "here" / "result.json")
    assert {k: found.get(k) for k in same} == {k: expected.get(k) for k in same}
    assert (found["rows"], found["files_ignored"]) == (3004, 1)
    assert Corpus.open(tmp_path / "there").texts() == ours.texts()
    # A glob, and one file by its name.
    inputs = f"s3://{bucket}/exports/**/*.zst?region=us-east-1", f"s3://{bucket}/exports/a.txt"
    texts = prepared(tmp_path / "some", bert_folder, *inputs).texts()
    assert set(texts.values()) == {"one dog", "two dogs", "four dogs"}


@pytest.mark.real
def test_a_bucket_that_is_not_there_is_reported_in_one_sentence(tmp_path, bert_folder, bucket):
    to = ("--output", str(tmp_path / "out"), "--encoder", bert_folder)
    done = forked.run("prepare", "--input", "s3://nobodys/exports", *to)
    assert done.returncode == 2
    assert done.stderr.startswith("cotbert: input 's3://nobodys/exports' ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("out*"))
