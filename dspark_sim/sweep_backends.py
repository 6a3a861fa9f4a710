"""Where tasks are computed: joblib's loky on this machine, or a dask or ray cluster, which this module can start.

All three go through ``joblib.Parallel``. Loky is joblib's own backend; for dask and ray two small backends are
registered here, which hand tasks to the cluster as futures: joblib's dask backend waits for ever when a task kills its
workers, and ray's cannot give results one by one.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from dspark_sim.errors import InputError, RunError, nearest
from dspark_sim.lean import WORKER, arrow_without_pandas
from dspark_sim.stopping import keeping_handlers
from dspark_sim.sweep_worker import Outcome, Task, work

__all__ = ["BACKENDS", "Backend", "check_backend"]

BACKENDS = ("loky", "dask", "ray")
PACKAGE = {"dask": "distributed", "ray": "ray"}
THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def check_backend(name: str, address: str | None) -> None:
    """Whether a backend can be used at all, before anything is computed.

    Raises:
        InputError: unknown, its package is not installed, or an address for loky, which has none.
    """
    if name not in BACKENDS:
        raise InputError(f"got {name!r}", key="--backend", allowed=", ".join(BACKENDS),
                         suggestion=nearest(name, BACKENDS))
    if name == "loky" and address is not None:
        raise InputError("loky computes on this machine and has no address", key="--address",
                         allowed="--backend dask or --backend ray")
    if name in PACKAGE and find_spec(PACKAGE[name]) is None:
        raise InputError(f"{name} is not installed; pip install 'dspark-sim[{name}]' installs it", key="--backend")


class Backend:
    """Computes tasks; a context manager that starts what it needs and stops what it started.

    Args:
        name: one of :data:`BACKENDS`, checked.
        jobs: tasks at a time; None: all cores, of this machine or of the cluster.
        address: of a running cluster; None: a local one is started (dask, ray).

    Attributes:
        jobs: tasks at a time, known once it is entered.
    """

    def __init__(self, name: str, jobs: int | None = None, address: str | None = None) -> None:
        self.name, self.address = name, address
        self._asked = jobs
        self.jobs = jobs or 1
        self._stack = ExitStack()
        self._options: dict[str, Any] = {}
        self._ahead = 1

    def __enter__(self) -> Backend:
        import joblib

        workers = cores = joblib.cpu_count()
        with ExitStack() as starting:
            starting.enter_context(warnings.catch_warnings())  # joblib's advice to those who stop half way
            warnings.filterwarnings("ignore", ".*still being processed by the workers", UserWarning)
            if self.name == "loky":
                self.jobs = self._asked or cores
                self._options = {"inner_max_num_threads": 1, "initializer": _begin, "initargs": (os.getpid(),)}
            else:
                start = _start_dask if self.name == "dask" else _start_ray
                workers, submit = start(starting, self._asked, cores, self.address)
                self.jobs = min(self._asked or workers, workers)
                joblib.register_parallel_backend(f"dspark-{self.name}", _futures_backend(submit))
            fewer = self.name != "loky" and self.jobs < workers  # the rest of the cluster is not ours
            self._ahead = self.jobs if fewer else 2 * self.jobs
            self._stack = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.name == "loky" and self.jobs > 1:
            from joblib.externals.loky import get_reusable_executor

            get_reusable_executor().shutdown(wait=True, kill_workers=True)
        self._stack.__exit__(kind, error, trace)

    def compute(self, tasks: Iterator[Task] | Sequence[Task], *, apart: bool = False) -> Iterator[Outcome]:
        """Outcomes as they come.

        Args:
            tasks: taken one by one as workers get free (and a few ahead).
            apart: in another process even where one task at a time would be computed in this one.

        Raises:
            Exception: of the library's own kinds, when a worker died or the cluster is gone.
        """
        yield from self.call(work, tasks, apart=apart)

    def call(self, function: Callable[[Any], Any], items: Iterable[Any], *, apart: bool = False) -> Iterator[Any]:
        """``function`` of each item, in the order in which they are done; see :meth:`compute`."""
        from joblib import Parallel, delayed, parallel_config

        here = self.name == "loky"
        # joblib computes n_jobs=1 in this process; on a cluster it is the number under way that counts, not n_jobs
        jobs = self.jobs if here and not apart else max(2, self.jobs)
        options = self._options if jobs > 1 else {}
        with parallel_config("loky" if here else f"dspark-{self.name}", n_jobs=jobs, **options):
            parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=self._ahead)
            yield from parallel(delayed(function)(item) for item in items)


def _begin(parent: int) -> None:
    """First thing in a loky worker: Ctrl-C is the parent's business, and a parent that was killed leaves nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arrow_without_pandas(WORKER)

    def watch() -> None:
        import time

        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _futures_backend(submit: Callable[[Any], Any]) -> type[Any]:
    """A joblib backend over anything that turns a callable into a future."""
    from joblib.parallel import ParallelBackendBase

    class Futures(ParallelBackendBase):  # type: ignore[misc]
        supports_retrieve_callback = True

        def effective_n_jobs(self, n_jobs: int) -> int:
            return n_jobs

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
            self.parallel = parallel
            self.waiting: set[Any] = set()
            return n_jobs

        def submit(self, func: Any, callback: Any = None) -> Any:
            future = submit(func)
            self.waiting.add(future)
            future.add_done_callback(self.waiting.discard)
            future.add_done_callback(callback)
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            return out.result()

        def abort_everything(self, ensure_ready: bool = True) -> None:
            for future in list(self.waiting):
                future.cancel()

    return Futures


