"""How vectors are read from an encoder, and how a model folder remembers it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cotbert_core.encoder.backbone import hub_answers, locate_encoder
from cotbert_core.encoder.heads import HEADS
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.encoder.template_denoising import DENOISERS
from cotbert_core.errors import UserError, unknown
from cotbert_core.files import part_of, read_json, read_object, write_json
from cotbert_core.method_settings import Denoise, HeadName, PadPositions
from cotbert_core.templates.template_texts import Template, resolve_template

READING_FILE = "cotbert.json"
POOLING_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


@dataclass(frozen=True)
class Reading:
    """How vectors are read from an encoder; a saved folder remembers it.

    max_length: most tokens of a sentence, template not counted; None: what the encoder takes.
    full_stop: the papers' rule for evaluation, see `end_with_full_stop`.
    denoise: subtract the template's bias at inference too. head: a layer behind the readout that
    was trained with the encoder and stays, see `cotbert_core.encoder.heads`.
    blank: a byte-level tokenizer gets a blank before the sentence though there is no template.
    empty_blank: an empty sentence in a template gets that blank too, as in the released code.
    last: pairs of token ids, see `BoundTemplate`.
    method, settings: how the encoder was trained, for the record.
    """

    readout: str = "mean"
    template: Template | None = None
    max_length: int | None = None
    full_stop: bool = False
    normalize: bool = False
    denoise: Denoise = "none"
    pad_positions: PadPositions = "aligned"
    head: HeadName | None = None
    blank: bool = False
    empty_blank: bool = False
    last: tuple[tuple[int, int], ...] = ()
    method: str | None = None
    settings: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.readout not in READOUTS:
            raise unknown("readout", self.readout, READOUTS)
        if self.readout == "mask" and self.template is None:
            raise UserError("readout 'mask' reads a template's mask: give a template too")
        if self.denoise not in (*DENOISERS, "none"):
            raise unknown("denoising mode", self.denoise, (*DENOISERS, "none"))
        if self.head is not None and self.head not in HEADS:
            raise unknown("head", self.head, HEADS)
        # JSON knows lists alone.
        object.__setattr__(self, "last", tuple((old, new) for old, new in self.last))
        if self.denoise != "none" and self.readout != "mask":
            raise UserError(
                f"denoise is {self.denoise!r} with the {self.readout} readout: it subtracts a "
                "template's mask vector; give a template and leave the readout out"
            )

    @property
    def leading_blank(self) -> bool:
        """Whether a byte-level tokenizer gets a blank before a sentence."""
        return self.template is not None or self.blank


def reading_of(
    name: str,
    template: Template | str | None = None,
    readout: str | None = None,
    max_length: int | None = None,
    denoise: Denoise | None = None,
) -> Reading:
    """The reading of an encoder NAME: what its folder remembers, changed by what is asked for."""
    reading = Reading(**load_reading(name))
    if template is not None:
        chosen = template if isinstance(template, Template) else resolve_template(template)
        reading = replace(
            reading,
            template=chosen,
            readout=readout or "mask",
            full_stop=True,
            normalize=False,
            max_length=None,
            denoise="none",
            head=None,
            last=(),
        )
    elif readout is not None and readout != reading.readout:
        kept = reading.template if readout == "mask" else None
        reading = replace(
            reading,
            readout=readout,
            template=kept,
            normalize=False,
            denoise="none",
            head=None,
            last=(),
        )
    if denoise is not None:
        reading = replace(reading, denoise=denoise)
    if max_length is not None:
        if max_length < 1:
            raise UserError(f"max_length is {max_length}: give at least 1 token")
        reading = replace(reading, max_length=max_length)
    return reading


def load_reading(name: str) -> dict[str, Any]:
    """The fields of a Reading that the folder of an encoder NAME remembers, else its pooling."""
    folder = Path(locate_encoder(name))
    if not folder.is_dir():
        folder = _small_hub_files(name)
    if (folder / READING_FILE).is_file():
        values = read_object(part_of(folder, READING_FILE))
        if values.pop("format", None) != 1:
            raise UserError(
                f"{folder / READING_FILE} is not of format 1: open the folder with the version "
                "that wrote it, or copy it again"
            )
        strange = sorted(set(values) - {field.name for field in fields(Reading)})
        if strange:
            raise UserError(
                f"{folder / READING_FILE} names {', '.join(strange)}, which this version does not "
                "know: open the folder with the version that wrote it, or a newer one"
            )
        return _checked_fields(folder / READING_FILE, values)
    if (folder / "modules.json").is_file():
        return _sentence_transformers_reading(folder)
    return {}


def _checked_fields(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The fields as a Reading has them; UserError for one of another type."""
    kinds = get_type_hints(Reading)
    template = values.get("template")
    if template is not None:
        _check_template(file, template)
        values = values | {"template": Template(**template)}
    for name, value in values.items():
        if name in ("denoise", "head") and isinstance(value, str):
            continue  # Reading knows the names and says them
        if name == "template":
            continue  # made by then
        try:
            # As JSON, where a list stands for a tuple.
            TypeAdapter(kinds[name]).validate_json(json.dumps(value), strict=True)
        except (ValidationError, RecursionError):
            raise _wrong(file, name, value) from None
    length = values.get("max_length")
    if length is not None and length < 1:
        raise _wrong(file, "max_length", length)
    return values


