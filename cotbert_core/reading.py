"""How vectors are read from an encoder, and how a model folder remembers it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from cotbert_core.backbone import hub_answers, locate_encoder
from cotbert_core.denoising import DENOISERS
from cotbert_core.errors import UserError, unknown
from cotbert_core.files import read_json, write_json
from cotbert_core.heads import HEADS
from cotbert_core.method_settings import Denoise, HeadName, PadPositions
from cotbert_core.readout import READOUTS
from cotbert_core.templates import Template, resolve_template

READING_FILE = "cotbert.json"
POOLING_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


@dataclass(frozen=True)
class Reading:
    """How vectors are read from an encoder; a saved folder remembers it.

    max_length: most tokens of a sentence, template not counted; None: what the encoder takes.
    full_stop: the papers' rule for evaluation, see `end_with_full_stop`.
    denoise: subtract the template's bias at inference too. head: a layer behind the readout that
    was trained with the encoder and stays, see `cotbert_core.heads`.
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
        values: dict[str, Any] = read_json(folder / READING_FILE)
        values.pop("format")
        strange = sorted(set(values) - {field.name for field in fields(Reading)})
        if strange:
            raise UserError(
                f"{folder / READING_FILE} names {', '.join(strange)}, which this version does not "
                "know: open the folder with the version that wrote it, or a newer one"
            )
        template = values.pop("template")
        return values | {"template": Template(**template) if template else None}
    if (folder / "modules.json").is_file():
        return _sentence_transformers_reading(folder)
    return {}


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
    for module in read_json(folder / "modules.json"):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Transformer":
            # sentence-transformers 6 keeps the limit with the tokenizer, which says 1e30 for none.
            limit = _entry(folder / "sentence_bert_config.json", "max_seq_length")
            limit = limit or _entry(folder / "tokenizer_config.json", "model_max_length")
            # [CLS] and [SEP] count towards it there, not here.
            reading["max_length"] = limit - 2 if limit and limit < 1e30 else None
        elif kind == "Pooling":
            reading["readout"] = _pooling_mode(folder / module["path"] / "config.json")
        elif kind == "Normalize":
            reading["normalize"] = True
        else:
            raise UserError(
                f"encoder {str(folder)!r} has a {kind} module, which is not read here: give "
                "--readout and a folder without modules.json, or encode it with "
                "sentence-transformers"
            )
    return reading


def _pooling_mode(config: Path) -> str:
    values = read_json(config)
    modes = [mode for key, mode in POOLING_MODES.items() if values.get(key)]
    named = values.get("pooling_mode")
    modes += [named] if isinstance(named, str) and named in POOLING_MODES.values() else []
    others = [k for k, v in values.items() if k.startswith("pooling_mode_") and v is True]
    if len(modes) != 1 or len(others) > 1:
        raise UserError(f"{config} names a pooling other than cls or mean: give --readout")
    return modes[0]


def _entry(path: Path, key: str) -> Any:
    return read_json(path).get(key) if path.is_file() else None


def save_reading(reading: Reading, folder: Path) -> None:
    """Write what `load_reading` reads."""
    write_json(folder / READING_FILE, {"format": 1} | asdict(reading))
