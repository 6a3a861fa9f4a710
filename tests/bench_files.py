"""Results of vLLM's and SGLang's benchmarks as their tools write them, with round numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["lines", "one_batch", "serve_sglang", "serve_vllm", "write"]


def serve_vllm(concurrency: int, tpot_ms: float, **changes: Any) -> dict[str, Any]:
    """``vllm bench serve``: 100 requests, 1,000 tokens in, 200 out, all seats decoding; ``...`` removes a field."""
    data = {
        "date": "20260301-120000", "endpoint_type": "vllm", "backend": "vllm", "label": None, "model_id": "maker/Toy",
        "tokenizer_id": "maker/Toy", "num_prompts": 100, "request_rate": "inf", "burstiness": 1.0,
        "max_concurrency": concurrency, "duration": 100.0, "completed": 100, "failed": 0,
        "total_input_tokens": 100_000, "total_output_tokens": 20_000, "request_throughput": 1.0,
        "output_throughput": 1e3 * concurrency / tpot_ms, "mean_ttft_ms": 50.0, "median_ttft_ms": 50.0,
        "mean_tpot_ms": tpot_ms, "median_tpot_ms": tpot_ms, "mean_itl_ms": tpot_ms, "median_itl_ms": 0.9 * tpot_ms,
    }
    return {k: v for k, v in (data | changes).items() if v is not ...}


def serve_sglang(concurrency: int, tpot_ms: float, **changes: Any) -> dict[str, Any]:
    """``sglang.bench_serving``."""
    data = {
        "backend": "sglang", "dataset_name": "random", "request_rate": "inf", "max_concurrency": concurrency,
        "duration": 100.0, "completed": 100, "total_input_tokens": 100_000, "total_output_tokens": 20_000,
        "total_output_tokens_retokenized": 19_990, "output_throughput": 1e3 * concurrency / tpot_ms,
        "mean_tpot_ms": tpot_ms, "median_tpot_ms": tpot_ms, "mean_itl_ms": tpot_ms, "median_itl_ms": 0.9 * tpot_ms,
        "concurrency": float(concurrency), "accept_length": None,
    }
    return {k: v for k, v in (data | changes).items() if v is not ...}


def one_batch(batch: int, seconds: float, input_len: int = 512, **changes: Any) -> dict[str, Any]:
    """``sglang.bench_one_batch``: 32 tokens out."""
    data = {
        "run_name": "default", "batch_size": batch, "input_len": input_len, "output_len": 32, "prefill_latency": 0.1,
        "prefill_throughput": 1.0, "median_decode_latency": seconds, "median_decode_throughput": batch / seconds,
        "total_latency": 1.0, "overall_throughput": 1.0,
    }
    return {k: v for k, v in (data | changes).items() if v is not ...}


def write(path: Path, data: Any) -> Path:
    """One JSON file."""
    path.write_text(json.dumps(data))
    return path


def lines(path: Path, *data: Any) -> Path:
    """JSON lines."""
    path.write_text("".join(json.dumps(item) + "\n" for item in data))
    return path
