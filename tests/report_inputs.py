"""Runs with nasty names, and a browser without a window, for the tests of reports."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import dspark_sim
from dspark_sim.sweeper import sweep
from tests.small_world import make

EVIL = "<script>boom('x')</script>"
QUOTES = "\\\"><img src=x onerror=boom(1)>&amp; 'q'"  # as it stands inside a YAML double-quoted string
POLICY = '''\
"""Verifies one token. <script>boom(4)</script>"""
from typing import ClassVar

import numpy as np


class Mine:
    lossless: ClassVar[bool] = False
    timing: ClassVar[str] = "overlapped"

    def verify_lengths(self, view):
        return np.minimum(view.drafted, 1)
'''
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def evil_run(place: Path) -> Path:
    """A finished run whose arms, class, profile and policy file have names that break out of careless HTML."""
    scenario = make(place, "  - {name: broken, drafter: dspark, policy: ./broken.py}\n"
                           f'  - {{name: "{EVIL}", drafter: dspark, policy: "./mine <b>\'q\'.py"}}\n'
                           f'  - {{name: "{QUOTES}", policy: no_spec}}\n')
    (place / "mine <b>'q'.py").write_text(POLICY)
    text = scenario.read_text()
    (place / "hardware").rename(place / "hard<b>ware 'h'")
    text = text.replace("./hardware", "./hard<b>ware 'h'").replace("name: chat,", f'name: "{QUOTES}",')
    text = text.replace("It answers nothing.", "It answers </p><script>boom(2)</script> nothing.")
    (place / "evil.yaml").write_text(text)
    dspark_sim.run(place / "evil.yaml", place / "out")
    return place / "out"


def small_sweep(place: Path) -> Path:
    """A finished sweep over loads and the engine's lag, with one arm that fails."""
    scenario = make(place, "  - {name: broken, drafter: dspark, policy: ./broken.py}\n")
    done = sweep(scenario, {"engine.host_lag": (0, 2), "workload.arrival.concurrency": (1, 4, 12)},
                 out=place / "sweep", jobs=1, overrides={"measure.duration_s": 1})
    return done.folder


def chromium() -> str:
    """The browser; without one a test fails in CI and is skipped elsewhere."""
    found = next((path for name in _CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        how = "no Chromium found: the report's browser tests need it (Debian, Ubuntu: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(f"{how}; .ci/run installs it where it may")
        pytest.skip(how)
    return found


def browse(page: Path, profile: Path, *options: str) -> tuple[str, str]:
    """Open a page without a window; gives the final DOM and what the browser logged (console included)."""
    done = subprocess.run(
        [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
         "--enable-logging=stderr", "--v=0", f"--user-data-dir={profile}", "--virtual-time-budget=3000", *options,
         "--dump-dom", page.resolve().as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr
