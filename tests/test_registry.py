"""From a reference to a policy: where it is found, what is refused, and how that is said."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from dspark_sim.policy import Policy
from dspark_sim.registry import REQUIRED, list_policies, load_policy
from tests.policy_files import GOOD, MINIMAL, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(GOOD)
    return tmp_path


# -- finding ---------------------------------------------------------------------------------------------------------
def test_the_shelf_has_names_hashes_and_documented_parameters() -> None:
    sources = {source.name: source for source in list_policies()}
    assert list(sources) == sorted(sources)
    source = sources["async_global"]
    assert source.shipped
    assert source.lossless
    assert source.timing == "overlapped"
    assert source.needs_confidence
    assert source.parameters["lag"] == ("int", 2)
    assert source.parameters["cost"] == ("step | verify", "step")
    assert source.path is not None
    assert source.sha256 == hashlib.sha256(source.path.read_bytes()).hexdigest()


def test_a_fresh_object_each_time() -> None:
    one, two = load_policy("early_stop")[0], load_policy("early_stop")[0]
    assert one is not two
    assert type(one) is type(two)
    assert isinstance(one, Policy)


@pytest.mark.parametrize("reference", ["mine.py", "./mine.py", "./mine.py:Mine", "mine.py:Mine", "sub/../mine.py"])
def test_a_file_relative_to_the_scenario(folder: Path, reference: str) -> None:
    (folder / "sub").mkdir()
    policy, source = load_policy(reference, {"needed": 4}, folder)
    assert policy.needed == 4  # type: ignore[attr-defined]
    assert source.name == "Mine"
    assert not source.shipped
    assert source.path == (folder / "mine.py").resolve()
    assert source.sha256 == hashlib.sha256(GOOD.encode()).hexdigest()
    assert source.doc == "A file.\n\nA class."
    assert source.parameters["needed"] == ("int", REQUIRED)
    assert not (folder / "__pycache__").exists()


def test_an_absolute_path_and_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_policy(str(folder / "mine.py"), {"needed": 1}, Path("/"))[1].name == "Mine"
    monkeypatch.chdir(folder)
    assert load_policy("./mine.py:Mine", {"needed": 1})[1].name == "Mine"


def test_files_of_one_name_do_not_meet_and_an_edited_file_is_loaded_anew(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "mine.py").write_text(MINIMAL.format(name="Other"))
    assert load_policy("mine.py", {"needed": 1}, folder)[1].name == "Mine"
    assert load_policy("sub/mine.py", {}, folder)[1].name == "Other"
    before = set(sys.modules)
    first = load_policy("mine.py", {"needed": 1}, folder)[1]
    assert set(sys.modules) == before  # the same bytes run once
    (folder / "mine.py").write_text(GOOD.replace("share: float = 0.5", "share: float = 0.25"))
    policy, second = load_policy("mine.py", {"needed": 1}, folder)
    assert policy.share == 0.25  # type: ignore[attr-defined]
    assert first.sha256 != second.sha256


def test_an_installed_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_package_of_policies"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "good.py").write_text(MINIMAL.format(name="Mine"))
    (package / "broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    source = load_policy("some_package_of_policies.good:Mine")[1]
    assert source.path == package / "good.py"
    assert source.sha256 == hashlib.sha256((package / "good.py").read_bytes()).hexdigest()
    assert "a_module_that_is_not_there" in str(refused("some_package_of_policies.broken:Mine"))
    assert "no module named 'some_package_of_policies.bad'" in str(refused("some_package_of_policies.bad:Mine"))
    assert "has no class 'Mino'" in str(refused("some_package_of_policies.good:Mino"))


def test_helpers_and_imported_policies_in_a_file_are_no_candidates(tmp_path: Path) -> None:
    text = "from dspark_sim.policy import BudgetPolicy\n" + MINIMAL.format(name="_Base") + '''
class Mine(_Base, BudgetPolicy):
    needs_confidence = False
    def token_budget(self, view):
        return 0
class Helper:
    pass
'''
    (tmp_path / "p.py").write_text(text)
    assert load_policy("p.py", {}, tmp_path)[1].name == "Mine"
    assert load_policy("p.py:_Base", {}, tmp_path)[1].name == "_Base"


# -- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("reference", "says"), [
    ("early_stp", "policy: unknown policy 'early_stp'; allowed: async_global, batch_schedule, clairvoyant,"),
    ("early_stp", "(did you mean 'early_stop'?)"),
    ("", "policy: got '', not the name of a policy"),
    (7, "policy: got 7, not the name of a policy"),
    (None, "not the name of a policy"),
    ("__init__", "unknown policy '__init__'"),
    ("./mien.py:Mine", "policy: './mien.py': no such file in"),
    ("./mien.py:Mine", "(did you mean 'mine.py'?)"),
    ("../:Mine", "is a folder"),
    ("mine.py:", "got 'mine.py:', without a class after the colon"),
    ("./mine.py:Min", "has no class 'Min'; allowed: Mine (did you mean 'Mine'?)"),
    ("./mine.py:np", "np is no policy class; allowed: a class with verify_lengths(view)"),
    ("./mine.py:dataclass", "dataclass is no policy class"),
    ("no_such_package_of_mine:Mine", "no module named 'no_such_package_of_mine' is installed"),
    ("not a module:Mine", "'not a module' is neither a module nor a file"),
    ("json:JSONDecoder", "JSONDecoder is no policy class"),
])
def test_bad_references(folder: Path, reference: Any, says: str) -> None:
    error = refused(reference, {}, folder)
    assert says in str(error)
    assert error.key == "policy"


@pytest.mark.parametrize(("text", "line", "says"), [
    ("x = 1\ndef f(:\n", 2, "is not valid Python (invalid syntax)"),
    ("x = 1\n\nimport nonsense_module_name\n", 3, "importing it raised ModuleNotFoundError: No module named"),
    ("def f():\n    return 1 / 0\n\nf()\n", 2, "importing it raised ZeroDivisionError: division by zero"),
    ("import sys\nsys.exit(3)\n", 2, "importing it raised SystemExit: 3"),
    ("raise ValueError('two\\nlines')\n", 1, "importing it raised ValueError: two lines"),
    ("x = 1\0\n", None, ""),
    ("", None, "has no policy class; allowed: a class with verify_lengths(view)"),
    ("class A:\n    pass\n", None, "has no policy class"),
    (MINIMAL.format(name="A") + MINIMAL.format(name="B"), None, "has 2 policy classes; allowed: …:A or …:B"),
    (MINIMAL.format(name="A").replace("lossless = True", ""), 2,
     "A must define lossless; allowed: True or False"),
    (MINIMAL.format(name="A").replace("True", "1"), 2, "A has lossless = 1; allowed: True or False"),
    (MINIMAL.format(name="A").replace('timing = "overlapped"', ""), 2,
     "A must define timing; allowed: overlapped or synchronous"),
    (MINIMAL.format(name="A").replace("overlapped", "overlaped"), 2, "A has timing = 'overlaped'"),
    (MINIMAL.format(name="A").replace("lossless", "needs_oracle = True\n    lossless"), 2,
     "A asks for the oracle, so it cannot be lossless"),
    (MINIMAL.format(name="A").replace("lossless", "needs_confidence = None\n    lossless"), 2,
     "A has needs_confidence = None"),
    ("from dspark_sim.policy import BudgetPolicy\nclass A(BudgetPolicy):\n    pass\n", 2,
     "A is a BudgetPolicy without token_budget(view)"),
    ("from dataclasses import dataclass\n@dataclass" + MINIMAL.format(name="A").rstrip() + "\n    x: Nonsense = 1\n", 2,
     "A: a type cannot be read"),
])
def test_bad_files(tmp_path: Path, text: str, line: int | None, says: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text if "Nonsense" not in text else "from __future__ import annotations\n" + text)
    error = refused("bad.py", {}, tmp_path)
    assert says in str(error)
    assert str(path) in str(error)
    if line is not None:
        assert error.line == line + ("Nonsense" in text)
    assert error.key == "policy"
    refused("bad.py", {}, tmp_path)  # and again: nothing half loaded is left behind


def test_garbage_and_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "noise.py").write_bytes(bytes(range(256)) * 9)
    assert "noise.py" in str(refused("noise.py", {}, tmp_path))
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    refused("loop.py", {}, tmp_path)
