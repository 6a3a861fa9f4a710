"""A profile out of operator times: the context-free part by tokens, attention by requests and context, the rest said.

A step of R requests with B tokens and S tokens of context in all takes

    target(B) + floor + alpha R + kappa S + host

where target(B) is the sum of all operators but attention, and floor, alpha and kappa fit the attention of R requests
with one query each: a request's KV is read once per step, whatever its width. Drafters are priced by the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import InputError
from dspark_sim.importers.graphs import capture_sizes
from dspark_sim.importers.operators import MEASURED_AT, REQUESTS
from dspark_sim.importers.sheet import Sheet
from dspark_sim.profile_write import ProfileDraft, csv_text

__all__ = ["Options", "derive", "target_sizes"]

Floats = npt.NDArray[np.float64]
LAYERS = 5  # of the released DSpark and DFlash drafters
BYTES = {"bf16": 2, "fp8": 1, "fp8_block": 1}
BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Options:
    """What the tables do not know and the user says.

    Attributes:
        host_ms: host and sampler, added to every step.
        graphs: ``--graph-sizes``.
        eager_ms: added above the largest graph.
        blocks: block sizes of the drafters; empty: no drafters.
        draft_context: tokens of context at which the drafters' attention is priced.
        memory_share: of the GPU's memory that the engine may use.
        max_num_seqs: requests at once.
        max_num_batched_tokens: tokens of a step.
        date: of the profile.
        command: how it was made.
    """

    host_ms: float = 1.0
    graphs: str = "vllm"
    eager_ms: float = 0.0
    blocks: tuple[int, ...] = (7, 5)
    draft_context: int = 1024
    memory_share: float = 0.9
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    date: str = "unknown"
    command: str = "dspark-sim profile import aiconfigurator"


@dataclass(frozen=True)
class Attention:
    """The fit of attention: ms = floor + alpha R + kappa R context; errors are relative to the whole step."""

    floor: float
    alpha: float
    kappa: float
    rms: float
    worst: float

    def ms(self, requests: Floats, context: int) -> Floats:
        """Of the target's layers together."""
        return self.floor + self.alpha * requests + self.kappa * requests * context


def target_sizes(options: Options) -> list[int]:
    """Batch tokens of the verify curve: captured sizes, and above them those that the package's tables have."""
    graphs, most = capture_sizes(options.graphs), options.max_num_batched_tokens
    limit = graphs[-1] if graphs else 0
    if limit > most:
        raise InputError(f"the largest graph has {limit} tokens, a step at most {most}", key="--graph-sizes",
                         allowed="graphs up to --max-num-batched-tokens")
    above = sorted({m for m in (*MEASURED_AT, limit + 1, most) if limit < m <= most})
    return [*graphs, *above]


def fit_attention(sheet: Sheet) -> Attention:
    """Least squares of errors relative to the step, no number below 0."""
    from scipy.optimize import nnls

    rows = np.array(sheet.rows["attention"])
    r, c, ms = rows.T
    step = ms + np.interp(r, sheet.sizes("target"), [row[2] for row in sheet.rows["target"]])
    terms = np.stack([np.ones_like(r), r, r * c], axis=1)
    found, _ = nnls(terms / step[:, None], ms / step)
    floor, alpha, kappa = (float(f"{v:.4g}") for v in found)
    errors = (terms @ [floor, alpha, kappa] - ms) / step
    return Attention(floor, alpha, kappa, float(np.sqrt(np.mean(errors**2))), float(np.abs(errors).max()))


