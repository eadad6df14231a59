"""What happens to the folder of an adaptation that is refused."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from cotbert_core.errors import UserError
from pipelines import adapt as job
from pipelines.adapting.job_record import open_folder
from pipelines.adapting.options import AdaptOptions
from pipelines.storage.resumable_output import locked_output


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
    open_folder(output, options)
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


def test_a_refused_continuation_keeps_the_work_of_the_killed_one(tmp_path, options, refused):
    shard = shard_of(tmp_path / "out", options)
    with pytest.raises(UserError, match="too few documents"):
        job.adapt(options, tmp_path / "out")
    assert shard.is_file()


def test_a_refused_start_leaves_nothing(tmp_path, options, refused):
    with pytest.raises(UserError, match="too few documents"):
        job.adapt(options, tmp_path / "out")
    assert not (tmp_path / "out").exists()
