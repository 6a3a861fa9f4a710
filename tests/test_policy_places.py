"""Where a name leads: beside the scenario, ./policies, installed, the shelf; what hides what, and who is told."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dspark_sim import cli, userfile
from dspark_sim.arms import load_arms
from dspark_sim.errors import InputError, PolicyLoadError
from dspark_sim.policy_places import by_name, outside, where
from dspark_sim.registry import all_policies, find_policy, list_policies
from dspark_sim.runner import run
from dspark_sim.scenario import load_scenario
from dspark_sim.sweep_key import KeyMaker
from tests.policy_files import MINIMAL
from tests.small_world import make

Install = Callable[..., Path]
ARM = "  - {{name: mine, drafter: dspark, policy: {policy}}}\n"


@pytest.fixture(name="install")
def _install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with entry points on the path, as pip would leave it."""

    def install(package: str, entries: dict[str, str], files: dict[str, str], version: str = "1.0") -> Path:
        site = tmp_path / f"site-{package}"
        (site / package).mkdir(parents=True)
        for name, text in {"__init__.py": "", **files}.items():
            (site / package / name).write_text(text)
        info = site / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        lines = "".join(f"{name} = {target}\n" for name, target in entries.items())
        (info / "entry_points.txt").write_text(f"[dspark_sim.policies]\n{lines}")
        monkeypatch.syspath_prepend(site)
        for module in [m for m in sys.modules if m.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, module)
        return site / package

    return install


def write(folder: Path, name: str, cls: str, extra: str = "") -> Path:
    path = folder / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MINIMAL.format(name=cls) + extra)
    return path.resolve()


@pytest.fixture(name="home")
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; the scenario lies in another one."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(home)
    return home


# -- the order -------------------------------------------------------------------------------------------------------
def test_each_place_hides_the_next(home: Path, tmp_path: Path, install: Install) -> None:
    base = tmp_path / "beside"
    assert find_policy("early_stop", base)[1].place == "shelf"
    install("a_package", {"early_stop": "a_package.mod:Installed"}, {"mod.py": MINIMAL.format(name="Installed")})
    cls, source = find_policy("early_stop", base)
    assert (cls.__name__, source.place) == ("Installed", "installed (a_package 1.0)")
    assert len(source.hides) == 1
    assert source.hides[0].startswith("shelf: ")
    here = write(home / "policies", "early_stop", "Here")
    cls, source = find_policy("early_stop", base)
    assert (cls.__name__, source.place, source.path) == ("Here", "./policies", here)
    assert [h.split(":")[0] for h in source.hides] == ["installed (a_package 1.0)", "shelf"]
    beside = write(base / "policies", "early_stop", "Beside")
    cls, source = find_policy("early_stop", base)
    assert (cls.__name__, source.place, source.path) == ("Beside", "policies/ beside the scenario", beside)
    assert source.hides[0] == f"./policies: {here}"
    assert len(source.hides) == 3
    assert find_policy("early_stop")[0].__name__ == "Here"  # nothing to be beside of
    assert source.name == "early_stop"
    assert not source.shipped
    assert source.sha256 == hashlib.sha256(beside.read_bytes()).hexdigest()
    assert list_policies()[0].shipped  # the shelf itself stays the shelf
    assert {p.name: p.place for p in list_policies()}["early_stop"] == "shelf"


def test_one_folder_is_one_place_and_a_copy_of_the_shelf_hides_nothing(home: Path) -> None:
    write(home / "policies", "mine", "Mine")
    assert where("mine", home) == where("mine", home / ".." / "home")
    assert where("mine", home).hides == ()  # type: ignore[union-attr]
    shelf = next(p.path for p in list_policies() if p.name == "fixed")
    assert shelf is not None
    (home / "policies" / "fixed.py").write_bytes(shelf.read_bytes())
    assert outside("fixed") is None
    (home / "policies" / "fixed.py").write_bytes(shelf.read_bytes() + b"\n")
    assert outside("fixed") is not None


def test_the_checkouts_own_folder_is_the_shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    path = list_policies()[0].path
    assert path is not None
    monkeypatch.chdir(path.parent.parent)
    assert {found.place for found in by_name().values()} == {"shelf"}


def test_tests_and_helpers_are_no_policies(home: Path) -> None:
    for name in ("test_mine", "_helper", "conftest"):
        write(home / "policies", name, "Mine")
        with pytest.raises(PolicyLoadError, match="unknown policy"):
            find_policy(name)
    write(home / "policies", "mine", "Mine")
    with pytest.raises(PolicyLoadError, match="did you mean 'mine'"):
        find_policy("mne")