def derive(sheet: Sheet, options: Options) -> ProfileDraft:
    """The profile, with everything assumed in its provenance.

    Raises:
        InputError: the model does not fit into the GPUs' memory, or options that contradict the sheet.
    """
    sizes, graphs = target_sizes(options), capture_sizes(options.graphs)
    limit = graphs[-1] if graphs else 0
    fit = fit_attention(sheet)
    ms = sheet.ms("target", sizes) + fit.floor + np.where(np.array(sizes) > limit, options.eager_ms, 0.0)
    gpus = f"{sheet.tp} GPU{'s' * (sheet.tp > 1)}"
    verify: dict[str, Any] = {"file": "verify.csv", "between": "hold" if graphs else "linear"}
    if graphs:
        verify["graph_limit"] = limit
    files = {"verify.csv": csv_text(["batch_tokens", "ms"], zip(sizes, ms.tolist(), strict=True),
                                    ["Derived: see profile.yaml"]), "source.csv": sheet.to_csv()}
    drafters = _drafters(sheet, options, fit, files)
    ends = (1, options.max_num_seqs) if options.max_num_seqs > 1 else (1,)
    data = {
        "description": f"{sheet.model.split('/')[-1]} in {sheet.weights} on {gpus} ({sheet.device}): kernels of "
        f"{sheet.backend} {sheet.backend_version} as NVIDIA's aiconfigurator has timed them one by one, put together "
        "to steps. No engine was measured: scheduler, sampler and the gaps between kernels are an assumption.",
        "gpus": sheet.tp, "measured_context": 0,
        "max_num_seqs": options.max_num_seqs, "max_num_batched_tokens": options.max_num_batched_tokens,
        "verify": verify,
        "per_request": float(f"{fit.alpha / 1e3:.4g}"), "per_kv_token": float(f"{fit.kappa / 1e3:.4g}"),
        "fixed": {"points": [[n, options.host_ms] for n in ends], "unit": "ms"},
        "drafters": drafters, "prefill": "shared",
        "kv": {"blocks": _blocks(sheet, options), "block_tokens": BLOCK_TOKENS},
        "provenance": {
            "kind": "derived", "device": f"{sheet.tp}x {sheet.device}, tensor parallel {sheet.tp}",
            "model": f"{sheet.model.split('/')[-1]} ({sheet.weights})",
            "software": f"none ran; kernels of {sheet.backend} {sheet.backend_version}", "date": options.date,
            "source": f"{sheet.package} (NVIDIA, Apache-2.0; PyPI), tables {sheet.system}/{sheet.backend} "
            f"{sheet.backend_version}; the answers lie beside as source.csv",
            "command": options.command,
            "assumptions": _assumptions(sheet, options, fit, sizes, ms, limit),
        },
    }
    return ProfileDraft({k: v for k, v in data.items() if v != {}}, files)


def _blocks(sheet: Sheet, options: Options) -> int:
    shape = sheet.shape
    weights = shape.layers * shape.layer_parameters * BYTES[sheet.weights] + 2 * shape.embedding_parameters
    free = options.memory_share * sheet.memory_bytes - sheet.reserved_bytes - weights / sheet.tp
    blocks = int(free / (2 * shape.kv_values / sheet.tp * BLOCK_TOKENS))
    if blocks < 1:
        raise InputError(f"{weights / 1e9 / sheet.tp:.0f} GB of weights leave no room for KV in "
                         f"{options.memory_share:.0%} of {sheet.memory_bytes / 1e9:.0f} GB", key="--tp",
                         allowed="more GPUs, smaller weights (--weights fp8), or --memory-share up to 1")
    return blocks


def _drafters(sheet: Sheet, options: Options, fit: Attention, files: dict[str, str]) -> dict[str, Any]:
    if not options.blocks:
        return {}
    r = np.array([n for n in REQUESTS if n <= options.max_num_seqs], dtype=float)
    if r[-1] < options.max_num_seqs:
        r = np.append(r, options.max_num_seqs)
    layer_attention = fit.ms(r, options.draft_context) / sheet.shape.layers
    out: dict[str, Any] = {}

    def curve(name: str, ms: Floats) -> dict[str, str]:
        files[name] = csv_text(["requests", "ms"], zip(r.astype(int).tolist(), ms.tolist(), strict=True),
                               ["Derived: see profile.yaml"])
        return {"file": name}

    at = f"attention with {options.draft_context:,} tokens of context"
    for b in options.blocks:
        block = LAYERS * (sheet.ms("layer", r * b) + layer_attention) + sheet.ms("head", r * b)
        block += sheet.ms("fuse", r * (b + 1)) + LAYERS * sheet.ms("context_kv", r * (b + 1))
        tail = "" if b == options.blocks[0] else f"-{b}"
        shared = (f"not measured. One pass over {b} positions per request through {LAYERS} layers of the target's "
                  f"shape, as in the drafters released for Qwen3, {at}, and the target's vocabulary head; before it, "
                  f"features of {b + 1} tokens per request are fused and become keys and values of every layer")
        drawing = sheet.ms("markov", r) + 3 * sheet.ms("draw", r)
        out[f"dspark{tail}"] = {
            "kind": "parallel", "seconds": curve(f"dspark{tail}.csv", block),
            "per_token": curve("markov.csv", drawing),
            "assumption": f"{shared}. Per token, one after the other: the Markov head (rank 256) and three passes "
                          "over the "
            f"scores to draw from them. {_times(r, block + b * drawing, b)}",
        }
        out[f"dflash{tail}"] = {"kind": "parallel", "seconds": curve(f"dflash{tail}.csv", block),
                                "assumption": f"{shared}. Drawing the tokens is left out. {_times(r, block, b)}"}
    token = sheet.ms("layer", r) + sheet.ms("wide_qkv", r) + layer_attention + sheet.ms("draft_head", r)
    out["eagle3"] = {
        "kind": "autoregressive", "seconds": curve("eagle3.csv", token),
        "assumption": "not measured. Per token one pass over one layer of the target's shape whose input is twice as "
                      "wide, "
        f"{at}, and a head of 32,000 words. That its first pass also takes in the tokens just accepted, the fusion of "
        f"three target layers' features and the drawing are left out. {_times(r, token, 1)}",
    }
    return out


