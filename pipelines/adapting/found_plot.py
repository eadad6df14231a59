"""The plot of an adaptation: how many held-out queries find their document first, or how many
labelled texts are nearest to one of their label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.adapting.choosing import UNTOUCHED
from pipelines.evaluating.scoring import (
    FOUND_FIRST,
    KEYWORDS,
    PASSAGES,
    PASSAGES_WITH_KEYWORDS,
    SAME_LABEL,
    WITH_KEYWORDS,
    score_of,
)
from pipelines.reports.colours import BLUE, GREY, ORANGE

_SEARCHES = {
    FOUND_FIRST: "",
    WITH_KEYWORDS: ", with keyword search",
    PASSAGES: ", by passages",
    PASSAGES_WITH_KEYWORDS: ", by passages with keyword search",
}


def found_plot(
    result: Mapping[str, Any], models: Mapping[str, Any], label: Callable[[str], str] = str
) -> str:
    """Return a plot in which the new encoder follows the untouched one, in each kind of search, or
    by the labels that chose it.

    result: of an adaptation. models: the scores of models by name, of which those that were not
    handed back are shown last. label: returns what a model is called.
    """
    from pipelines.reports import plots  # matplotlib

    chosen = result["chosen"]
    bars: dict[str, tuple[float, Any, Any]] = {}
    colours: dict[str, str] = {}
    of_models = {UNTOUCHED: GREY, chosen: ORANGE}

    def add(name: str, task: str, text: str) -> None:
        entry = models[name][task]
        bars[text] = (score_of(entry), entry.get("low"), entry.get("high"))
        colours[text] = GREY if task == KEYWORDS else of_models.get(name, BLUE)

    if SAME_LABEL in result["table"]:
        for name in dict.fromkeys((UNTOUCHED, chosen, *models)):
            add(name, SAME_LABEL, label(name))
        return plots.score_bars(bars, colours, "labelled texts nearest to one of the same label, %")
    for task, words in _SEARCHES.items():
        if task not in result["table"]:
            continue
        if task == WITH_KEYWORDS:
            add(UNTOUCHED, KEYWORDS, "keyword search alone")
        for name in dict.fromkeys((UNTOUCHED, chosen)):
            add(name, task, f"{label(name)}{words}")
    for name in models:
        add(name, FOUND_FIRST, label(name))
    return plots.score_bars(bars, colours, "held-out queries found first, %")
