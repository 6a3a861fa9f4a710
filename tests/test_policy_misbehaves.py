"""A policy may raise, exit, hang, print or answer nonsense: its arm ends with the reason, the others do not notice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_sim.errors import PolicyLoadError
from dspark_sim.guard import LIMIT_VARIABLE, limit_s, stragglers
from dspark_sim.results import Results
from dspark_sim.runner import run
from tests.small_world import make

POLICY = '''"""Verifies everything; from its sixth step on something happens."""
import ctypes, logging, os, random, signal, sys, threading, time, warnings
import numpy as np

class Odd:
    lossless = True
    timing = "overlapped"
    steps = 0

    def verify_lengths(self, view):
        self.steps += 1
        full = view.drafted.copy()
        if self.steps > 5:
            {body}
        return full
'''
LINE = 14  # of the body
BUDGET = '''from dspark_sim.policy import BudgetPolicy

class Odd(BudgetPolicy):
    def token_budget(self, view):
        return {answer}
'''
posix = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the shipped arms of the small world give when nobody disturbs them."""
    return figures(run(make(tmp_path_factory.mktemp("calm"))))


def figures(results: Results) -> dict[str, Any]:
    return {a.arm: a.figures["throughput_tok_s_gpu"].mean for a in results.arms if a.arm != "odd"}


def odd(folder: Path, text: str, drafter: str = "dspark") -> Path:
    """The small world with one arm more, before the last: its policy is ``text``."""
    (folder / "odd.py").write_text(text)
    path = make(folder)
    arm = f"  - {{name: odd, drafter: {drafter}, policy: ./odd.py}}\n"
    path.write_text(path.read_text().replace("  - {name: async,", f"{arm}  - {{name: async,"))
    return path


def reason(folder: Path, text: str, calm: dict[str, Any]) -> str:
    """Run it; the others must be as ever; why the odd arm ended, "" if it did not."""
    results = run(odd(folder, text))
    assert figures(results) == calm
    error = results["odd"].error
    assert error is None or "\n" not in error
    return error or ""


# -- raising ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("body", "says"), [
    ("raise ValueError('no idea')", "raised ValueError: no idea"),
    ("sys.exit(3)", "raised SystemExit: 3"),
    ("sys.exit()", "raised SystemExit"),
    ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    ("raise GeneratorExit", "raised GeneratorExit"),
    ("raise StopIteration('x')", "raised StopIteration: x"),
    ("raise Exception('two\\nlines')", "raised Exception: two lines"),
    ("raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})()", "raised Mute: (its text cannot be shown)"),
    ("self.verify_lengths(view)", "raised RecursionError"),
    ("view.drafted[0] = 0", "raised ValueError: assignment destination is read-only"),
    ("view.survival[0, 0] = 1", "raised ValueError: assignment destination is read-only"),
    ("view.context.sort()", "read-only"),
    ("view.past(1)", "raised ValueError: past(1): this engine can answer for 2 to 8 steps ago"),
    ("np.zeros(3) @ np.zeros(4)", "raised ValueError: matmul"),
])
def test_raising_names_policy_method_place_and_step(
    tmp_path: Path, calm: dict[str, Any], body: str, says: str
) -> None:
    error = reason(tmp_path, POLICY.format(body=body), calm)
    assert error.startswith("policy Odd.verify_lengths raised ")
    assert says in error
    line = 12 if "verify_lengths" in body else LINE  # the recursion ends somewhere inside
    assert f"({tmp_path / 'odd.py'}:{line}) at decode step 5" in error or line == 12


# -- nonsense --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("body", "says"), [
    ("return None", "answered None"),
    ("return 2", "answered 2, of shape ()"),
    ("return 'all'", "answered 'all'"),
    ("return full.astype(float)", "answered shape (8,) of float64"),
    ("return full * np.nan", "answered shape (8,) of float64"),
    ("return full > 0", "answered shape (8,) of bool"),
    ("return full.astype(object)", "answered shape (8,) of object"),
    ("return full[:-1]", "answered shape (7,) of int64"),
    ("return full[None]", "answered shape (1, 8) of int64"),
    ("return [[1], [1, 2]]", "answered [[1], [1, 2]]"),
    ("return {1: 2}", "answered {1: 2}"),
    ("return type('Shy', (), {'__repr__': lambda self: 1 / 0})()", "answered a Shy"),
    ("return full + 1", "answered 4 for request 0 of 8"),
    ("return -full", "answered -3 for request 0 of 8"),
    ("return full + 10**12", "answered 1000000000003 for request 0 of 8"),
    ("return np.zeros(full.size, dtype=np.uint64) - np.uint64(1)", "answered 9223372036854775807 for request 0 of 8"),
])
def test_nonsense_is_refused_with_what_is_allowed(tmp_path: Path, calm: dict[str, Any], body: str, says: str) -> None:
    error = reason(tmp_path, POLICY.format(body=body), calm)
    assert error.startswith(f"policy Odd.verify_lengths {says} ({tmp_path / 'odd.py'}:10) at decode step 5; allowed: ")
    assert error.endswith(("whole numbers", "0 to 3"))


