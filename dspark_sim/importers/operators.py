"""Asks NVIDIA's aiconfigurator for operator times: the extra ``aiconfigurator`` (``aiconfigurator-core``, Apache-2.0).

The package carries kernels' measured times and answers offline. Nothing but :func:`ask` talks to it, through an
:class:`Engine`, so that tests can put a small one in its place. Its ``nextn``, which would price the attention of k + 1
tokens as k + 1 requests, is never used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from dspark_sim.errors import InputError, nearest, shown
from dspark_sim.importers.sheet import Shape, Sheet

__all__ = ["CONTEXTS", "REQUESTS", "WEIGHTS", "Engine", "ask", "connect", "models", "systems"]

ATTENTION = "generation_attention"
ONCE = {"generation_embedding", "generation_logits_gemm", "generation_embedding_ar", "generation_p2p"}  # not per layer
WEIGHTS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block"}
REQUESTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16384)
MAX_KV = 600_000  # tokens: requests times context beyond which attention is not asked for
MEASURED_AT = (*range(1, 18), 32, 33, 48, 49, 64, 65, 80, 81, 96, 97, 112, 113, 128, 129, 160, 161, 192, 193, 224, 225,
               256, 257, 512, 513, *(m + d for m in range(768, 4353, 256) for d in (0, 1)), 8192)
"""Batch tokens at which the package's matrix products were timed; between them it interpolates."""
PROMPTS = (512, 1024, 2048, 4096, 8192)
RANK, DRAFT_WORDS = 256, 32_000
FEATURES = 5  # target layers whose features are fused

Answer = Sequence[tuple[str, float, float, str]]


class Engine(Protocol):
    """What is used of the package's ``EngineHandle``: answers are (operator, ms of all layers, energy, source)."""

    def decode_step_per_op(self, gen_tokens: int, isl: int, osl: int) -> Answer:
        """One decode step of ``gen_tokens`` requests with ``isl`` tokens of context each."""

    def evaluate_ops_json(self, ops_json: str, *, is_context: bool, batch_size: int, s: int) -> Answer:
        """Operators given as JSON, over ``batch_size`` tokens."""

    def predict_prefill_latency(self, bs: int, isl: int) -> float:
        """ms of the prefill of ``bs`` prompts of ``isl`` tokens."""


def _home() -> Path:
    try:
        import aiconfigurator_core
    except ImportError:
        raise InputError("needs the package aiconfigurator-core", key="profile import aiconfigurator",
                         allowed="pip install 'dspark-sim[aiconfigurator]' (Python 3.11 to 3.13, 82 MB)") from None
    return Path(str(aiconfigurator_core.__file__)).parent


def models() -> list[str]:
    """Models whose configuration the package carries; it would download any other."""
    names = (_home() / "model_configs").glob("*_config.json")
    return sorted(p.name.removesuffix("_config.json").replace("--", "/", 1) for p in names
                  if not p.name.endswith("_hf_quant_config.json"))


def systems() -> list[str]:
    """GPUs of which the package has a description."""
    return sorted(p.stem for p in (_home() / "systems").glob("*.yaml") if "gpu:" in p.read_text(encoding="utf-8"))


@contextmanager
def _answering(what: str) -> Iterator[None]:
    """Whatever the package raises is about its arguments: one sentence. A panic of its Rust half is no ``Exception``.

    It warns of tables that dense models do not use; where answers come from is in the answers.
    """
    logger = logging.getLogger("aiconfigurator_core")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:
        raise InputError(f"aiconfigurator cannot answer for {what}: {' '.join(str(problem).split())[:300]}") from None
    finally:
        logger.setLevel(before)


