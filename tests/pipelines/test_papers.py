"""docs/papers.md: every command in it is one, and every link leads somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cotbert_core.templates.template_texts import TEMPLATES
from pipelines.cli import build_parser
from pipelines.recipes import RECIPES, settings_for

PARSER = build_parser()
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "papers.md").read_text(encoding="utf-8")
# What the page writes for what a user fills in.
STANDS_FOR = {
    "TRAIN": "--corpus wiki1m_for_simcse.txt --senteval DIR --output OUT",
    "T": "--senteval DIR",
    "method.heads=N": "method.heads=4",
    "method.layers=N": "method.layers=12",
    "method.dropout=P": "method.dropout=0.85",
}
# Options that a row speaks of, without a command to give them to.
NAMED_ONLY = ("--augmented-column", "--augmented-column NAME")


# The recipe that an option of a section's rows belongs to.
RECIPE = {"CoT-BERT": "cot-bert-base", "PromptBERT": "promptbert-base", "DenoSent": "denosent-base"}


def commands(paper: str) -> list[str]:
    """The commands of a paper's tables, whole."""
    found = []
    for code in re.findall(r"`([^`]+)`", "\n".join(table(paper))):
        if code.startswith("cotbert "):
            found.append(code.removeprefix("cotbert "))
        elif code.startswith("--set "):
            found.append(f"train {RECIPE[paper]} TRAIN {code}")
        elif code.startswith("--") and code not in NAMED_ONLY:
            found.append(f"evaluate bert-base-uncased T {code}")
    return found


def table(paper: str) -> list[str]:
    section = PAGE.split(f"\n## {paper}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][2:]


@pytest.mark.parametrize("paper", RECIPE)
def test_every_command_is_one(paper):
    assert len(commands(paper)) > 5
    for command in commands(paper):
        words = [w for word in shlex.split(command) for w in STANDS_FOR.get(word, word).split(" ")]
        arguments = PARSER.parse_args([w for w in words if w != "..."])
        assert arguments.command_name == words[0]
        if words[0] == "train":
            settings_for(arguments.recipe, None, getattr(arguments, "assignments", ()), {})


@pytest.mark.parametrize(
    ("paper", "tables", "figures"), [("CoT-BERT", 6, 3), ("PromptBERT", 15, 2), ("DenoSent", 3, 4)]
)
def test_every_table_and_figure_has_a_row(paper, tables, figures):
    first = [line.split("|")[1] for line in table(paper)]
    drawn = {n for cell in first if "Figure" in cell for n in numbers(cell)}
    given = {n for cell in first if re.match(r" \d", cell) for n in numbers(cell)}
    assert drawn == set(range(1, figures + 1))
    assert given == set(range(1, tables + 1))


def numbers(cell: str) -> set[int]:
    return {int(n) for n in re.findall(r"\d+", cell.split(":")[0])}


def test_recipes_and_templates_are_named():
    of_no_paper = ["documents", "mlm-base", "mlm-small", "quickstart"]
    shown = set(re.findall(r"cotbert (?:train|recipes) ([\w-]+)", PAGE))
    assert sorted(set(RECIPES) - shown) == of_no_paper
    ways = set(re.findall(r"templates.anchor=(cot-bert/[\w-]+)/anchor", PAGE))
    assert len(ways) == 5
    assert {f"{way}/{role}" for way in ways for role in ("anchor", "positive")} <= set(TEMPLATES)


def test_every_link_leads_somewhere():
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings}
    assert set() < set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
