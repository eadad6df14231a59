"""What a trial runs, before Ray has a part in it."""

from __future__ import annotations

from cotbert_core.files import write_json
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.tuning.trial import _with_first_cores, one_line


def test_a_trial_continues_with_the_cores_it_began_with(tmp_path):
    """Others would be another run, which `train` does not continue."""
    now = TrainSettings(encoder="none", cpus_per_worker=1)
    assert _with_first_cores(now, tmp_path / "new") == now
    for cores in (None, 4):
        began = override(now, {"cpus_per_worker": cores})
        write_json(tmp_path / "settings.json", {"settings": flatten(began)})
        assert _with_first_cores(now, tmp_path) == began != now


def test_an_error_is_its_last_line():
    assert one_line("Traceback\n  somewhere\nloss is nan") == "loss is nan"
    assert one_line(ValueError()) == "ValueError"
