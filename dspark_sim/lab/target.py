"""The served model: any Hugging Face causal LM directory, seen as what drafters and collection need of it.

Shapes: B sequences, L tokens, H hidden size, V vocabulary, F chosen layers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from dspark_sim.errors import InputError, nearest, shown
from dspark_sim.lab.gemma import NAME, gemma_directory

__all__ = ["Cache", "Target", "TargetOutput", "device_named", "load_target", "set_threads"]

Cache: TypeAlias = Any  # transformers' DynamicCache
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class TargetOutput:
    """One forward pass.

    Attributes:
        features: (B, L, F·H) raw outputs of the chosen layers, concatenated in rising order (-1 is the embedding
            output); empty last dimension if none was asked for.
        last: (B, L, H) after the final norm: what the head reads.
        cache: keys and values so far, None if not asked for.
    """

    features: Tensor
    last: Tensor
    cache: Cache | None


class Target:
    """A frozen causal LM.

    Attributes:
        name: what traces and checkpoints call it.
        path: its folder.
        config: the Hugging Face text configuration (hidden_size, num_hidden_layers, vocab_size, …).
        device, dtype: where and how it computes.
    """

    def __init__(self, model: Any, name: str, path: Path | None = None) -> None:
        self.model = model.eval().requires_grad_(False)
        self.name, self.path = name, path
        text = getattr(model.config, "get_text_config", lambda: model.config)()
        self.config: Any = text
        self.softcap: float | None = getattr(text, "final_logit_softcapping", None)
        self.tokenizer: Any = None

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @property
    def dtype(self) -> torch.dtype:
        out: torch.dtype = next(self.model.parameters()).dtype
        return out

    @property
    def hidden_size(self) -> int:
        return int(self.config.hidden_size)

    @property
    def layers(self) -> int:
        return int(self.config.num_hidden_layers)

    @property
    def vocab_size(self) -> int:
        """V: rows of the output head."""
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def stops(self) -> frozenset[int]:
        """Token ids that end a response."""
        eos = getattr(self.config, "eos_token_id", None)
        return frozenset(eos if isinstance(eos, (list, tuple)) else [] if eos is None else [eos])

    @property
    def head_weight(self) -> Tensor:
        """(V, H)."""
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight

    def embed(self, ids: Tensor) -> Tensor:
        """(…, H) input embeddings, scaled as the model scales them."""
        out: Tensor = self.model.get_input_embeddings()(ids)
        return out

    def logits(self, last: Tensor, rows: Tensor | None = None) -> Tensor:
        """Float32 logits (…, V), or of the vocabulary ``rows`` only; ``last`` as in :class:`TargetOutput`."""
        weight = self.head_weight if rows is None else self.head_weight[rows]
        out = torch.nn.functional.linear(last, weight).float()
        return out if self.softcap is None else torch.tanh(out / self.softcap) * self.softcap

    @torch.no_grad()  # not inference_mode: a drafter trains on these features
    def forward(
        self, ids: Tensor, *, layer_ids: tuple[int, ...] = (), cache: Cache | None = None, keep: bool = False,
        mask: Tensor | None = None, positions: Tensor | None = None,
    ) -> TargetOutput:
        """Run the body of the model (no head).

        Args:
            ids: (B, L) token ids.
            layer_ids: layers whose raw outputs to return; -1 is the embedding output.
            cache: of earlier calls; grows in place.
            keep: start a cache although none is given.
            mask: (B, past + L) 1 for real tokens (left-padded batches).
            positions: (B, L) position ids; counted from the cache otherwise.
        """
        if keep and cache is None:
            from transformers import DynamicCache

            cache = DynamicCache(config=self.config)
        decoder = self.model.get_decoder()
        caught: dict[int, Tensor] = {}
        hooks = []
        for layer in layer_ids:  # hooks, not output_hidden_states: that gives the last layer after the final norm only
            part = decoder.layers[max(layer, 0)]
            if layer < 0:
                hooks.append(part.register_forward_pre_hook(_catch_input(caught), with_kwargs=True))
            else:
                hooks.append(part.register_forward_hook(_catch_output(caught, layer)))
        try:
            with warnings.catch_warnings():  # the argument's name changes between versions of transformers
                warnings.simplefilter("ignore", FutureWarning)
                out = decoder(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
                              use_cache=cache is not None)
        finally:
            for hook in hooks:
                hook.remove()
        parts = [caught[layer] for layer in layer_ids]
        features = torch.cat(parts, dim=-1) if parts else out.last_hidden_state[..., :0]
        return TargetOutput(features, out.last_hidden_state, cache)

    def check_layers(self, layer_ids: tuple[int, ...]) -> None:
        """Raises InputError unless ``layer_ids`` rise within -1 .. layers - 1."""
        top = self.layers - 1
        if not layer_ids or list(layer_ids) != sorted(set(layer_ids)) or layer_ids[0] < -1 or layer_ids[-1] > top:
            raise InputError(f"target_layer_ids {list(layer_ids)}", allowed=f"rising numbers from -1 to {top}")


def _catch_input(into: dict[int, Tensor]) -> Any:
    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        into[-1] = args[0] if args else kwargs["hidden_states"]

    return hook


def _catch_output(into: dict[int, Tensor], layer: int) -> Any:
    def hook(module: Any, args: tuple[Any, ...], output: Any) -> None:
        into[layer] = output[0] if isinstance(output, tuple) else output

    return hook


def device_named(name: str) -> torch.device:
    """``cpu``, ``cuda`` or ``cuda:N``; ``auto`` is CUDA where there is one.

    Raises:
        InputError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device {shown(name)}", allowed="auto, cpu, cuda, cuda:0, …") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {shown(name)}", allowed="auto, cpu, cuda, cuda:0, …")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise InputError(f"device {shown(name)}: {'no CUDA device' if not found else f'{found} CUDA device(s)'} here",
                         allowed="cpu" if not found else f"cpu, cuda:0 to cuda:{found - 1}")
    return device


