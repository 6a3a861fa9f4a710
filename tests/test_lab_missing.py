"""Without the extra ``lab`` its commands are one sentence that says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""
RUN = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name in ("torch", "transformers", "safetensors") else real(name, *a)
from dspark_sim.cli import main
main()
"""


@pytest.mark.parametrize("args", [
    ["trace", "sample", "t", "p.jsonl", "--out", "c"],
    ["trace", "train", "dspark", "--target", "t", "--corpus", "c", "--out", "d"],
    ["trace", "collect", "t", "--drafters", "d", "--corpus", "c", "--out", "o"],
    ["validate", "live", "--drafter", "d", "--prompts", "p.jsonl"],
    ["profile", "measure", "t", "--out", "o"],
], ids=lambda a: " ".join(a[:2]))
def test_the_extra_is_named(args: list[str], tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BLOCK + RUN, *args], cwd=tmp_path, env=dict(os.environ),
                          capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "dspark-sim[lab]" in done.stderr
    assert "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())
