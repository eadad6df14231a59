"""cotbert generate-templates: generate templates with T5 from words and their definitions.

The output file has one template per line, the most likely first, in the format of search-template.
"""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, counted
from cotbert_core.files import read_text, write_text
from cotbert_core.template_search.generation import (
    FORMS,
    Definition,
    Generated,
    Generator,
    fill_blanks,
    load_generator,
    templates_of,
)
from pipelines.recording import tracking
from pipelines.runtime.progress import Progress, say
from pipelines.storage.output_folder import require_new_file
from pipelines.templates.options import GenerateOptions

# The prefix of T5's sentinel tokens, which must not occur in a definition.
SENTINEL = "<extra_id_"


def generate_templates(options: GenerateOptions, output: Path) -> dict[str, Any]:
    """Generate templates and return the result; invalid options raise UserError first."""
    output = require_new_file(output)
    definitions, bad = read_definitions(options.definitions)
    chosen = _sampled(definitions, options)
    generator = load_generator(options.model)
    started = time.perf_counter()
    with tracking.tracked_run("generate-templates", vars(options), output=output) as run:
        generated = _generate(generator, chosen, options)
        if not generated.templates:
            raise RuntimeError("no output has [X] and [MASK] once each: give a larger --beam")
        write_text(output, "".join(f"{text}\n" for text, _ in generated.templates))
        best, score = generated.templates[0]
        result = {
            "model": options.model,
            "definitions": len(chosen),
            "bad_lines": bad,
            "templates": len(generated.templates),
            "malformed": generated.malformed,
            "repeated": generated.repeated,
            "best_template": best,
            "best_log_probability": score,
            "seconds": round(time.perf_counter() - started, 2),
            "mlflow_run_id": run.id,
        }
        run.result(result)
        run.tags({"best_template": best})
        run.artifact(output)
    return result


def read_definitions(path: Path) -> tuple[list[Definition], int]:
    """Return the distinct definitions of a file and its number of invalid lines.

    Raises UserError if the file cannot be read or has no definition.
    """
    lines = read_text(path, "definitions").splitlines()
    read = [_definition(line) for line in lines if line.strip()]
    valid = [definition for definition in read if definition is not None]
    definitions, bad = list(dict.fromkeys(valid)), len(read) - len(valid)
    if not definitions:
        raise UserError(
            f"definitions {str(path)!r} has no line like `orange: a large round juicy citrus "
            "fruit`: write one definition per line"
        )
    if bad or len(definitions) < len(valid):
        say(
            f"{path}: {counted(bad, 'line')} without a definition and "
            f"{counted(len(valid) - len(definitions), 'repeated line')} are ignored"
        )
    return definitions, bad


def _definition(line: str) -> Definition | None:
    """Return the parsed `word<tab>definition` or `word: definition`, or None if it is invalid."""
    word, _, text = line.partition("\t" if "\t" in line else ":")
    word, text = " ".join(word.split()), " ".join(text.split())
    return Definition(word, text) if word and text and SENTINEL not in line else None


def _sampled(definitions: list[Definition], options: GenerateOptions) -> list[Definition]:
    if options.examples is None:
        return definitions
    if options.examples > len(definitions):
        raise UserError(
            f"examples is {options.examples} and {str(options.definitions)!r} has "
            f"{len(definitions)} definitions: give a smaller number"
        )
    return random.Random(options.seed).sample(definitions, options.examples)


def _generate(
    generator: Generator, definitions: list[Definition], options: GenerateOptions
) -> Generated:
    most = options.max_tokens + 2
    progress = Progress("generate", most * len(FORMS), "token")
    outputs = {}

    def show(before: int, step: int) -> None:
        if before + step == 1:  # a step of a single row: the time of the others is longer
            progress.start_at(1)
        progress.show(before + step)

    for number, form in enumerate(FORMS):
        outputs[form] = fill_blanks(
            generator,
            definitions,
            form,
            beam=options.beam,
            max_tokens=options.max_tokens,
            count=options.count,
            on_step=partial(show, number * most),
        )
    return templates_of(generator, outputs, options.count)
