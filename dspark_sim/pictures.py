"""Draws plots and reports in a child process, so that importing the drawing libraries costs a run no time.

The child starts with the run, imports matplotlib and seaborn meanwhile, and waits for the folder's name on its
standard input. An end of input without a name sends it home.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["PlotProcess", "drawn"]

TIMEOUT_S = 120.0


class PlotProcess:
    """One child; :meth:`start` early, :meth:`draw` once the tables are complete, then :meth:`wait`."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._problem: str | None = None

    def start(self) -> PlotProcess:
        """Start the child; a machine that cannot start one loses its plots, not its run."""
        package = Path(__file__).resolve().parent.parent
        path = os.pathsep.join(p for p in (str(package), os.environ.get("PYTHONPATH")) if p)
        try:
            # -P: a file seaborn.py in the user's folder must not be taken for the library
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "dspark_sim.report"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, env=os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        except OSError as problem:
            self._problem = f"no plots: {problem}"
        return self

    def draw(self, folder: Path) -> None:
        """Tell the child which folder to draw."""
        if self._child is None or self._child.stdin is None:
            return
        try:
            self._child.stdin.write(f"{folder.resolve()}\n")
            self._child.stdin.flush()
        except OSError:
            pass  # the child is gone; wait() tells why

    def wait(self, timeout: float = TIMEOUT_S) -> str | None:
        """Wait for the plots; None when they are there, else a sentence why not."""
        if self._child is None:
            return self._problem
        try:
            _, errors = self._child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            return f"plots were not ready after {timeout:g} s and were given up; the numbers are complete"
        if self._child.returncode == 0:
            return None
        lines = errors.strip().splitlines()
        return f"no plots: {lines[-1] if lines else f'the drawing process ended with {self._child.returncode}'}"

    def stop(self) -> None:
        """End the child, whatever it does."""
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.communicate()


def drawn(folder: Path) -> str | None:
    """Draw a folder that is complete and write its report; None when that is done, else a sentence why not."""
    child = PlotProcess().start()
    try:
        child.draw(folder)
        return child.wait()
    except KeyboardInterrupt:
        return "plots were given up; the numbers are complete"
    finally:
        child.stop()
