"""Hostile texts in a model card, as a Markdown reader shows it and as Python runs it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import yaml

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.saving.lineage import CARD_FILE
from cotbert_core.saving.markdown import code, plain, yaml_string
from cotbert_core.saving.model_card import add_scores
from cotbert_core.saving.model_card_code import transformers_lines
from cotbert_core.saving.training_metadata import Score, TrainingMetadata
from pipelines.training.training_metadata import published

OF_A_TABLE = {"table", "thead", "tbody", "tr", "th", "td", "code"}
HTML = "<img src=x onerror=alert(1)>"
HOSTILE = (
    f"a ` {HTML} b",
    f"a `` {HTML} ``` b ` c",
    f"`{HTML}`",
    f"| {HTML} | b",
    f"a \\| {HTML} `",
    f"a \\\\| {HTML} \\",
    f"a\n\n{HTML}\n```\n{HTML}",
    f"</code></td></table>{HTML}",
    "&lt;script&gt; &amp; &#124;",
    "[harmless](javascript:alert(1)) ![](http://tracker.example/x.png)",
    "[a]: http://x.example 'b'",
    "**bold** __bold__ ~~gone~~ _x_ $y$",
    "user\u202egnp.exe \x1b[2J",
    "--- \n- evil: true",
    "<!-- further scores go above this line -->",
    " ",
    "`",
    "plain_name-1.txt",
)


class Elements(HTMLParser):
    """The tags of a page, and the text of each table cell."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.cells, self._in_cell = set(), [], False
        self.feed(page)
        self.cells = [" ".join(cell.split()) for cell in self.cells]

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self._in_cell = tag == "td" or (self._in_cell and tag == "code")
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag != "td"

    def handle_data(self, data):
        if self._in_cell:
            self.cells[-1] += data


def rendered(text):
    markdown_it = pytest.importorskip("markdown_it", reason="no reader of Markdown is installed")
    return Elements(markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(text))


def shown(text):
    """What a person should read: the text on one line, hidden characters spelled out."""
    return " ".join(text.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b").split())


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("put", [code, plain], ids=["code", "plain"])
def test_a_text_in_a_cell_is_read_as_it_stands(text, put):
    page = rendered(f"| a | b |\n| --- | --- |\n| {put(text)} | last |\n")
    assert page.tags <= OF_A_TABLE
    assert page.cells == [shown(text), "last"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_yaml_value_is_the_text(text):
    read = yaml.safe_load(f"a: {yaml_string(text)}\ntags:\n- {yaml_string(text)}\nb: 1\n")
    assert read == {"a": read["a"], "tags": [read["a"]], "b": 1}
    assert " ".join(read["a"].split()) == shown(text)
    assert yaml.safe_load(f"a: {yaml_string('null')}") == {"a": "null"}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_card_of_hostile_texts_holds_no_html_of_theirs(bert_folder, tmp_path, text):
    template = f"{text} [X] [MASK]"
    encoder = SentenceEncoder.from_pretrained(bert_folder, template=template)
    settings = {
        "encoder": f"/models/{text.replace('/', ' ')}",
        "templates.anchor": template,
        "method.name": text,
        "method.layers": text,
        f"method.{text}": 1,
        "optimizer.schedule": text,
    }
    encoder.pooling = replace(encoder.pooling, method=text, settings=settings)
    metadata = TrainingMetadata(
        {"source": code(published(text))}, [Score(text, 1.0, 2.0)], {"date": "2026-11-22"}
    )
    encoder.save_pretrained(tmp_path / "saved", metadata)
    add_scores(tmp_path / "saved", [Score(text, None, 3.0)])
    card = (tmp_path / "saved" / CARD_FILE).read_text(encoding="utf-8")
    _, front, body = card.split("---\n", 2)
    assert set(yaml.safe_load(front)) == {"library_name", "pipeline_tag", "tags"}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", card)
    page = rendered(body)
    assert page.tags <= {*OF_A_TABLE, "pre", "h1", "h2", "p"}
    assert page.cells.count(shown(template)) == 2, "template and anchor in training"
    name = shown(text)
    after = [page.cells[place + 2] for place, cell in enumerate(page.cells) if cell == name]
    assert after[-2:] == ["2.00", "3.00"] or not name


@pytest.mark.parametrize("token", ['")\nimport os #', "'\"\\", "\u202e\x1b", "[READOUT]", "```"])
def test_the_code_of_a_card_holds_a_token_as_a_literal(token):
    lines = transformers_lines(PoolingConfig("mean"), token)
    reported = []
    tokenizer = SimpleNamespace(convert_tokens_to_ids=reported.append)
    names = {"inputs": {"input_ids": 0}, "tokenizer": tokenizer}
    (read,) = (line for line in lines.splitlines() if line.startswith("read = "))
    exec(read, names)
    assert reported == [token]
    assert "import os" not in [line.strip() for line in lines.splitlines()]
    assert all(line.isprintable() for line in lines.splitlines())


@pytest.mark.parametrize(
    "name",
    ["s3://key:S3cret@bucket/a.txt", "https://u:S3cret@h/a.txt?token=S3cret", "hf://S3cret@x/y"],
)
def test_an_input_is_published_without_credentials(name):
    assert "S3cret" not in published(name)
