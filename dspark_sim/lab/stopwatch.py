"""How long a call takes: median and quartiles of repetitions, replayed as a CUDA graph where there is CUDA."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["OutOfMemory", "Timing", "timed"]

WARMUP = 3


class OutOfMemory(Exception):
    """The call does not fit into memory."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call.

    Attributes:
        median, low, high: of the repetitions; low and high are the quartiles.
        repeats: how many.
        mode: ``graph`` (replays of a CUDA graph) or ``eager``.
    """

    median: float
    low: float
    high: float
    repeats: int
    mode: str


def timed(call: Callable[[], object], *, device: torch.device, repeat: int, graph: bool) -> Timing:
    """Time ``call``.

    Args:
        call: the same work every time, on tensors that stay where they are.
        device: where it runs; on CUDA the device's own clock is read.
        repeat: repetitions after the warm-up.
        graph: capture it once and replay it (CUDA only); where it cannot be captured it is timed as it is, which the
            answer's ``mode`` says.

    Raises:
        OutOfMemory: it does not fit.
    """
    collect = gc.isenabled()
    gc.disable()
    try:
        with torch.inference_mode():
            if device.type == "cuda":
                return _cuda(call, device, repeat, graph)
            return _clock(call, repeat)
    except (torch.OutOfMemoryError, MemoryError) as problem:
        raise OutOfMemory(str(problem)) from None
    except RuntimeError as problem:
        if "memory" in str(problem).lower():  # the CPU allocator's own message
            raise OutOfMemory(str(problem)) from None
        raise
    finally:
        if collect:
            gc.enable()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _clock(call: Callable[[], object], repeat: int) -> Timing:
    for _ in range(WARMUP):
        call()
    took = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return _timing(took, "eager")


def _cuda(call: Callable[[], object], device: torch.device, repeat: int, graph: bool) -> Timing:
    run, mode = call, "eager"
    cuda: Any = torch.cuda  # partly untyped
    stream = cuda.Stream(device)
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            call()
    torch.cuda.synchronize(device)
    if graph:
        captured = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(captured, stream=stream):
                call()
            run, mode = captured.replay, "graph"
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # something in it waits for the device or allocates on the host
            torch.cuda.synchronize(device)
    for _ in range(WARMUP):
        run()
    took = []
    for _ in range(repeat):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        took.append(start.elapsed_time(end) / 1e3)
    return _timing(took, mode)


def _timing(took: list[float], mode: str) -> Timing:
    low, median, high = np.percentile(took, [25, 50, 75])
    return Timing(float(median), float(low), float(high), len(took), mode)