def _start_dask(
    stack: ExitStack, jobs: int | None, cores: int, address: str | None
) -> tuple[int, Callable[[Any], Any]]:
    """(workers, submit) of a dask cluster, a local one if no address is given."""
    import logging

    distributed = import_module("distributed")  # extras: not there for everybody, and without types
    cluster: Any = address
    if address is None:
        stack.enter_context(import_module("dask").config.set({"distributed.scheduler.allowed-failures": 0}))
        cluster = stack.enter_context(distributed.LocalCluster(
            n_workers=jobs or cores, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL,
            env=THREADS,
        ))
    try:
        client = stack.enter_context(distributed.Client(cluster, timeout="10s"))
    except (OSError, ValueError) as problem:
        raise InputError(f"no dask scheduler answers at {address} ({problem})", key="--address") from None
    workers = sum(client.nthreads().values())
    if workers == 0:
        raise InputError(f"the dask cluster at {address} has no workers", key="--address")
    executor = client.get_executor(pure=False)
    stack.callback(executor.shutdown, wait=False)
    if address is None:
        stack.push(lambda kind, *_: None if kind is None else _end_workers(cluster))
    return workers, executor.submit


def _end_workers(cluster: Any) -> None:
    """A sweep that is stopped does not wait for tasks under way; dask itself gives each some seconds to end."""
    for nanny in cluster.workers.values():
        if getattr(nanny, "pid", None):
            with suppress(OSError):
                os.kill(nanny.pid, signal.SIGKILL)


def _start_ray(
    stack: ExitStack, jobs: int | None, cores: int, address: str | None
) -> tuple[int, Callable[[Any], Any]]:
    """(workers, submit) of a ray cluster, a local one if no address is given."""
    import logging

    ray = import_module("ray")
    mine = not ray.is_initialized()
    if mine:
        how: dict[str, Any] = {"num_cpus": jobs or cores} if address is None else {"address": address}
        if address is None:
            how["include_dashboard"] = False
        try:
            with keeping_handlers():
                ray.init(**how, log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": THREADS})
        except (ConnectionError, ValueError, RuntimeError) as problem:
            raise InputError(f"no ray cluster answers at {address} ({problem})", key="--address") from None
        except Exception as problem:  # ray says no more than Exception of what does not start in time
            raise RunError(f"ray did not start on this machine: {problem}") from None
        stack.callback(ray.shutdown)

    @ray.remote(num_cpus=1, max_retries=0)  # type: ignore[untyped-decorator]
    def call(function: Any) -> Any:
        return function()

    return int(ray.cluster_resources().get("CPU", 1)), lambda function: call.remote(function).future()
