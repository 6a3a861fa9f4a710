"""``profile measure``: opens the model, times it, writes the profile; what is timed survives a kill."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dspark_sim.errors import InputError, nearest, shown
from dspark_sim.importers.graphs import vllm_sizes
from dspark_sim.lab.checkpoint import load_drafter
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.measured_profile import Measured, device_name, profile_of
from dspark_sim.lab.points_file import PointsFile
from dspark_sim.lab.setup import new_drafter
from dspark_sim.lab.shapes import open_shape
from dspark_sim.lab.step_timer import Grid, StepTimer
from dspark_sim.lab.target import Target, device_named
from dspark_sim.profile_write import ProfileDraft

__all__ = ["Request", "measure", "points_path", "sizes"]

KINDS = ("dspark", "dflash", "eagle3", "mtp")
LIMIT = 512  # the largest CUDA graph by default, as in vLLM


@dataclass(frozen=True)
class Request:
    """What the user asked for; None stands for the device's default.

    Attributes:
        model: see :func:`~dspark_sim.lab.shapes.open_shape`.
        device, dtype, threads: where and how.
        tokens, contexts, requests: of the grid.
        width: tokens per request of a verify step.
        drafters: kinds (fresh weights), or ``NAME=FOLDER`` of checkpoints.
        block, layers: of fresh drafters; layers count for the parallel kinds.
        repeat: repetitions.
        graph_limit: the largest CUDA graph.
        command: for the provenance.
    """

    model: str
    device: str = "auto"
    dtype: str = "float32"
    threads: int | None = None
    tokens: tuple[int, ...] | None = None
    contexts: tuple[int, ...] | None = None
    requests: tuple[int, ...] | None = None
    width: int = 8
    drafters: tuple[str, ...] = ("dspark", "dflash", "eagle3")
    block: int = 7
    layers: int = 5
    repeat: int = 15
    graph_limit: int = LIMIT
    command: str = "dspark-sim profile measure"

    def grid(self, device: torch.device) -> Grid:
        """The grid, with the defaults of the device.

        Raises:
            InputError: lists that do not start at 1.
        """
        cuda = device.type == "cuda"
        over = (LIMIT + 1, 640, 768, 1024, 1536, 2048)
        tokens = self.tokens or ((*vllm_sizes(self.graph_limit), *(n for n in over if n > self.graph_limit)) if cuda
                                 else (1, 2, 4, 8, 16, 32, 64))
        requests = self.requests or ((1, 2, 4, 8, 16, 32, 64, 128, 256) if cuda else (1, 2, 4, 8))
        for key, values in (("--tokens", tokens), ("--requests", requests)):
            if values[0] != 1:
                raise InputError(f"starts at {values[0]}", key=key, allowed="a list that starts at 1")
        if len(tokens) < 2:
            raise InputError("one size only", key="--tokens", allowed="two sizes or more")
        contexts = self.contexts or ((512, 4096) if cuda else (128, 512))
        return Grid(tokens, contexts, self.width, requests, self.repeat, self.graph_limit)


def points_path(out: Path) -> Path:
    """Where the points of an unfinished measurement lie: beside the folder that is to be."""
    return out.with_name(f"{out.name}.points.jsonl")


def measure(request: Request, out: Path, say: Callable[[str], None]) -> ProfileDraft:
    """Time everything that is not in the points' file yet, and make the profile.

    Args:
        request: see :class:`Request`.
        out: the profile's folder, whose neighbour holds the points.
        say: called with a line per point.

    Raises:
        InputError: no such model, device or drafter; points of another measurement; nothing that fits into memory.
        KeyboardInterrupt: stopped; the points so far are kept.
    """
    device = device_named(request.device)
    grid = request.grid(device)
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    names = [_named(text, request) for text in request.drafters]
    about = {
        "model": request.model, "device": device_name(device), "dtype": request.dtype, "width": request.width,
        "threads": torch.get_num_threads() if device.type == "cpu" else None, "torch": torch.__version__,
        "block": request.block, "layers": request.layers, "drafters": list(request.drafters),
        "graph_limit": request.graph_limit if device.type == "cuda" else None, "repeat": request.repeat,
    }
    file = PointsFile(points_path(out), about)
    say(f"opening {request.model} on {device_name(device)} in {request.dtype}")
    target, fresh = open_shape(request.model, device=device, dtype=request.dtype)
    drafters = {name: _drafter(kind, folder, target, request) for name, kind, folder in names}
    timer = StepTimer(target, drafters, grid, file, say)
    timer.run()
    import transformers

    threads = f", {about['threads']} threads" if about["threads"] else ""
    date = datetime.date.today().isoformat()
    words = {name: _words(d, folder) for (name, _, folder), d in zip(names, drafters.values(), strict=True)}
    measured = Measured(
        f"{target.name} ({request.dtype}{', random weights' if fresh else ''})",
        device_name(device) + ("" if device.type == "cuda" else f" (CPU{threads})"),
        f"PyTorch {torch.__version__}, transformers {transformers.__version__}{threads}", date, request.command, words)
    return profile_of([file.points[p.key] for p in timer.points()], grid, measured)


def _named(text: str, request: Request) -> tuple[str, str, Path | None]:
    """(name, kind, folder of a checkpoint or None) of one ``--drafter``."""
    name, equals, folder = text.partition("=")
    if equals:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or not folder:
            raise InputError(f"got {shown(text)}", key="--drafter", allowed="a kind, or NAME=FOLDER")
        return name, "", Path(folder)
    if name not in KINDS:
        raise InputError(f"got {shown(text)}", key="--drafter", suggestion=nearest(text, KINDS),
                         allowed=f"{', '.join(KINDS)}, or NAME=FOLDER of a checkpoint")
    return name, name, None


def _drafter(kind: str, folder: Path | None, target: Target, request: Request) -> Drafter:
    try:
        if folder is not None:
            return load_drafter(folder, target=target, device=target.device, dtype=request.dtype).eval()
        parallel = kind in ("dspark", "dflash")
        made = new_drafter(target, kind, block_size=request.block, layers=request.layers if parallel else 1)  # type: ignore[arg-type]
        return made.to(target.dtype).eval().requires_grad_(False)
    except torch.OutOfMemoryError:
        raise InputError(f"{target.device} has too little memory for target and drafter {kind or folder}",
                         key="--drafter", allowed="fewer drafters, or --dtype bfloat16") from None


def _words(drafter: Drafter, folder: Path | None) -> tuple[str, int, str]:
    c = drafter.config
    kind = "parallel" if c.parallel else "autoregressive"
    what = f"{c.kind} of {c.num_hidden_layers} layer{'s' * (c.num_hidden_layers != 1)}, {c.outputs:,} words"
    what += f", Markov rank {c.markov_rank}" if c.markov_rank else ""
    return kind, c.block_size, what + (", random weights" if folder is None else f", checkpoint {folder.name}")


def sizes(values: Sequence[str], key: str) -> tuple[int, ...]:
    """``1,2,4`` or several of them: rising sizes, each once.

    Raises:
        InputError: anything else.
    """
    parts = [part.strip() for text in values for part in text.split(",")]
    if not all(p.isdecimal() and 1 <= int(p) <= 1 << 20 for p in parts):
        raise InputError(f"got {shown(','.join(values))}", key=key, allowed="whole numbers with commas, as 1,2,4,8")
    found = [int(p) for p in parts]
    if found != sorted(set(found)):
        raise InputError(f"got {shown(','.join(values))}", key=key, allowed="rising sizes, each once")
    return tuple(found)