@pytest.mark.parametrize("answer", ["float('nan')", "None", "'many'", "1e30", "[1, 2]"])
def test_a_budget_that_is_no_number(tmp_path: Path, calm: dict[str, Any], answer: str) -> None:
    error = reason(tmp_path, BUDGET.format(answer=answer), calm)
    assert "token_budget answered" in error or "raised TypeError" in error
    assert "at decode step 0" in error


# -- harmless --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("body", [
    "self.kept = getattr(self, 'kept', []) + [view, view.survival]",  # views are reused; keeping them is no help
    "self.heap = np.ones(5_000_000) if self.steps == 6 else None",
    "threading.Thread(target=time.sleep, args=(0,)).start()",
    "np.seterr(all='raise')",
    "os.chdir('/')",
    "random.seed(1); np.random.seed(1)",
    "sys.stdout.close()",
    "sys.stdout.buffer.write(b'bytes\\n'); sys.stdout.fileno(); sys.stdout.isatty()",
    "warnings.warn('careful', DeprecationWarning)",
    "view.requests = 0; view.slot = None",
])
def test_what_a_policy_does_to_itself_stays_there(tmp_path: Path, calm: dict[str, Any], body: str) -> None:
    before, errors, stdout = os.getcwd(), np.geterr(), sys.stdout
    assert reason(tmp_path, POLICY.format(body=body), calm) == ""
    assert (os.getcwd(), np.geterr(), sys.stdout) == (before, errors, stdout)


# -- printing --------------------------------------------------------------------------------------------------------
def test_prints_go_to_stderr_under_the_arms_name(
    tmp_path: Path, calm: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    body = "print('step', self.steps, end='!\\n'); print('half', end='')"
    assert reason(tmp_path, "print('loaded')\n" + POLICY.format(body=body), calm) == ""
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("[odd.py] loaded") == 1
    assert "[odd] step 6!\n[odd] halfstep 7!\n" in said.err
    assert said.err.count("[odd] ") == 2 * 21  # twenty lines of each replication, and how many more
    assert "more lines\n" in said.err


def test_a_handler_that_keeps_stdout_can_use_it_at_any_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = "LOG = logging.getLogger('odd'); LOG.addHandler(logging.StreamHandler(sys.stdout))"
    text = POLICY.format(body="LOG.warning('step %d', self.steps)").replace("import numpy", f"{log}\nimport numpy")
    assert run(odd(tmp_path, text))["odd"].error is None
    said = capsys.readouterr()
    assert said.out == ""
    assert "[odd.py] step 6\n" in said.err


def command(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "dspark_sim", *words], cwd=folder, capture_output=True, text=True,
                          timeout=120, env=os.environ | environment)


def test_json_stays_json_and_threads_do_not_keep_the_process(tmp_path: Path) -> None:
    body = "print('noise'); threading.Thread(target=threading.Event().wait).start() if self.steps == 6 else None"
    scenario = odd(tmp_path, POLICY.format(body=body))
    done = command(tmp_path, "run", str(scenario), "--no-plots", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["arms"]) == 4
    assert "[odd] noise" in done.stderr
    assert "note: left behind by a policy, and given up: Thread-" in done.stderr


def test_a_sweep_of_a_policy_that_prints_or_exits(tmp_path: Path) -> None:
    scenario = odd(tmp_path, POLICY.format(body="print('noise'); sys.exit(0)"))
    done = command(tmp_path, "sweep", str(scenario), "--jobs", "2", "--format", "csv", "--quiet",
                   "--set", "measure.duration_s=1")
    assert done.returncode == 1
    header, *rows = done.stdout.splitlines()
    assert header.startswith("point,")
    assert "noise" not in done.stdout
    assert rows
    assert "arm odd, replications 0–1: policy Odd.verify_lengths raised SystemExit: 0" in done.stderr


