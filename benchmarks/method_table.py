"""Settings with which each method takes a step, for the checks on a GPU and the tests."""

from __future__ import annotations

from typing import Any

ALONE = {"templates.positive": None, "templates.negative": None}
BARE = {"templates.anchor": None, **ALONE}
BARE_METHODS = (
    *("simcse", "promcse", "consert", "esimcse", "arccse", "dclr", "diffcse", "rankcse", "pcl"),
    *("tsdae", "mlm"),
)
ALL_METHODS: dict[str, dict[str, Any]] = {
    "cot-bert": {},
    "promptbert": {"method.name": "promptbert", "templates.negative": None},
    "promptbert-supervised": {"method.name": "promptbert-supervised", **ALONE},
    "optiprompt": {"method.name": "optiprompt", **ALONE},
    "denosent": {"method.name": "denosent", "templates.anchor": "denosent", **ALONE},
    **{name: {"method.name": name, **BARE} for name in BARE_METHODS},
    "sncse": {"method.name": "sncse", "templates.negative": None},
}
