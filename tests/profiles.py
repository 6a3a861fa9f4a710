"""A small profile and how to load it, for the tests of the loader."""

from __future__ import annotations

from pathlib import Path

from dspark_sim.profile import HardwareProfile, load_profile

__all__ = ["SMALL", "load", "write"]

SMALL = """\
description: a small one
gpus: 1
max_num_seqs: 8
max_num_batched_tokens: 64
verify: {points: [[1, 1.0], [64, 2.0]], unit: ms}
drafters:
  dspark: {kind: parallel, seconds: {points: [[1, 0.1], [8, 0.2]], unit: ms}, assumption: guessed}
provenance:
  kind: measured
  device: d
  model: m
  software: s
  date: "2026"
  source: x
  command: y
"""


def write(folder: Path, text: str, **files: str | bytes) -> Path:
    (folder / "profile.yaml").write_text(text, newline="")
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}.csv").write_bytes(data)
    return folder


def load(folder: Path, text: str, **files: str | bytes) -> HardwareProfile:
    return load_profile(write(folder, text, **files))
