"""Drafters on disk: config.json and safetensors, in the format of the released checkpoints.

Tensor names are the parameters' names. A reduced draft vocabulary adds ``d2t`` (Vd,) int64, token id minus row, and
``t2d`` (V,) bool, as Eagle3 checkpoints have them. ``embed_tokens`` and ``lm_head`` may be absent: they are the
target's. Only safetensors are read, never pickles.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dspark_sim.atomic import written_aside
from dspark_sim.errors import InputError, nearest, shown
from dspark_sim.lab.drafters import Drafter, DrafterConfig, build
from dspark_sim.lab.drafters.released import read_config, written_config
from dspark_sim.lab.target import DTYPES, Target, device_named

__all__ = ["load_drafter", "save_drafter"]

FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
EMBEDDING, HEAD, MARKOV = "embed_tokens.weight", "lm_head.weight", "markov_head.markov_w1.weight"
MAPS = ("d2t", "t2d")
ENTRY = tuple[Path, str, tuple[int, ...]]  # file, type as safetensors names it, shape


def save_drafter(drafter: Drafter, folder: str | Path, *, embedding: bool = True) -> Path:
    """Write a drafter as ``folder/model.safetensors`` and ``folder/config.json``, in its own dtype.

    Each file appears whole or not at all, the configuration last: a folder without it is no checkpoint.

    Args:
        embedding: also write the embedding and the output head; False where they are the target's own (smaller by
            2·V·H numbers, and :func:`load_drafter` then needs the target).

    Raises:
        InputError: the folder cannot be written.
    """
    folder = Path(folder)
    weights = {name: weight.detach().cpu().contiguous() for name, weight in drafter.state_dict().items()
               if embedding or name not in (EMBEDDING, HEAD)}
    if drafter.config.draft_vocab_size is not None:
        ids = drafter.draft_ids.cpu()
        weights["d2t"] = ids - torch.arange(len(ids))
        weights["t2d"] = torch.isin(torch.arange(drafter.config.vocab_size), ids)
    config = written_config(drafter.config) | {"dtype": str(drafter.fc.weight.dtype).removeprefix("torch.")}
    try:
        with written_aside(folder / "model.safetensors") as path:
            save_file(weights, path, metadata={"format": "pt"})
        with written_aside(folder / "config.json") as path:
            path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise InputError(f"the checkpoint cannot be written ({error})", file=folder) from None
    return folder


def load_drafter(
    folder: str | Path, *, target: Target | None = None, device: str | torch.device = "cpu", dtype: str = "float32",
) -> Drafter:
    """Open a drafter: one of ours or a released checkpoint.

    The embedding and the head come frozen, everything else may be trained on; draft under ``torch.no_grad()``.

    Args:
        folder: with config.json and model.safetensors (or model.safetensors.index.json and its parts).
        target: what it drafts for: the two are checked against each other, and an embedding or head that the
            checkpoint leaves out is the target's.
        device: as in :func:`dspark_sim.lab.target.device_named`.
        dtype: float32, bfloat16 or float16; the files may be in any of them.

    Raises:
        InputError: names the file, and the key or tensor, with what was found and what is allowed.

    Warns:
        UserWarning: config.json has keys that are not known here; they are named and ignored.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype {shown(dtype)}", allowed=", ".join(DTYPES), suggestion=nearest(dtype, DTYPES))
    where = device if isinstance(device, torch.device) else device_named(device)
    folder = Path(folder).expanduser()
    config, tied, unknown = read_config(_json(folder / "config.json", folder), folder / "config.json")
    if target is not None:
        _check_target(config, target, folder / "config.json")
    entries = _entries(folder)
    config, draft_ids = _draft_vocabulary(config, entries, folder / "config.json")
    if MARKOV in entries and config.draft_vocab_size and entries[MARKOV][2] == (config.vocab_size, config.markov_rank):
        config = replace(config, markov_all_tokens=True)
    with torch.device("meta"):
        drafter = build(config, draft_ids)
    wanted = {name: tuple(weight.shape) for name, weight in drafter.state_dict().items()}
    borrowed = {name for name in (EMBEDDING, HEAD) if name not in entries}
    if tied and HEAD in borrowed and EMBEDDING not in borrowed:
        borrowed.discard(HEAD)
    elif borrowed and target is None:
        raise InputError(f"has no {' and no '.join(sorted(borrowed))}: this drafter uses its target's", file=folder,
                         allowed="load_drafter(folder, target=…)")
    _check_tensors(wanted, entries, folder, optional={EMBEDDING, HEAD})
    try:
        weights = {name: value.to(DTYPES[dtype]).to(where) for name, value in _read(entries, wanted)}
    except torch.OutOfMemoryError:
        raise InputError(f"{where} has too little memory for this drafter in {dtype}", file=folder,
                         allowed="another device, or dtype bfloat16") from None
    if EMBEDDING in borrowed:
        assert target is not None
        weights[EMBEDDING] = target.model.get_input_embeddings().weight.detach().to(where, DTYPES[dtype])
    if HEAD not in weights:
        source = target.head_weight.detach() if HEAD in borrowed and target is not None else weights[EMBEDDING]
        weights[HEAD] = (source if draft_ids is None else source[draft_ids.to(source.device)]).to(where, DTYPES[dtype])
    drafter.load_state_dict(weights, strict=True, assign=True)
    drafter.to(where)
    drafter.embed_tokens.requires_grad_(False)
    drafter.lm_head.requires_grad_(False)
    if unknown:
        warnings.warn(f"{folder / 'config.json'}: ignored keys that are not known here: {', '.join(unknown)}",
                      UserWarning, stacklevel=2)
    return drafter.eval()