# -- installed packages ----------------------------------------------------------------------------------------------
def test_entry_points_with_and_without_a_class(home: Path, install: Install) -> None:
    package = install("b_package", {"one": "b_package.mod", "two": "b_package.mod:_Two", "gone": "b_package.no:X",
                                    "bad": "b_package.bad", "none": "b_package.mod:Tow"},
                      {"mod.py": MINIMAL.format(name="One") + MINIMAL.format(name="_Two"), "bad.py": "1 / 0\n"})
    assert find_policy("one")[0].__name__ == "One"
    cls, source = find_policy("two")
    assert (cls.__name__, source.name, source.path) == ("_Two", "two", package / "mod.py")
    for name, says in (("gone", "installed (b_package 1.0): no module named 'b_package.no'"),
                       ("bad", "importing b_package.bad raised ZeroDivisionError"), ("none", "has no class 'Tow'")):
        with pytest.raises(PolicyLoadError) as caught:
            find_policy(name)
        assert says in str(caught.value)
    sources, problems = all_policies()
    assert {"one", "two", "early_stop"} <= {s.name for s in sources}
    assert len(problems) == 3


def test_two_packages_with_one_name(home: Path, install: Install) -> None:
    for package in ("d_package", "c_package"):
        install(package, {"twin": f"{package}.mod"}, {"mod.py": MINIMAL.format(name="One")})
    source = find_policy("twin")[1]
    assert source.place == "installed (c_package 1.0)"
    assert source.hides == ("installed (d_package 1.0): d_package.mod",)


def test_an_edited_package_is_not_taken_for_the_one_that_was_imported(home: Path, install: Install) -> None:
    package = install("e_package", {"mine": "e_package.mod"},
                      {"mod.py": "import e_package.helper\n" + MINIMAL.format(name="Mine"), "helper.py": "x = 1\n"})
    first = find_policy("mine")[1]
    assert first.package_sha256
    (package / "helper.py").write_text("x = 2\n")
    with pytest.raises(PolicyLoadError, match="was edited after this process imported it"):
        find_policy("mine")


