"""A sheet of operator times: what aiconfigurator answered, kept as one CSV, and read back without the package.

Everything that :mod:`dspark_sim.importers.derive` needs stands in it, so a profile can be made again, byte for byte,
where the package is not installed.
"""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import ProfileError, shown
from dspark_sim.profile_write import csv_text

__all__ = ["PARTS", "Shape", "Sheet", "read_sheet"]

MARK = "sheet "
PARTS = {
    "target": "all operators of the target but attention, over so many tokens",
    "attention": "attention of so many requests, one query each, with so much context",
    "layer": "one layer of the target without attention, over so many tokens",
    "head": "the target's vocabulary head over so many tokens",
    "fuse": "the projection of five target layers' features to the drafter's width, over so many tokens",
    "context_kv": "keys and values of one drafter layer for so many tokens of context",
    "markov": "rank 256 to the vocabulary (the Markov head), for so many requests",
    "draw": "reading and writing the vocabulary's scores once, for so many requests",
    "wide_qkv": "what an Eagle3 layer's projection takes more, because its input is twice as wide",
    "draft_head": "a head of 32,000 words, over so many tokens",
    "prefill": "a whole prompt of so many tokens by the package's own prefill model",
}
"""Parts of a sheet and their meaning; sizes are tokens or requests, times are ms."""


@dataclass(frozen=True)
class Shape:
    """The target's configuration, as far as sizes and memory depend on it (numbers of heads are of the whole model)."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer's matrices."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def embedding_parameters(self) -> int:
        """Weights of embedding and head."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def kv_values(self) -> int:
        """Numbers that one token leaves in the KV cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Sheet:
    """Answers of one engine of aiconfigurator.

    Attributes:
        model: the name that was asked for.
        system: the package's name of the GPU, ``h200_sxm``.
        device: the GPU's name as its own tables have it.
        backend: whose kernels were timed, ``vllm``.
        backend_version: of that engine.
        package: ``aiconfigurator-core 0.12.0``.
        tp: tensor-parallel GPUs.
        weights: ``bf16``, ``fp8`` or ``fp8_block``.
        shape: the model's configuration.
        memory_bytes: of one GPU.
        reserved_bytes: what the package keeps free on each GPU for all but weights and KV cache.
        estimated: operators that the package estimates instead of having measured them.
        rows: part -> (size, context, ms), see :data:`PARTS`; context is 0 where there is none.
    """

    model: str
    system: str
    device: str
    backend: str
    backend_version: str
    package: str
    tp: int
    weights: str
    shape: Shape
    memory_bytes: int
    reserved_bytes: int
    estimated: tuple[str, ...]
    rows: dict[str, tuple[tuple[int, int, float], ...]]

    def sizes(self, part: str) -> list[int]:
        """The sizes of one part, rising."""
        return [size for size, _, _ in self.rows[part]]

    def ms(self, part: str, sizes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Times of one part at ``sizes``, straight lines between what was asked.

        Raises:
            ProfileError: a size beyond what was asked.
        """
        rows, wanted = self.rows[part], np.asarray(sizes, dtype=float)
        known = np.array([r[0] for r in rows], dtype=float)
        if wanted.size and (wanted.min() < known[0] or wanted.max() > known[-1]):
            raise ProfileError(f"the sheet has {part} from {known[0]:g} to {known[-1]:g}, not at {wanted.max():g}")
        return np.asarray(np.interp(wanted, known, [r[2] for r in rows]), dtype=np.float64)

    def to_csv(self) -> str:
        """The file's text; :func:`read_sheet` reads it."""
        meta = {k: v for k, v in asdict(self).items() if k != "rows"}
        lines = ["Operator times as aiconfigurator answered them, ms. See profile.yaml for what was made of them.",
                 *(f"{part}: {text}" for part, text in PARTS.items() if part in self.rows),
                 MARK + json.dumps(meta)]
        rows = [(part, *row) for part, found in self.rows.items() for row in found]
        return csv_text(["part", "size", "context", "ms"], rows, lines)


def read_sheet(path: Path) -> Sheet:
    """A sheet from its file.

    Raises:
        ProfileError: the file is no sheet.
    """
    text = path.read_text(encoding="utf-8")
    meta = next((line[2 + len(MARK):] for line in text.splitlines() if line.startswith(f"# {MARK}")), None)
    try:
        if meta is None:
            raise ValueError("it has no line that describes it")
        known: dict[str, Any] = json.loads(meta)
        known["shape"], known["estimated"] = Shape(**known["shape"]), tuple(known["estimated"])
        rows: dict[str, list[tuple[int, int, float]]] = {}
        for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
            rows.setdefault(row["part"], []).append((int(row["size"]), int(row["context"]), float(row["ms"])))
        return Sheet(**known, rows={part: tuple(found) for part, found in rows.items()})
    except (ValueError, KeyError, TypeError, csv.Error) as problem:
        raise ProfileError(f"is no sheet of operator times ({shown(str(problem))})", file=path,
                           allowed="the source.csv of a profile made by profile import aiconfigurator") from None