def _times(r: Floats, ms: Floats, tokens: int) -> str:
    shown = [f"{v:.2f} ms at {int(n)}" for n, v in zip(r, ms, strict=True) if n in (1, 32, 256)]
    return f"This gives {', '.join(shown)} requests{' per token' if tokens == 1 else f' for {tokens} tokens'}."


def _assumptions(sheet: Sheet, options: Options, fit: Attention, sizes: Sequence[int], ms: Floats,
                 limit: int) -> list[str]:
    prompts = [(n, own, float(np.interp(n, sizes, ms))) for n, _, own in sheet.rows["prefill"] if n <= sizes[-1]]
    beside = ", ".join(f"{n:,} tokens {ours:.1f} for {own:.1f} ms" for n, own, ours in prompts)
    falls = int(np.sum(np.diff(ms) < 0))
    padding = (f"Batches are padded up to the captured sizes of --graph-sizes {options.graphs}: {limit} is the "
               f"largest. Above it a step is priced without a jump, plus --eager-ms {options.eager_ms:g}; a real "
               "engine may jump "
               "there, as on four B300." if limit else "No CUDA graphs: no padding, and no launch times either.")
    return [
        f"A step is the sum of its kernels, each timed alone. --host-ms {options.host_ms:g} ms stands for scheduler, "
        "sampler and gaps between kernels in every step (key fixed): it is a guess. With 1 ms, TPOT of Qwen3-32B on "
        "two "
        "H100 under vLLM comes out 4.6 % too short (median of 30 measured loads; docs/profiles.md).",
        f"Attention of R requests with S tokens of context in all is {fit.floor:.3g} ms (in verify) + "
        f"{fit.alpha * 1e3:.3g} us R + {fit.kappa * 1e6:.3g} ns S, fitted to {len(sheet.rows['attention'])} answers: "
        f"root mean square {fit.rms:.1%} of the step, worst {fit.worst:.1%}. It is the same for every number of draft "
        "tokens: a request's KV is read once per step. The package's own way to price speculation (nextn) would read "
        "it once per token.",
        f"Everything else depends on batch tokens alone and is taken as answered, not smoothed: {len(sizes)} sizes, "
        f"of which {falls} are faster than the size before. All tokens of a step pass the vocabulary head.",
        padding,
        "Prefill tokens enter the same pass; their attention to each other is not priced. A whole prompt takes here, "
        f"for the package's own estimate of prefill: {beside}.",
        f"Estimated by the package, not measured: {', '.join(n.removeprefix('generation_') for n in sheet.estimated)}.",
        f"KV cache: what {sheet.reserved_bytes / 1e9:.1f} GB reserve (the package's figure) and the weights leave of "
        f"{options.memory_share:.0%} of {sheet.memory_bytes / 1e9:.0f} GB, 16-bit keys and values; a drafter's "
        "weights and KV are not subtracted.",
        "What a speculative engine adds even to steps without drafts (6.6 to 21.6 % were measured elsewhere) is "
        "unknown and left out.",
    ]
