"""Held-out packed rows: the dev set of masked language modelling, scored by the method itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotbert_core.methods import Method
from cotbert_core.methods.mlm import Mlm
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.recording.metric_names import DEV_MLM_ACCURACY

ROWS_NAME = "held-out rows"


@dataclass(frozen=True)
class MaskedRows:
    """Rows of token ids that no step trains on."""

    rows: Ragged

    def score(self, method: Method) -> dict[str, float]:
        """Return the score of a dev check by its name; each worker scores its share."""
        assert isinstance(method, Mlm)
        return {DEV_MLM_ACCURACY: method.accuracy(self.rows)}


def masked_rows(dev: Mapping[str, Any]) -> MaskedRows | None:
    """Return the dev set of masked rows, if there is one."""
    return next((one for one in dev.values() if isinstance(one, MaskedRows)), None)
