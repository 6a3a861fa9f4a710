"""Every task gets an outcome, whatever happens to the workers.

A worker that dies (out of memory, a crash in compiled code, somebody's ``kill -9``) takes its task with it, and on
loky the whole pool. Nobody knows which task it was, so all that were under way are tried again; those that were under
way at two deaths are tried one at a time, and one that then kills its worker a third time has failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dspark_sim.sweep_backends import Backend
from dspark_sim.sweep_worker import Outcome, Task

__all__ = ["outcomes"]

SUSPECT = 2  # deaths that a task was under way at, before it is tried alone


def outcomes(tasks: Sequence[Task], backend: Backend) -> Iterator[Outcome]:
    """One outcome per task, in the order in which they come.

    Args:
        tasks: with different keys.
        backend: entered.
    """
    left = {task.key: task for task in tasks}
    deaths: Counter[str] = Counter()
    barren = 0  # deaths in a row without a single outcome
    while left:
        suspect = next((task for key, task in left.items() if deaths[key] >= SUSPECT), None)
        sent: list[str] = []
        try:
            batch = list(left.values()) if suspect is None else [suspect]
            for outcome in backend.compute(_noted(batch, sent), apart=suspect is not None):
                barren = 0
                if left.pop(outcome.key, None) is not None:  # a cluster that lost a result may compute it again
                    yield outcome
        except Exception as problem:  # work() lets nothing out, so this is the pool's
            barren += 1
            reason = f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
            under_way = [key for key in sent if key in left]
            deaths.update(under_way)
            if suspect is not None:
                del left[suspect.key]
                yield Outcome(suspect.key, error="its worker process died each of three times (out of memory, a crash "
                                                 f"in compiled code, or killed); {reason}")
            elif (barren > SUSPECT + 2 and not under_way) or barren > 5 + 4 * backend.jobs:
                for key in list(left):
                    yield Outcome(key, error=f"workers die before they do anything; {reason}")
                return


def _noted(tasks: Sequence[Task], sent: list[str]) -> Iterator[Task]:
    for task in tasks:
        sent.append(task.key)
        yield task
