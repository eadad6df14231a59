"""The command line: help at once, one plain sentence and status 2 for every mistake."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.exceptions import OutOfMemoryError
from tiny_corpus import write_corpus

from cotbert_core.errors import UserError
from cotbert_core.templates.template_texts import TEMPLATES
from pipelines.cli import COMMANDS, main
from pipelines.commands.training import TrainingOptions, comparison
from tune_spaces import SPACES

COTBERT = str(Path(sys.executable).with_name("cotbert"))


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([COTBERT, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def place(tmp_path, monkeypatch, bert_folder):
    """What the commands below name, in the current folder."""
    for folder in ("taken", "empty"):
        (tmp_path / folder).mkdir()
    files = {
        "text.txt": "A man is playing the guitar.\nTwo dogs run.\n",
        "taken/mine": "mine",
        "pairs.tsv": "score\tsentence1\n1\ta\n",
        "bad.yaml": "a: [1\nb: }\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    texts = ["A man walks.", "Two dogs run.", "She sells shells.", "Nobody saw it."]
    write_corpus(tmp_path / "ready", bert_folder, texts)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTBERT_CACHE", str(tmp_path / "cache"))
    return {"bert": bert_folder}


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


PREPARE = "prepare --encoder {bert} --output out"
INPUT = "prepare --input text.txt --encoder"
TRAIN = "train quickstart --corpus text.txt --encoder {bert} --output out"
READY = "--corpus ready --encoder {bert} --output out --set batch_size=2"
EMBED = "embed {bert} --output out --input"
MISTAKES = {
    "recipe": ("train nothing --corpus text.txt --output out", "unknown recipe 'nothing'"),
    "recipe mistyped": ("recipes cotbert-base", r"\(did you mean cot-bert-base\?\)"),
    "setting mistyped": (f"{TRAIN} --set sede=1", r"'sede' is unknown: .*\(did you mean seed\?\)"),
    "space printed": ("spaces nothing", "unknown space 'nothing': choose one of cot-bert-ablat"),
    "space file": ("spaces bad.yaml", r"space file 'bad\.yaml': it is not valid YAML in line 2"),
    "setting": (f"{TRAIN} --set method.heat=1", "setting 'method.heat' is unknown"),
    "temperature 0": (f"{TRAIN} --set method.temperature=0", "method.temperature is 0: .*than 0"),
    "workers": (f"{TRAIN} --workers 0", "workers is 0"),
    "config path": (f"{TRAIN} --config none.yaml", "config 'none.yaml': it cannot be read"),
    "no mask": (f"{TRAIN} --set templates.anchor=a_[X]", r"at the template's \[MASK\]; add one"),
    "decoder heads": (
        f"train denosent-base {READY} --set method.heads=5 --set optimizer.warmup_steps=0",
        "method.heads is 5: it must divide the encoder's hidden size, 32",
    ),
    "no triples": (f"train promptbert-supervised {READY}", "no column 'augmented_text', which"),
    "prepare triples": (f"{PREPARE} --triples --input pairs.tsv", "no column 'sent0'"),
    "warm-up": (f"train denosent-base {READY} --set max_steps=3", "warmup_steps is 500"),
    "mlm": ("train mlm-base --corpus text.txt --output out", "is trained by `cotbert pretrain`"),
    "corpus": ("train quickstart --corpus none.txt --output out", r"'none\.txt' does not exist"),
    "train encoder": (TRAIN.replace("{bert}", "./none"), "folder './none' does not exist"),
    "train output": (TRAIN.replace("output out", "output taken"), "taken' already holds"),
    "train pairs": (f"{TRAIN} --dev-pairs none.tsv", r"'none\.tsv' does not exist"),
    "train senteval": (f"{TRAIN} --senteval none", r"sts-dev\.csv' does not exist"),
    "prepare input": (f"{PREPARE} --input none.txt", r"'none\.txt' does not exist"),
    # Before Python 3.14, exists() raises for such a name.
    "long name": (f"{PREPARE} --input {'a' * 300}.txt", "File name too long|does not exist"),
    "prepare language": (
        f"{PREPARE} --input text.txt --language klingon",
        "to keep 'klingon'",
    ),
    "prepare length": (f"{PREPARE} --input text.txt --max-length 0", "max_length is 0"),
    "prepare sample": (f"{PREPARE} --input text.txt --sample 0", "sample is 0"),
    "prepare encoder": (f"{INPUT} ./none --output out", "encoder folder './none' does not exist"),
    "prepare no encoder": (f"{INPUT} ./empty --output out", r"folder './empty' holds no config\.j"),
    "prepare output": (f"{INPUT} {{bert}} --output taken", "taken' already holds"),
    "embed input": (f"{EMBED} none.txt", r"'none\.txt' does not exist"),
    "embed column": (f"{EMBED} pairs.tsv", "no column 'text'"),
    "embed id column": (f"{EMBED} pairs.tsv --text-column score --id-column n", "no column 'n'"),
    "embed workers": (f"{EMBED} text.txt --workers 0", "workers is 0"),
    "embed template": (f"{EMBED} text.txt --template none", "unknown template 'none'"),
    "embed output": ("embed {bert} --output taken --input text.txt", "taken' already holds"),
    "embed no encoder": (
        "embed ./empty --output out --input text.txt",
        "give the folder of an enc",
    ),
    "embed encoder": ("embed ./none --output out --input text.txt", "'./none' does not exist"),
    "search folder": ("search none oil", "none' is not a folder"),
    "search top": ("search none oil --top 0", "top is 0: give at least 1"),
    "cluster down": ("cluster down --nodes 3", "--nodes belongs to `cluster up`: leave it out"),
    "index output": ("index none --format faiss --output taken", "taken' already holds"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_status_2(name, place, tmp_path, capsys):
    command, message = MISTAKES[name]
    before = contents(tmp_path)
    assert main(command.format(**place).split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("cotbert: ")
    assert re.search(message, line)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "cotbert: the following arguments are required: COMMAND; see `cotbert --help`"),
        ("nothing", "cotbert: unknown command 'nothing'; see `cotbert --help`"),
        ("trian x", "cotbert: unknown command 'trian' (did you mean train?); see `cotbert --help`"),
        ("prepare", "cotbert prepare: the following arguments are required: --input, --encoder, "),
        ("embed m --input a --output b --workres=2", "--workres=2 (did you mean --workers?); see"),
        ("embed m --input a --output b --fast", "cotbert embed: unrecognized arguments: --fast; "),
        ("search v --top x -- --odd", "cotbert search: argument --top: invalid int value: 'x';"),
        ("submit --status a --stop b -- train x --corpus c", "--stop: not allowed with argument"),
        ("embed m --input a --output b --workers 2 x", "unrecognized arguments: x; see `cotbert e"),
        ("prepare --input a --encoder b --output c --on-invalid stop", "invalid choice: 'stop'"),
        ("embed m --input a --output s3://b/c", "--output: 's3://b/c' is an address: give a path"),
        ("submit --address http://a -- index v --output gs://b/c", "--output: 'gs://b/c' is an"),
        ("embed m --input a --output b --id-column=", "--id-column: '' is an empty text: give a"),
        ("embed m --input a --output=", "argument --output: '' is an empty text: give a value, or"),
        ("train quickstart --corpus a --output b --senteval c --dev-pairs d", "not allowed with"),
        ("tune temperature --corp a --output b --sampling-se 1 --nope", "arguments: --nope; see"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(command, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(command.split())
    assert end.value.code == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert message in line
    assert captured.out == ""


def test_the_installed_command():
    assert run("--version") == (0, f"{version('cotbert')}\n", "")
    status, out, err = run("recipes", "none")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("cotbert: unknown recipe 'none'")


def test_help_lists_all_commands(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0] for line in lines if re.match(" {4}[a-z]", line)}
    assert shown >= set(COMMANDS)


def test_templates_are_listed_with_their_text(capsys):
    assert main(["templates"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [re.split(" +", line.rstrip(), maxsplit=1) for line in lines]
    # Nobody sees a blank at the end of a line: the group's name, `released`, stands for it.
    assert shown == [[name, template.text.rstrip()] for name, template in TEMPLATES.items()]


def test_spaces_are_listed_with_their_size_and_recipe(capsys):
    assert main(["spaces"]) == 0
    header, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header == ["space", "size", "recipe", "purpose"]
    assert [words[0] for words in lines] == list(SPACES)
    shown = {words[0]: words[1:3] for words in lines}
    assert shown["denosent-dropout"] == ["15", "denosent-base"]
    assert shown["temperature"] == ["continuous", "cot-bert-base"]
    assert all(len(words) > 5 for words in lines)


def printed(capsys, *words):
    """What a listing of one thing prints, by the first column."""
    assert main(list(words)) == 0
    rows = (re.split(" {2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    return dict(rows)


def test_a_space_is_printed_with_its_settings_or_variants(capsys, tmp_path):
    shown = printed(capsys, "spaces", "denosent-dropout")
    assert shown["method.dropout"] == "0.8, 0.825, 0.85, 0.875, 0.9"
    assert shown["method.layers"] == "12, 14, 16"
    assert (shown["size"], shown["recipe"]) == ("15", "denosent-base")
    grid = printed(capsys, "spaces", "temperature-grid")
    assert grid["published"].startswith("0.05: 79.40 (CoT-BERT, Table 2")
    assert "published" not in printed(capsys, "spaces", "temperature")
    shown = printed(capsys, "spaces", "cot-bert-ablations")
    assert len([key for key in shown if key.startswith("variant ")]) == 10
    assert shown["variant position-denoising"] == 'method.denoise="position"'
    assert "static-prefix: 78.91; " in shown["published"]
    file = tmp_path / "heat.yaml"
    file.write_text("recipe: quickstart\nsettings: {method.temperature: {uniform: [0.02, 0.1]}}\n")
    shown = printed(capsys, "spaces", str(file))
    assert (shown["space"], shown["size"]) == ("heat", "continuous")
    assert shown["method.temperature"] == "0.02 to 0.1, uniform"
    file.write_text(
        "recipe: quickstart\nsettings: {seed: {grid: [1, 2]}}\npublished: {1: 80, 2: 81.5}\n"
    )
    assert printed(capsys, "spaces", str(file))["published"] == "1: 80.00; 2: 81.50"


@pytest.mark.parametrize(
    ("recipe", "settings", "fault"),
    [
        ("quickstrat", "seed: {grid: [1, 2]}", "(did you mean quickstart?)"),
        ("quickstart", "sede: {grid: [1, 2]}", "'sede' is unknown"),
        ("quickstart", "templates.anchor: {grid: ['a [X]']}", "at the template's [MASK]; add one"),
        ("quickstart", "seed: {grid: [1, 2, 1]}", "the values of seed hold 1 twice; give each"),
    ],
)
def test_a_space_with_which_no_trial_could_run_is_not_printed(
    capsys, tmp_path, recipe, settings, fault
):
    file = tmp_path / "wrong.yaml"
    file.write_text(f"recipe: {recipe}\nsettings:\n  {settings}\n")
    assert main(["spaces", str(file)]) == 2
    assert fault in capsys.readouterr().err


def test_the_command_after_a_training_scores_the_tasks_that_are_there(tmp_path):
    training = TrainingOptions(corpus="c", senteval=tmp_path)
    settings = SimpleNamespace(dev="sts-b", encoder="bert")
    words = ["evaluate", "bert", Path("m")]
    assert comparison(training, settings, Path("m")) == words, "no task besides the dev set"
    (tmp_path / "SICK").mkdir()
    (tmp_path / "SICK" / "SICK_test_annotated.txt").touch()
    words += ["--senteval", tmp_path, "--allow-missing"]
    assert comparison(training, settings, Path("m")) == words


@pytest.mark.parametrize(
    ("recipe", "given", "noted"),
    [
        ("denosent-base", ("epochs=3",), True),
        ("denosent-base", ("epochs=4", "max_steps=null"), False),
        ("diffcse-base", ("epochs=5",), False),
        ("denosent-base", (), False),
    ],
)
def test_epochs_beside_a_number_of_steps_are_said_to_have_no_effect(recipe, given, noted, capsys):
    TrainingOptions(corpus="c", assignments=given).settings(recipe)
    note = "warning: epochs is 3 and has no effect, because max_steps is 5,000: to train"
    assert (note in capsys.readouterr().err) == noted


@pytest.mark.parametrize(("given", "warned"), [("2e-5", False), ("3e-5", True)])
def test_a_set_value_beside_another_of_its_option_is_said_to_have_no_effect(given, warned, capsys):
    options = TrainingOptions(
        corpus="c", learning_rate=2e-5, assignments=(f"optimizer.learning_rate={given}",)
    )
    assert options.settings("simcse-base").optimizer.learning_rate == 2e-5
    line = (
        "warning: --set optimizer.learning_rate=3e-05 has no effect, because the option for "
        "optimizer.learning_rate gives 2e-05\n"
    )
    assert capsys.readouterr().err == (line if warned else "")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("a is 1:\ngive 2"), 2, "cotbert: a is 1: give 2"),
        (RuntimeError("no luck\nmore"), 1, "cotbert: the job failed: no luck (--verbose shows "),
        (RuntimeError(), 1, "cotbert: the job failed: RuntimeError"),
        (OutOfMemoryError("killed\nset RAY"), 1, "cotbert: the job failed: Ray ended a process"),
        (PermissionError(13, "Permission denied", "m"), 2, "cotbert: 'm' cannot be opened (Perm"),
        (PermissionError(13, "Permission denied"), 1, "cotbert: the job failed: [Errno 13] Per"),
        (KeyboardInterrupt(), 130, "cotbert: interrupted"),
    ],
)
def test_failures_have_their_own_status(monkeypatch, capsys, error, status, line):
    def job(arguments):
        raise error

    monkeypatch.setattr(COMMANDS["templates"].options, "run", job)
    assert main(["templates"]) == status
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(line)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (RuntimeError("no luck"), "from there"),
        (OutOfMemoryError("killed"), "from there"),
        (RuntimeError("refused: give the same command again to continue"), "shows where)"),
    ],
)
@pytest.mark.parametrize("unfinished", [True, False])
def test_a_failed_job_says_once_that_the_same_command_continues_it(
    monkeypatch, capsys, tmp_path, error, end, unfinished
):
    def job(arguments):
        (tmp_path / ("out.partial" if unfinished else "other")).mkdir()
        raise error

    monkeypatch.setattr(COMMANDS["merge"].options, "run", job)
    assert main(["merge", "a", "b", "--output", str(tmp_path / "out")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert ("the same command continues from there" in line) == (unfinished and end == "from there")
    assert not unfinished or line.endswith(end)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("its actor died")])
def test_a_stopped_job_with_unfinished_output_is_continued(monkeypatch, capsys, tmp_path, error):
    def job(arguments):
        (tmp_path / "out.partial").mkdir()
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        raise error

    monkeypatch.setattr(COMMANDS["merge"].options, "run", job)
    assert main(["merge", "a", "b", "--output", str(tmp_path / "out")]) == 143
    last = capsys.readouterr().err
    assert last == "cotbert: stopped by SIGTERM; give the same command again to continue\n"