@pytest.mark.parametrize(("body", "code"), [("print('noise')", 0), ("sys.exit(0)", 1)])
def test_a_check_of_a_policy_that_prints_or_exits(tmp_path: Path, body: str, code: int) -> None:
    text = POLICY.format(body=body).replace("self.steps > 5", "True")
    (tmp_path / "odd.py").write_text(text)
    done = command(tmp_path, "policy", "check", "odd.py", "--format", "json")
    assert done.returncode == code, done.stderr
    report = json.loads(done.stdout)
    assert ("raised SystemExit: 0" in json.dumps(report)) == (code == 1)


# -- hanging: a second each, so that a busy machine does not take a slow call for one that hangs ----------------------
@posix
@pytest.mark.parametrize(("old", "new"), [
    ("full = view.drafted.copy()", "full = [0 for _ in iter(int, 1)]"),
    ("full = view.drafted.copy()", "time.sleep(1e6)"),
    ("full = view.drafted.copy()", "threading.Event().wait()"),
    ("def verify_lengths", "def start(self, setup):\n        while True: pass\n    def verify_lengths"),
])
def test_a_hanging_policy_is_given_up(
    tmp_path: Path, calm: dict[str, Any], monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1")
    error = reason(tmp_path, POLICY.format(body="pass").replace(old, new), calm)
    method = "start" if "start" in new else "verify_lengths"
    assert error.startswith(f"policy Odd.{method} had not answered after 1 s ({tmp_path / 'odd.py'}:")
    assert error.endswith("at decode step 0")
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


@posix
def test_even_one_that_swallows_every_exception(
    tmp_path: Path, calm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0.5")
    loop = ("while True:", "    try:", "        time.sleep(0)", "    except BaseException:", "        pass")
    error = reason(tmp_path, POLICY.format(body=("\n" + " " * 12).join(loop)), calm)
    assert "Odd.verify_lengths had not answered after 0.5 s" in error
    assert sys.gettrace() is None or "coverage" in sys.modules


def test_a_file_that_hangs_when_imported_is_the_users_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0.5")
    with pytest.raises(PolicyLoadError, match=r"odd\.py:1: policy: importing it had not answered after 0.5 s"):
        run(odd(tmp_path, "while True: pass\n"))


def test_in_another_thread_a_loop_ends_too_and_native_code_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0.4")
    errors = []
    for i, body in enumerate(("while True: pass", "time.sleep(2)")):
        (tmp_path / str(i)).mkdir()
        path = odd(tmp_path / str(i), POLICY.format(body=body))
        thread = threading.Thread(target=lambda path=path: errors.append(run(path)["odd"].error))
        thread.start()
        thread.join()
    assert ["had not answered after 0.4 s" in str(e) for e in errors] == [True, True]
    assert "cannot be broken: it is in native code" in capsys.readouterr().err


def test_the_limit_counts_looks_not_the_clock_and_can_be_lifted(
    tmp_path: Path, calm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, limit in (("0", 0.0), ("2.5", 2.5), ("nonsense", 30.0), ("-1", 30.0), ("nan", 30.0), ("", 30.0)):
        monkeypatch.setenv(LIMIT_VARIABLE, value)
        assert limit_s() == limit
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    threads = threading.active_count()
    assert reason(tmp_path, POLICY.format(body="self.most = max(getattr(self, 'most', 0), threading.active_count())"),
                  calm) == ""
    assert threading.active_count() == threads
    assert stragglers() == []


@posix
def test_the_option_reaches_policies_and_does_not_outlive_the_command(tmp_path: Path) -> None:
    scenario = odd(tmp_path, POLICY.format(body="while True: pass"))
    done = command(tmp_path, "run", str(scenario), "--no-plots", "--format", "csv", "--decision-timeout", "0.5")
    assert done.returncode == 1
    assert "error: arm odd failed: policy Odd.verify_lengths had not answered after 0.5 s" in done.stderr
    assert len(done.stdout.splitlines()) == 5


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------
@posix
def test_a_real_interrupt_inside_a_policy_stops_the_run(tmp_path: Path) -> None:
    for body in ("signal.raise_signal(signal.SIGINT)", "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"):
        with pytest.raises(KeyboardInterrupt):
            run(odd(tmp_path, POLICY.format(body=body)))
