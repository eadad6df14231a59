"""A folder of SentEval's tasks: checked against the published numbers, and downloaded."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import shutil
import tarfile
import threading

import pytest

from cotbert_core.evaluation.sts import STS_TASKS
from cotbert_core.evaluation.transfer_data import TRANSFER_TASKS
from pipelines.cli import main
from pipelines.evaluating.senteval_folder import DEV_PAIRS, EXAMPLES, PAIRS, PRESENT, check_folder


def write_sick(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\n"
    for name, count in rows.items():
        lines = "".join(f"{n}\ta man runs\ta dog runs\t{n % 5}\n" for n in range(count))
        (folder / f"SICK_{name}.txt").write_text(head + lines)


@pytest.fixture
def tasks(tmp_path):
    """SICK as published, and TREC without its test set."""
    write_sick(tmp_path / "tasks" / "SICK", {"test_annotated": 4927, "trial": 500})
    (tmp_path / "tasks" / "TREC").mkdir()
    (tmp_path / "tasks" / "TREC" / "train_5500.label").write_text("NUM:count How many ?\n" * 5452)
    return tmp_path / "tasks"


@pytest.fixture
def site(tmp_path):
    """A local HTTP server: the address, and the folder that it serves."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with serve(handler) as address:
        yield address, folder


@contextlib.contextmanager
def serve(handler):
    """Run a local HTTP server and yield its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_every_task_has_a_published_number():
    assert set(PAIRS) == set(STS_TASKS)
    assert set(EXAMPLES) == set(TRANSFER_TASKS)
    assert set(DEV_PAIRS) <= set(PAIRS)


def test_real_files_are_as_published(shared, capsys):
    folder = shared / "data" / "senteval"
    states = check_folder(folder)
    absent = {task for task, state in states.items() if state == "missing"}
    assert absent == {"STS14", "STS15", "STS16", "MR", "SUBJ"}
    assert {state for task, state in states.items() if task not in absent} == {PRESENT}
    assert main(["data", "check", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "9 of 14 tasks are there" in shown
    assert "STS14 would be in STS/STS14-en-test" in shown
    assert "--tasks STS12,STS13,STS-B,SICK-R,CR,MPQA,SST2,TREC,MRPC" in shown


def test_what_is_cut_short_is_named_with_status_2(tasks, capsys):
    states = check_folder(tasks)
    assert states["SICK-R"] == PRESENT
    assert states["TREC"] == "TREC/TREC_10.label is missing"
    (tasks / "TREC" / "TREC_10.label").write_text("NUM:count How many ?\n" * 499)
    write_sick(tasks / "SICK", {"trial": 499})
    states = check_folder(tasks)
    assert states["TREC"] == "5,951 examples and 5,952 were published"
    assert states["SICK-R"] == "499 dev pairs and 500 were published"
    (tasks / "TREC" / "TREC_10.label").write_text("WHO How many ?\n")
    assert main(["data", "check", str(tasks)]) == 2
    said = capsys.readouterr()
    assert "SICK-R, TREC cannot be scored as published" in said.err
    assert "label is 'WHO How many ?'" in said.out


def test_a_folder_without_tasks_is_refused(tmp_path, capsys):
    assert main(["data", "check", str(tmp_path)]) == 2
    assert "has none of SentEval's tasks" in capsys.readouterr().err
    assert main(["data", "check", str(tmp_path / "no")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["data", "check", str(tmp_path), "--url", "http://x"]) == 2


@pytest.mark.parametrize("inside", ["", "data/"])
def test_an_archive_is_downloaded_unpacked_and_checked(tmp_path, tasks, site, inside, capsys):
    address, folder = site
    shutil.rmtree(tasks / "TREC")
    (tasks / "STS").mkdir()
    with tarfile.open(folder / "tasks.tar", "w") as packed:
        for name in ("SICK", "STS"):
            packed.add(tasks / name, f"{inside}{name}")
    output = tmp_path / "deep" / "mine"
    assert main(["data", "fetch", str(output), "--url", f"{address}/tasks.tar"]) == 0
    assert "1 of 14 tasks are there" in capsys.readouterr().out
    assert (output / "SICK" / "SICK_trial.txt").is_file()
    assert [path.name for path in output.parent.iterdir()] == ["mine"], "nothing else is left"
    assert main(["data", "fetch", str(output), "--url", f"{address}/tasks.tar"]) == 2
    assert "already holds something" in capsys.readouterr().err


def archive(*names):
    """A tar archive of files of these names."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as made:
        for name in names:
            made.addfile(tarfile.TarInfo(name))
    return data.getvalue()


def failed_fetch(tmp_path, address, capsys):
    """The last line of the errors of a download that ends with status 2 and leaves nothing."""
    before = sorted(tmp_path.iterdir())
    assert main(["data", "fetch", str(tmp_path / "mine"), "--url", address]) == 2
    assert sorted(tmp_path.iterdir()) == before
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>not found</html>", "did not send an archive of files"),
        (archive("../escaped"), "did not send an archive of files"),
        (archive("README"), "has no folder STS"),
        (None, "cannot be downloaded"),
    ],
)
def test_what_is_no_archive_of_tasks_leaves_nothing(tmp_path, site, capsys, content, message):
    address, folder = site
    if content is not None:
        (folder / "tasks.tar").write_bytes(content)
    assert message in failed_fetch(tmp_path, f"{address}/tasks.tar", capsys)


@pytest.mark.parametrize("address", ["nowhere", "http://127.0.0.1:9/tasks.tar"])
def test_an_address_that_does_not_answer_is_one_sentence(tmp_path, capsys, address):
    error = failed_fetch(tmp_path, address, capsys)
    assert error.startswith(f"cotbert: {address} cannot be downloaded")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "Remote end closed connection without response"),
        (b"hello\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "4 of 9 bytes were received"),
        (CHUNKED + b"9\r\nhalf", "IncompleteRead"),
    ],
)
def test_a_connection_that_breaks_is_one_sentence(tmp_path, capsys, answer, reason):
    class Breaking(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.wfile.write(answer)

    with serve(Breaking) as address:
        error = failed_fetch(tmp_path, address, capsys)
    assert error.startswith(f"cotbert: {address} cannot be downloaded (")
    assert reason in error