# -- what is said ----------------------------------------------------------------------------------------------------
def test_a_run_says_what_hides_what_and_keeps_hash_and_place(home: Path, tmp_path: Path) -> None:
    base = tmp_path / "beside"
    file = write(base / "policies", "fixed", "Mine")
    scenario = make(base, ARM.format(policy="fixed"))
    scenario.write_text(scenario.read_text().replace("policy: {name: fixed, length: 3}", "policy: threshold"))
    results = run(scenario, home / "out")
    (warning,) = (w for w in results.warnings if "hides" in w)
    assert warning.startswith(f"policy fixed comes from policies/ beside the scenario ({file}) and hides shelf: ")
    manifest = json.loads((home / "out" / "manifest.json").read_text())
    assert warning in manifest["warnings"]
    policy = manifest["arms"][-1]["policy"]
    assert policy["file"] == str(file)
    assert policy["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert policy["place"] == "policies/ beside the scenario"
    assert not policy["shipped"]
    assert policy["hides"]
    assert manifest["arms"][0]["policy"]["place"] == "shelf"


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["dspark-sim", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_said_once_whatever_the_place_and_refused_before_it_runs(
    home: Path, tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "beside"
    install("f_package", {"from_package": "f_package.mod"}, {"mod.py": MINIMAL.format(name="Mine")})
    write(home / "policies", "in_here", "Mine")
    write(base / "policies", "beside_it", "Mine")
    write(base, "a_file", "Mine")
    local = ("in_here", "beside_it", "./a_file.py", "f_package.mod:Mine")
    for policy in ("from_package", *local):
        two = ARM.format(policy=policy) + ARM.format(policy=policy).replace("name: mine", "name: again")
        scenario = make(base, two)
        assert command(monkeypatch, "scenario", "check", scenario) == 0
        said = capsys.readouterr()
        assert said.err.count("its code is executed") == 1, said.err
        assert f"note: policy {policy} (arms mine, again) is not on the shelf; its code is executed" in said.err
        words = ("run", scenario, "--no-plots", "-q", "--out", "out")
        code = command(monkeypatch, *words, "--no-local-policies")
        said = capsys.readouterr()
        if policy == "from_package":
            assert code == 0, said.err
            continue
        assert code == 2
        assert f"arms[3].policy: policy {policy!r} is not on the shelf, and --no-local-policies refuses it" in said.err
        assert "allowed: async_global, " in said.err
        assert "from_package" in said.err
        commands: list[tuple[object, ...]] = [("rank", scenario, "--policies", policy),
                                              ("sweep", scenario, "--over", "seed=1,2")]
        if policy != "beside_it":  # these two have no scenario to be beside of
            commands += [("policy", "show", policy), ("policy", "check", policy)]
        for words in commands:
            assert command(monkeypatch, *words, "--no-local-policies") == 2, words
            assert "--no-local-policies refuses it" in capsys.readouterr().err, words


def test_refused_code_was_not_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "policies", "early_stop", "Mine", "raise SystemExit(77)\n")
    make(home, ARM.format(policy="early_stop"))
    for words in (("run", "small.yaml"), ("policy", "show", "early_stop"), ("policy", "check", "early_stop")):
        assert command(monkeypatch, *words, "--no-local-policies") == 2
    assert command(monkeypatch, "policy", "list", "--no-local-policies") == 0
    assert not any(str(home) in str(getattr(module, "__file__", "")) for module in list(sys.modules.values()))


def test_a_router_from_a_file_is_code_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "mine.py").write_text("def route(request, engines, state):\n    return engines[0]\n")
    scenario = make(home)
    scenario.write_text(scenario.read_text() + "cluster: {router: './mine.py:route', engines: [{name: a, count: 2}]}\n")
    assert command(monkeypatch, "scenario", "check", scenario) == 0
    assert "note: router ./mine.py:route is not on the shelf; its code is executed" in capsys.readouterr().err
    assert command(monkeypatch, "scenario", "check", scenario, "--no-local-policies") == 2
    assert "cluster.router: router './mine.py:route' is a file" in capsys.readouterr().err


def test_policy_list_shows_places_and_what_cannot_be_loaded(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert command(monkeypatch, "policy", "list") == 0
    assert "place" not in capsys.readouterr().out.splitlines()[0]
    write(home / "policies", "mine", "Mine")
    write(home / "policies", "threshold", "Other")
    write(home / "policies", "broken", "Mine", "1 / 0\n")
    assert command(monkeypatch, "policy", "list", "--format", "json") == 0
    said = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(said.out)}
    assert rows["mine"]["place"] == "./policies"
    assert rows["mine"]["hides"] == []
    assert rows["threshold"]["hides"][0].startswith("shelf: ")
    assert rows["fixed"]["place"] == "shelf"
    assert "broken" not in rows
    assert "warning: left out: " in said.err
    assert "importing it raised ZeroDivisionError" in said.err
    assert command(monkeypatch, "policy", "list") == 0
    assert "hides" in capsys.readouterr().out.splitlines()[0]
    assert command(monkeypatch, "policy", "list", "--no-local-policies", "--format", "json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert "mine" not in rows
    assert rows["threshold"]["place"] == "shelf"


# -- sweeps ----------------------------------------------------------------------------------------------------------
def test_the_key_of_a_cell_holds_the_source_wherever_it_lies(
    home: Path, tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "beside"
    files = {"in_here": write(home / "policies", "in_here", "Mine"),
             "beside_it": write(base / "policies", "beside_it", "Mine"), "./a_file.py": write(base, "a_file", "Mine")}

    def key(policy: str) -> dict[str, str]:
        scenario = load_scenario(make(base, ARM.format(policy=policy)))
        return KeyMaker().parts(scenario, load_arms(scenario)[-1])

    for policy, file in files.items():
        before = key(policy)
        assert key(policy) == before
        file.write_text(file.read_text() + "# edited\n")
        assert {part for part, digest in key(policy).items() if digest != before[part]} == {"arm"}
    module = {"mod.py": MINIMAL.format(name="Mine"), "helper.py": "x = 1\n"}
    package = install("g_package", {"packed": "g_package.mod"}, module)
    before = key("packed")
    (package / "helper.py").write_text("x = 2\n")
    monkeypatch.setattr(userfile, "_imported", {})  # as another process
    assert key("packed")["arm"] != before["arm"]


def test_unknown_names_fail_with_every_place_in_the_list(home: Path, tmp_path: Path) -> None:
    write(home / "policies", "in_here", "Mine")
    scenario = load_scenario(make(tmp_path / "beside", ARM.format(policy="in_her")))
    with pytest.raises(InputError, match=r"arms\[3\]\.policy: unknown policy 'in_her'; allowed: .*in_here.*"
                       r"did you mean 'in_here'"):
        load_arms(scenario)
