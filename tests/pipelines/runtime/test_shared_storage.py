"""What a node does not see of a job's folders; tests/cluster asks real nodes."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext

import pytest

from cotbert_core.errors import UserError
from pipelines.runtime import shared_storage
from pipelines.runtime.shared_storage import _probe, invisible_paths, on_all_nodes


def test_what_is_not_there_is_reported_in_its_order_and_what_comes_late_is_waited_for(tmp_path):
    (tmp_path / "there").mkdir()
    paths = [str(tmp_path / name) for name in ("b", "there", "a")]
    assert invisible_paths(paths, seconds=0) == [paths[0], paths[2]]
    late = tmp_path / "late"
    threading.Timer(0.1, late.touch).start()
    assert invisible_paths([str(late)], seconds=60) == []


@pytest.mark.parametrize("there", ["", "out", "out/deep"])
def test_the_probe_lies_where_the_output_will_and_does_not_stay(tmp_path, there):
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    with _probe(tmp_path / "out" / "deep") as probe:
        assert probe.parent == tmp_path / there
        assert probe.is_file()
    assert not probe.exists()


def test_a_place_that_cannot_be_written_is_a_users_mistake(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(shared_storage.Path, "write_text", refuse)
    message = r"out' cannot be written \(\[Errno 30\] Read-only file system\)"
    with pytest.raises(UserError, match=message), _probe(tmp_path / "out"):
        pytest.fail("the block ran")


@pytest.mark.parametrize(
    ("address", "seen"), [("", []), ("local", []), ("10.0.0.1:6379", ["session", ["/corpus"]])]
)
def test_without_a_cluster_nothing_is_asked(tmp_path, monkeypatch, address, seen):
    asked = []
    monkeypatch.setattr(shared_storage, "ray_session", lambda: nullcontext(asked.append("session")))
    monkeypatch.setattr(shared_storage, "check_visible", lambda _, inputs: asked.append(inputs))
    monkeypatch.delitem(sys.modules, "ray", raising=False)  # no session of this process
    monkeypatch.setenv("RAY_ADDRESS", address)
    if not address:
        monkeypatch.delenv("RAY_ADDRESS")
    inputs = ("/corpus", "bert-base-uncased", "s3://b/c", "/corpus")
    with on_all_nodes(tmp_path / "out", inputs):
        assert asked == seen
