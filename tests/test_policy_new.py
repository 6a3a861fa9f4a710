"""What ``policy new`` writes is what an author would want to keep: it passes ruff, its own tests and the check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LONG = "a_name_as_long_as_it_may_be_forty_letter"


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PATH": path, "COLUMNS": "200"})
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(name="written", scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with one policy of each kind, and what the command said of the first."""
    folder = tmp_path_factory.mktemp("new")
    budget = command(folder, "dspark_sim", "policy", "new", "load_aware")
    full = command(folder, "dspark_sim", "policy", "new", LONG, "--kind", "full")
    assert budget.returncode == full.returncode == 0, budget.stderr + full.stderr
    assert budget.stderr == ""
    assert sorted(p.name for p in (folder / "policies").iterdir()) == sorted(
        ["load_aware.py", "test_load_aware.py", f"{LONG}.py", f"test_{LONG}.py"])
    return folder, budget.stdout


def test_they_pass_ruff(written: tuple[Path, str]) -> None:
    folder, _ = written
    for more in ((), ("--select", "E,F,W,I,UP,B,SIM,RUF,PT,N", "--line-length", "120")):
        done = command(folder, "ruff", "check", "--isolated", "--no-cache", *more, "policies")
        assert done.returncode == 0, done.stdout


def test_their_own_tests_pass(written: tuple[Path, str]) -> None:
    """Contract, claim, greedy decoding and a run, of both: in a fresh process, as an author would."""
    done = command(written[0], "pytest", "-q", "-p", "no:cacheprovider", "policies")
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout


def test_check_and_run_as_the_command_says(written: tuple[Path, str]) -> None:
    folder, said = written
    assert said.startswith("wrote policies/load_aware.py and policies/test_load_aware.py\n")
    assert "  dspark-sim policy check load_aware\n" in said
    done = command(folder, "dspark_sim", "policy", "check", "load_aware")
    assert done.returncode == 0, done.stdout
    assert "load_aware is lossless in every check" in done.stdout
    (line,) = re.findall(r"^  dspark-sim (run .*)$", said, re.MULTILINE)
    short = " --set replications=1 --set measure.warmup_s=0 --set measure.duration_s=2 --no-plots --format csv"
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m dspark_sim {line}{short}"], cwd=folder,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [row.split(",")[1] for row in done.stdout.splitlines()] == ["policy", "async_global", "load_aware"]
    assert re.search(r"^  dspark-sim rank quickstart --policies async_global,threshold,load_aware$", said, re.MULTILINE)


@pytest.mark.parametrize(("name", "says"), [
    ("LoadAware", "NAME: got 'LoadAware'; allowed: a word of small letters, digits and underscores, such as load_aware "
                  "(did you mean 'load_aware'?)"),
    ("my-policy.py", "(did you mean 'my_policy'?)"),
    ("../up", "got '../up'"),
    ("2nd", "got '2nd'"),
    ("_hidden", "did you mean 'hidden'"),
    (LONG + "x", "got '"),
    ("class", "'class' means something else to Python or pytest"),
    ("test_mine", "'test_mine' means something else to Python or pytest"),
    ("conftest", "means something else"),
    ("early_stop", "there is a policy 'early_stop' already (shelf: "),
    ("", "got ''"),
])
def test_names_that_cannot_be_used(tmp_path: Path, name: str, says: str, capsys: pytest.CaptureFixture[str],
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    assert new(tmp_path, monkeypatch, name) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def new(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """``policy new`` in this process."""
    from dspark_sim import cli

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["dspark-sim", "policy", "new", *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_nothing_is_overwritten_unless_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    assert new(tmp_path, monkeypatch, "mine") == 0
    file, test = (tmp_path / "policies" / n for n in ("mine.py", "test_mine.py"))
    original = file.read_text()
    file.write_text("my work")
    assert new(tmp_path, monkeypatch, "mine", "--kind", "full") == 2
    says = "policies/mine.py: exists already; allowed: another name, or --force to overwrite it"
    assert says in capsys.readouterr().err
    assert file.read_text() == "my work"
    file.unlink()
    test.write_text("my tests")
    assert new(tmp_path, monkeypatch, "mine") == 2
    assert not file.exists()
    assert test.read_text() == "my tests"
    assert new(tmp_path, monkeypatch, "mine", "--force") == 0
    assert file.read_text() == original
    assert new(tmp_path, monkeypatch, "early_stop", "--force") == 0


def test_other_folders_and_folders_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert new(tmp_path, monkeypatch, "mine", "--dir", "sub/other") == 0
    said = capsys.readouterr().out
    assert "policy check ./sub/other/mine.py" in said
    assert f"policy: {tmp_path}/sub/other/mine.py" in said
    (tmp_path / "file").write_text("")
    assert new(tmp_path, monkeypatch, "mine", "--dir", "file/x") == 2
    assert "--dir: cannot be written (Not a directory)" in capsys.readouterr().err


def test_a_class_does_not_hide_what_the_file_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert new(tmp_path, monkeypatch, "budget_policy") == 0
    assert "class BudgetPolicyPolicy(BudgetPolicy)" in (tmp_path / "policies" / "budget_policy.py").read_text()