def _json(path: Path, folder: Path) -> Any:
    if not folder.is_dir():
        raise InputError(f"no drafter {str(folder)!r}",
                         allowed="a folder on this machine with config.json and model.safetensors")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"has no {path.name}", file=folder,
                         allowed="a drafter's folder: config.json and model.safetensors") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})", file=path) from None


def _check_target(config: DrafterConfig, target: Target, file: Path) -> None:
    for key, got, has in (("vocab_size", config.vocab_size, target.vocab_size),
                          ("hidden_size", config.hidden_size, target.hidden_size),
                          ("num_target_layers", config.num_target_layers, target.layers)):
        if got is not None and got != has:
            raise InputError(f"got {got}: this drafter is not for target {target.name}, which has {has}", file=file,
                             key=key, allowed=str(has))
    if config.target_layer_ids[-1] >= target.layers:
        raise InputError(f"got {list(config.target_layer_ids)}: target {target.name} has {target.layers} layers",
                         file=file, key="target_layer_ids", allowed=f"rising numbers from -1 to {target.layers - 1}")


def _entries(folder: Path) -> dict[str, ENTRY]:
    """Every tensor of the checkpoint: where it lies, its type and shape."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return {name: entry for name, entry in _header(whole)}
    if not index.is_file():
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
        raise InputError(f"{pickles[0]} is a pickle, which can run code and is never read" if pickles
                         else "has no weights", file=folder,
                         allowed="model.safetensors, or model.safetensors.index.json with its parts")
    parts = _json(index, folder)
    named = parts.get("weight_map") if isinstance(parts, dict) else None
    if not isinstance(named, dict) or not named or not all(isinstance(f, str) and Path(f).name == f
                                                           for f in named.values()):
        raise InputError("no weight_map from tensors to files of this folder", file=index)
    entries: dict[str, ENTRY] = {}
    for part in sorted(set(named.values())):
        if not (folder / part).is_file():
            raise InputError(f"names {part}, which is not there", file=index, allowed="all parts of the checkpoint")
        entries |= _header(folder / part)
    for name, part in named.items():
        if name not in entries:
            raise InputError(f"tensor {name} is not in it, although {index.name} says so", file=folder / part)
    return entries


def _header(path: Path) -> Iterator[tuple[str, ENTRY]]:
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (not a dict)
                part = file.get_slice(name)
                yield name, (path, part.get_dtype(), tuple(part.get_shape()))
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"truncated, or not safetensors ({error})", file=path,
                         allowed="a whole safetensors file: copy it again") from None


def _draft_vocabulary(
    config: DrafterConfig, entries: dict[str, ENTRY], file: Path
) -> tuple[DrafterConfig, Tensor | None]:
    """The configuration with its draft vocabulary, and the token ids of that; None for all."""
    size, vocabulary = config.draft_vocab_size, config.vocab_size
    if "d2t" not in entries:
        if size is not None:
            raise InputError(f"got {size}, but the checkpoint has no tensor d2t", file=file, key="draft_vocab_size",
                             allowed="the tensor d2t (token id minus row), or no reduced vocabulary")
        return config, None
    path, _, shape = entries["d2t"]
    if len(shape) != 1 or size not in (None, shape[0]):
        raise InputError(f"tensor d2t has shape {list(shape)}", file=path,
                         allowed=f"[{size or 'draft_vocab_size'}], as config.json says")
    maps = dict(_read(entries, [name for name in MAPS if name in entries], floats=False))
    ids = maps["d2t"].long() + torch.arange(shape[0])
    if not 0 < len(ids) <= vocabulary or int(ids.min()) < 0 or int(ids.max()) >= vocabulary or bool(
            (ids.diff() <= 0).any()):
        raise InputError("tensor d2t does not lead to rising token ids", file=path,
                         allowed=f"row + d2t[row] rising, from 0 to {vocabulary - 1}")
    if "t2d" in maps and not torch.equal(maps["t2d"].bool(), torch.isin(torch.arange(vocabulary), ids)):
        raise InputError("tensor t2d names other tokens than d2t", file=entries["t2d"][0],
                         allowed=f"[{vocabulary}], true at the {len(ids)} draft tokens")
    return replace(config, draft_vocab_size=len(ids)), ids


def _check_tensors(
    wanted: dict[str, tuple[int, ...]], entries: dict[str, ENTRY], folder: Path, optional: set[str]
) -> None:
    """One error for the first thing that is wrong: missing, not of this model, of another shape or type."""
    missing = [name for name in wanted if name not in entries and name not in optional]
    extra = [n for n in entries if n not in wanted and n not in MAPS and not n.endswith("rotary_emb.inv_freq")]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"tensor {missing[0]} {list(wanted[missing[0]])} is missing{more}", file=folder,
                         allowed="all tensors of the model that config.json describes",
                         suggestion=nearest(missing[0], extra))
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise InputError(f"tensor {extra[0]}{more} is not part of the model that config.json describes",
                         file=entries[extra[0]][0], allowed=f"{len(wanted)} tensors, such as {next(iter(wanted))}",
                         suggestion=nearest(extra[0], wanted))
    for name, shape in wanted.items():
        if name in entries:
            path, kind, got = entries[name]
            if got != shape:
                raise InputError(f"tensor {name} has shape {list(got)}", file=path,
                                 allowed=f"{list(shape)}, as config.json says")
            if kind not in FLOATS:
                raise InputError(f"tensor {name} is of type {kind}", file=path, allowed=", ".join(FLOATS))


def _read(entries: dict[str, ENTRY], names: Any, floats: bool = True) -> Iterator[tuple[str, Tensor]]:
    """The tensors ``names`` that are there, file by file."""
    for path in dict.fromkeys(entries[n][0] for n in names if n in entries):
        try:
            with safe_open(path, framework="pt") as file:
                for name in (n for n in names if n in entries and entries[n][0] == path):
                    value = file.get_tensor(name)
                    if floats and not bool(torch.isfinite(value).all()):
                        raise InputError(f"tensor {name} holds NaN or infinite numbers", file=path)
                    yield name, value
        except (SafetensorError, OSError) as error:
            raise InputError(f"truncated, or not safetensors ({error})", file=path,
                             allowed="a whole safetensors file: copy it again") from None