def _check_template(file: Path, template: Any) -> None:
    known = {field.name for field in fields(Template)}
    if not isinstance(template, dict) or "text" not in template or set(template) - known:
        raise _wrong(file, "template", template)
    if not all(isinstance(part, str) and part for part in template.values()):
        raise _wrong(file, "template", template)


def _wrong(file: Path, name: str, value: Any) -> UserError:
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else "a value"
    return UserError(
        f"{str(file)!r} gives {name} as {shown[:80]}, which it cannot be: copy the folder again "
        "from where it was made"
    )


def _small_hub_files(name: str) -> Path:
    """A folder with the files of a hub encoder that say how it is read; from the cache when the
    hub does not answer."""
    from huggingface_hub import snapshot_download

    wanted = ["modules.json", "*/config.json", "*_config.json", READING_FILE]
    try:
        return Path(
            snapshot_download(name, allow_patterns=wanted, local_files_only=not hub_answers())
        )
    except (OSError, ValueError) as error:
        raise UserError(
            f"encoder {name!r} is not in the hub's cache and cannot be fetched "
            f"({str(error).splitlines()[0]}): give a folder or a name that this machine can reach"
        ) from None


def _sentence_transformers_reading(folder: Path) -> dict[str, Any]:
    """Readout, length and normalisation of a sentence-transformers folder."""
    reading: dict[str, Any] = {}
    for module in _modules(folder / "modules.json"):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Transformer":
            # sentence-transformers 6 keeps the limit with the tokenizer, which says 1e30 for none.
            limit = _limit(folder / "sentence_bert_config.json", "max_seq_length")
            limit = limit or _limit(folder / "tokenizer_config.json", "model_max_length")
            # [CLS] and [SEP] count towards it there, not here.
            reading["max_length"] = limit - 2 if limit and limit < 1e30 else None
        elif kind == "Pooling":
            reading["readout"] = _pooling_mode(part_of(folder, f"{module['path']}/config.json"))
        elif kind == "Normalize":
            reading["normalize"] = True
        else:
            raise UserError(
                f"encoder {str(folder)!r} has a {kind} module, which is not read here: give "
                "--readout and a folder without modules.json, or encode it with "
                "sentence-transformers"
            )
    return reading


def _modules(file: Path) -> list[dict[str, str]]:
    """The entries of modules.json; UserError where they have no type or path, or one outside."""
    modules = read_json(file)
    if not isinstance(modules, list):
        raise UserError(f"{str(file)!r} holds no list of modules: copy the folder again")
    for module in modules:
        texts = module if isinstance(module, dict) else {}
        if not all(isinstance(texts.get(key), str) for key in ("type", "path")):
            raise UserError(
                f"{str(file)!r} has a module without a type and a path: copy the folder again"
            )
        part_of(file.parent, module["path"])
    return modules


def _pooling_mode(config: Path) -> str:
    values = read_object(config)
    modes = [mode for key, mode in POOLING_MODES.items() if values.get(key)]
    named = values.get("pooling_mode")
    modes += [named] if isinstance(named, str) and named in POOLING_MODES.values() else []
    others = [k for k, v in values.items() if k.startswith("pooling_mode_") and v is True]
    if len(modes) != 1 or len(others) > 1:
        raise UserError(f"{config} names a pooling other than cls or mean: give --readout")
    return modes[0]


def _limit(path: Path, key: str) -> int | None:
    """The tokens that a file allows, special tokens included; None where it names none."""
    value = read_object(path).get(key) if path.is_file() else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 3:
        raise _wrong(path, key, value)
    return int(min(value, 1e30))


def save_reading(reading: Reading, folder: Path) -> None:
    """Write what `load_reading` reads."""
    write_json(folder / READING_FILE, {"format": 1} | asdict(reading))