def set_threads(threads: int | None) -> None:
    """Let torch use so many threads of the CPU; None leaves its default (all cores)."""
    if threads is not None:
        torch.set_num_threads(threads)


def load_target(
    reference: str = NAME, *, device: str | torch.device = "cpu", dtype: str = "float32", tokenizer: bool = False,
) -> Target:
    """Open a target.

    Args:
        reference: ``gemma-3-270m`` (the offline default), or the folder of a Hugging Face causal LM
            (config.json and safetensors).
        device: as in :func:`device_named`.
        dtype: float32, bfloat16 or float16.
        tokenizer: also open its tokenizer.

    Raises:
        InputError: nothing there, truncated or unreadable files, an architecture that transformers does not know.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype {shown(dtype)}", allowed=", ".join(DTYPES), suggestion=nearest(dtype, DTYPES))
    where = device if isinstance(device, torch.device) else device_named(device)
    folder = gemma_directory() if reference == NAME else Path(reference).expanduser()
    if not (folder / "config.json").is_file():
        raise InputError(f"no target {reference!r}",
                         allowed=f"{NAME}, or the folder of a Hugging Face causal LM (config.json, *.safetensors)",
                         suggestion=nearest(reference, [NAME]))
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    quiet: Any = logging  # untyped
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=DTYPES[dtype], local_files_only=True, use_safetensors=True, trust_remote_code=False,
        )
        model.to(where)
        target = Target(model, reference if reference == NAME else folder.resolve().name, folder)
        if tokenizer:
            target.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except torch.OutOfMemoryError:
        raise InputError(f"{where} has too little memory for this model in {dtype}", file=folder,
                         allowed="another --device, or --dtype bfloat16") from None
    except Exception as error:  # transformers and safetensors raise many kinds for a damaged folder
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"not a causal LM that can be opened ({reason})", file=folder,
                         allowed="config.json, *.safetensors, tokenizer of a model that transformers knows") from None
    return target