def connect(model: str, gpu: str, *, tp: int = 1, backend: str = "vllm", version: str | None = None,
            weights: str = "bf16") -> tuple[Engine, dict[str, Any]]:
    """The package's engine, and the fields of a :class:`Sheet` that describe it.

    Args:
        model: as on Hugging Face, one of :func:`models`.
        gpu: ``h200`` or the package's own ``h200_sxm``.
        tp: tensor-parallel GPUs.
        backend: whose kernels: vllm, sglang or trtllm.
        version: of the backend, among those that the package offers; None: its current one.
        weights: one of :data:`WEIGHTS`.

    Raises:
        InputError: the package is missing, or it has no answer for this.
    """
    known, gpus = models(), systems()
    if model not in known:
        raise InputError(f"aiconfigurator has no model {shown(model)}", key="--model", suggestion=nearest(model, known),
                         allowed=", ".join(n for n in known if "Qwen3-" in n or "Llama-3" in n) + ", …")
    if weights == "bf16" and any(word in model.upper() for word in ("FP8", "FP4", "INT4", "AWQ", "GPTQ")):
        raise InputError(f"{model} has quantised weights", key="--weights",
                         allowed="fp8 or fp8_block, or the model's own name without them")
    system = gpu if gpu in gpus else next((g for g in gpus if g in (f"{gpu}_sxm",)), None)
    if system is None:
        raise InputError(f"aiconfigurator has no GPU {shown(gpu)}", key="--gpu", allowed=", ".join(gpus),
                         suggestion=nearest(gpu, gpus))
    shape = _shape(_home() / "model_configs" / f"{model.replace('/', '--')}_config.json", model)
    import importlib.metadata

    from aiconfigurator_core.sdk import perf_database
    from aiconfigurator_core.sdk.engine import EngineHandle

    with _answering(f"{model} on {system} with {backend}, {weights}, TP {tp}"):
        found = str(perf_database.resolve_query_version(system, backend, version or "current"))
        engine = EngineHandle.compile(model, system, backend, backend_version=found, tp_size=tp,
                                      gemm_quant_mode=WEIGHTS[weights])
        engine.decode_step_per_op(1, 128, 2)
    memory, reserved = _memory(_home() / "systems" / f"{system}.yaml", tp)
    return engine, {
        "model": model, "system": system, "device": f"NVIDIA {system.split('_')[0].upper()} ({system})",
        "backend": backend, "backend_version": found, "tp": tp, "weights": weights, "shape": shape,
        "package": f"aiconfigurator-core {importlib.metadata.version('aiconfigurator-core')}",
        "memory_bytes": memory, "reserved_bytes": reserved,
    }


