"""A corpus of random responses for tests of training: enough for machinery, nothing to learn but frequencies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from dspark_sim.lab.corpus import FORMAT, Document, write_part
from dspark_sim.lab.target import Target


def corpus_of(target: Target, folder: Path, documents: int = 12, length: int = 20, parts: int = 2) -> Path:
    """Write it; half the documents are math, half chat, all of them for training."""
    rng = np.random.default_rng(5)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.json").write_text(json.dumps({"format": FORMAT, "target": target.name}))
    for part in range(parts):
        write_part(folder, part, [
            Document(i, ("math", "chat")[i % 2], "train", rng.integers(4, 60, 5), rng.integers(4, 60, length - i % 3),
                     False)
            for i in range(documents // parts)
        ])
    return folder
