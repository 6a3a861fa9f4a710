"""The run folder: tables as Parquet, summary, manifest, plots. Built aside under a hidden name, renamed at the end.

``<runs>/<name>-<time>[-n]/`` by default, or exactly the folder that ``--out`` names, which must be new or empty. An
empty folder is kept (it may be a mounted volume, or where the user stands): everything is built in a hidden folder in
it and then moved up, the manifest last.
Nothing under a final name is ever partial. After Ctrl-C the folder is finished with what there is, and its
manifest says ``"status": "interrupted"``; after kill -9 a hidden ``.<name>….partial-…`` stays and may be deleted.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import InputError
from dspark_sim.spill import let_go
from dspark_sim.stopping import undisturbed

if TYPE_CHECKING:
    import pyarrow as pa

    from dspark_sim.simulate import ArmRun

__all__ = ["RUNS", "RunFolder"]

RUNS = "runs"
GROUP_ROWS = 1 << 18  # most rows of a row group of requests: what a writer holds in memory
ROW_GROUP = 1 << 17  # steps are gathered to row groups of about this many rows before they are written


class _Stream:
    """One Parquet file that grows by row groups; memory holds at most one of them."""

    def __init__(self, path: Path, rows: int) -> None:
        self._path, self._rows, self._waiting = path, rows, list[Any]()
        self.name = path.name
        self._count = 0
        self._writer: Any = None
        self.problem: OSError | None = None  # the file is spoilt

    def add(self, table: pa.Table) -> None:
        if table.num_rows == 0 and self._writer is not None:
            return
        self._waiting.append(table)
        self._count += table.num_rows
        if self._count >= self._rows:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        with undisturbed(), self._named():
            table = pa.concat_tables(self._waiting).combine_chunks()
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, table.schema, compression="zstd")
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting, self._count = [], 0

    def close(self) -> None:
        with undisturbed(), self._named():
            self._flush()
            if self._writer is not None:
                self._writer.close()

    def give_up(self) -> None:
        """Delete the file: after a full disk neither its last row group nor its footer is there."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._writer.is_open = False
        self._path.unlink(missing_ok=True)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:  # Arrow's does not say which file, and the number only in its text
            told = re.search(r"\[errno (\d+)\]", str(problem))
            why = os.strerror(int(told[1])) if told else problem.strerror or str(problem)
            self.problem = OSError(int(told[1]) if told else problem.errno, why, str(self._path))
            raise self.problem from None