def _shape(path: Path, model: str) -> Shape:
    """The configuration of a dense model with grouped-query attention; anything else is refused."""
    data = json.loads(path.read_text(encoding="utf-8"))
    data = data.get("text_config", data)
    experts = [key for key in data if "expert" in key]
    needed = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    missing = [key for key in needed if key not in data]
    if experts or missing or "kv_lora_rank" in data:
        why = f"its configuration has {(experts or ['kv_lora_rank'])[0]}" if not missing else f"without {missing[0]}"
        raise InputError(f"{model} is no dense model with grouped-query attention ({why})", key="--model",
                         allowed="dense models (Llama, Qwen3); mixtures of experts and latent attention are not "
                                 "derived")
    heads = int(data["num_attention_heads"])
    return Shape(
        layers=int(data["num_hidden_layers"]), hidden=int(data["hidden_size"]), heads=heads,
        intermediate=int(data["intermediate_size"]), kv_heads=int(data.get("num_key_value_heads") or heads),
        head_dim=int(data.get("head_dim") or data["hidden_size"] // heads), vocabulary=int(data["vocab_size"]),
        tied=bool(data.get("tie_word_embeddings", False)),
    )


def _memory(path: Path, tp: int) -> tuple[int, int]:
    import yaml

    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    misc = data.get("misc", {})
    return int(data["gpu"]["mem_capacity"]), int(misc.get("other_mem", 0)) + int(misc.get("nccl_mem", {}).get(tp, 0))


def ask(engine: Engine, about: dict[str, Any], target: Sequence[int], blocks: Sequence[int]) -> Sheet:
    """Everything that a profile is made of.

    Args:
        engine: answers; see :func:`connect`.
        about: the fields of the sheet that describe it.
        target: batch tokens at which the target is wanted.
        blocks: block sizes of the drafters.

    Raises:
        InputError: the model has no attention operator of its own, or some answer is missing.
    """
    with _answering(f"{about['model']} on {about['system']}"):
        return _ask(engine, about, target, blocks)


def _ask(engine: Engine, about: dict[str, Any], target: Sequence[int], blocks: Sequence[int]) -> Sheet:
    shape, tp = about["shape"], about["tp"]
    estimated: set[str] = set()
    drafted = {r * n for r in REQUESTS for b in blocks for n in (1, b)}
    new = sorted({r * (b + 1) for r in REQUESTS for b in blocks} | set(REQUESTS))  # tokens whose features arrive

    def step(tokens: int, context: int) -> dict[str, float]:
        parts: dict[str, float] = {}
        for name, ms, _, source in engine.decode_step_per_op(tokens, context, 2):
            parts[name] = parts.get(name, 0.0) + ms
            if ms and source != "silicon":
                estimated.add(name)
        if ATTENTION not in parts:
            raise InputError(f"the model has no operator {ATTENTION}", key="--model", allowed="a model whose attention "
                             "is an operator of its own: " + ", ".join(sorted(parts)))
        return parts

    def product(inner: int, outer: int, sizes: Sequence[int], name: str) -> list[tuple[int, int, float]]:
        quant = WEIGHTS[about["weights"]] if name in ("wide_qkv", "context_kv") else "bfloat16"
        op = {"Gemm": {"name": name, "scale_factor": 1.0, "n": outer, "k": inner, "quant_mode": quant,
                       "scale_num_tokens": 1, "low_precision_input": False, "seq_split": 1, "below_grid_sol": False}}
        return [(m, 0, _first(engine, op, m)) for m in sizes]

    whole = {m: step(m, 128) for m in sorted({*target, *drafted})}
    kv = 2 * shape.kv_heads * shape.head_dim // tp
    queries = shape.heads * shape.head_dim // tp
    draw = {"Elementwise": {"name": "draw", "scale_factor": 1.0, "bytes_per_token": 4.0 * shape.vocabulary / tp,
                            "scale_num_tokens": 1, "seq_split": 1}}
    rows: dict[str, list[tuple[int, int, float]]] = {
        "target": [(m, 0, sum(whole[m].values()) - whole[m][ATTENTION]) for m in sorted(target)],
        "attention": [(r, c, step(r, c)[ATTENTION]) for r in REQUESTS for c in CONTEXTS if r * c <= MAX_KV],
        "layer": [(m, 0, sum(ms for name, ms in whole[m].items() if name not in ONCE | {ATTENTION}) / shape.layers)
                  for m in sorted(drafted)],
        "head": [(m, 0, whole[m].get("generation_logits_gemm", 0.0)) for m in sorted(drafted)],
        "fuse": product(FEATURES * shape.hidden, shape.hidden, new, "fuse"),
        "context_kv": product(shape.hidden, kv, new, "context_kv"),
        "markov": product(RANK, shape.vocabulary // tp, REQUESTS, "markov"),
        "draw": [(r, 0, _first(engine, draw, r)) for r in REQUESTS],
        "wide_qkv": product(shape.hidden, queries + kv, REQUESTS, "wide_qkv"),
        "draft_head": product(shape.hidden, DRAFT_WORDS // tp, REQUESTS, "draft_head"),
        "prefill": [(n, 0, engine.predict_prefill_latency(1, n)) for n in PROMPTS],
    }
    exact = {part: tuple((m, c, float(f"{ms:.6g}")) for m, c, ms in found) for part, found in rows.items()}
    return Sheet(**about, estimated=tuple(sorted(estimated)), rows=exact)


def _first(engine: Engine, op: dict[str, Any], tokens: int) -> float:
    return float(engine.evaluate_ops_json(json.dumps([op]), is_context=False, batch_size=tokens, s=1)[0][1])