class RunFolder:
    """A run folder under construction; a context manager that removes it when nobody called :meth:`finish`.

    Attributes:
        path: where the files are now: the hidden folder, after :meth:`finish` the final one.
        lost: tables that could not be written.

    Raises:
        InputError: the place cannot be used: not empty, not a folder, not writable.
    """

    def __init__(self, name: str, out: str | Path | None = None, runs: str | Path = RUNS) -> None:
        self._exact = None if out is None else Path(out)
        parent = Path(runs)
        try:
            if self._exact is not None:
                self._check(self._exact)
                self._place = parent = self._exact.resolve()  # now: the working directory may be another one later
                self._stem = self._place.name or "run"
                parent = self._place if self._place.is_dir() else self._place.parent
            else:
                parent = parent.resolve()
                self._stem = f"{_safe(name)}-{datetime.now():%Y%m%d-%H%M%S}"
            parent.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(dir=parent, prefix=f".{self._stem[:50]}.partial-"))
            os.chmod(self.path, 0o755)
        except (OSError, RuntimeError, ValueError) as problem:  # a loop of links, a null byte
            if isinstance(problem, InputError):
                raise
            reason = getattr(problem, "strerror", None) or str(problem)
            raise InputError(f"cannot be written ({reason})", file=parent, key="--out") from None
        self._parent, self._finished, self.lost = parent, False, list[str]()
        self._steps = _Stream(self.path / "steps.parquet", ROW_GROUP)
        self._intervals = _Stream(self.path / "intervals.parquet", 0)
        self._requests = _Stream(self.path / "requests.parquet", 0)
        self._lengths = _Stream(self.path / "lengths.parquet", ROW_GROUP)
        self._streams = (self._steps, self._intervals, self._requests, self._lengths)

    def _check(self, out: Path) -> None:
        if out.exists() and not out.is_dir():
            raise InputError("is a file", file=out, key="--out", allowed="a new or an empty folder")
        own = getattr(self, "path", None)
        if out.is_dir() and any(entry != own for entry in out.iterdir()):
            raise InputError("is not empty, and a run never mixes its files with others", file=out, key="--out",
                             allowed="a new or an empty folder")

    def steps(self, table: pa.Table) -> None:
        """The sink that :func:`~dspark_sim.simulate.simulate` calls with each finished piece of the steps table."""
        self._steps.add(table)

    def add(self, run: ArmRun) -> None:
        """One finished (arm, replication): a row group of each table (of steps if it kept them);
        a long table comes in several."""
        for stream, table in ((self._intervals, run.intervals), (self._requests, run.requests)):
            if table.num_rows <= GROUP_ROWS:
                stream.add(table)
                continue
            for start in range(0, table.num_rows, GROUP_ROWS):
                stream.add(table.slice(start, GROUP_ROWS))
                let_go()
        if run.lengths is not None:
            self._lengths.add(run.lengths)
        if run.steps is not None:
            self._steps.add(run.steps)

    def write(self, name: str, text: str) -> None:
        """A text file of the folder, UTF-8."""
        try:
            (self.path / name).write_text(text, encoding="utf-8", newline="\n")
        except OSError as problem:  # of a full disk, which does not say which file
            raise OSError(problem.errno, problem.strerror, name) from None

    def close_tables(self) -> OSError | None:
        """Complete the Parquet files, so that plots can read them.

        Returns:
            Why some could not be completed (a full disk); those are deleted and named in :attr:`lost`, the largest
            first, which makes room for the others. None: all are whole.
        """
        streams = sorted(self._streams, key=lambda s: s.problem is None)
        for stream in streams:
            with suppress(OSError):
                if stream.problem is None:
                    stream.close()
            if stream.problem is not None:
                stream.give_up()
                self.lost.append(stream.name)
        return next((s.problem for s in streams if s.problem is not None), None)

    def finish(self) -> Path:
        """Give the folder its final name.

        Raises:
            InputError: it cannot have it (meanwhile somebody else put files there); what was built is kept.
        """
        if self._exact is not None:
            try:
                self._check(self._place)
                if self._place.is_dir():
                    self._move_up()
                else:
                    os.rename(self.path, self._place)
            except (InputError, OSError) as problem:
                self._finished = True
                reason = problem.problem if isinstance(problem, InputError) else problem.strerror or str(problem)
                raise InputError(f"{reason}; the results are kept in {self.path}", file=self._exact,
                                 key="--out") from None
            self.path = self._exact
        else:
            n = 1
            while True:
                target = self._parent / (self._stem if n == 1 else f"{self._stem}-{n}")
                try:
                    if target.exists():  # renaming onto an empty folder would succeed
                        raise FileExistsError
                    os.rename(self.path, target)
                    break
                except OSError:
                    if not target.exists():
                        raise
                    n += 1
            self.path = target
        self._finished = True
        return self.path

    def _move_up(self) -> None:
        """Everything into the folder that exists; whoever finds the manifest there finds all the rest."""
        with undisturbed():
            for name in sorted(os.listdir(self.path), key=lambda name: (name == "manifest.json", name)):
                os.rename(self.path / name, self._place / name)
            self.path.rmdir()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            for stream in self._streams:
                stream.give_up()
            shutil.rmtree(self.path, ignore_errors=True)


def _safe(name: str) -> str:
    """``name`` as part of a folder's name: letters, digits, dot, dash and underscore."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip(".-") or "run"
