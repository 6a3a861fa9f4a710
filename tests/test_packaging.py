"""What is built is what is installed: the wheel holds the package and its shelves only, and works far from a checkout.

Built from a copy of the sources (nothing is left behind in the checkout), sdist first and the wheel from that, as
``python -m build`` does. The wheel goes into a bare environment that finds the libraries of this one and not the
checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHELVES = ("policies", "hardware_profiles", "acceptance_traces", "scenarios")
SOURCES = ("dspark_sim", *SHELVES)
MAX_WHEEL = 8_000_000  # bytes; 5 MB of them are the recordings of acceptance_traces/
SMALL = ("--set", "replications=2", "--set", "measure.warmup_s=1", "--set", "measure.duration_s=2")


def call(*command: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")} | more
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    work = tmp_path_factory.mktemp("sdist")
    copy = work / "copy"
    junk = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=junk)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy / name)
    call(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", work, copy, cwd=work)
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(work / "unpacked", filter="data")
    (folder,) = (work / "unpacked").iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution."""
    out = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--quiet",
         "--wheel-dir", out, sdist, cwd=out)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of an environment with the wheel installed; libraries come from this one, the checkout does not."""
    home = tmp_path_factory.mktemp("bare") / "env"
    venv.create(home, with_pip=False)
    inside = {"base": str(home), "platbase": str(home)}
    site = Path(sysconfig.get_path("purelib", scheme="venv", vars=inside))
    libraries = dict.fromkeys(sysconfig.get_path(p) for p in ("purelib", "platlib"))
    (site / "libraries.pth").write_text("".join(f"{p}\n" for p in libraries))  # their own .pth files are not followed
    scripts = Path(sysconfig.get_path("scripts", scheme="venv", vars=inside))
    call(sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--no-deps", "--no-index", "--quiet",
         "--force-reinstall", wheel, cwd=home)
    return scripts


def shelf_files() -> set[str]:
    """Everything on the shelves that is not Python's own rubbish, as it must lie in the wheel."""
    return {
        f"dspark_sim/{path.relative_to(ROOT).as_posix()}"
        for name in SHELVES for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    top = {name.split("/")[0] for name in names}
    assert {t for t in top if not t.endswith(".dist-info")} == {"dspark_sim"}
    assert len(top) == 2
    sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "dspark_sim").rglob("*.py")}
    assert sources <= names, "a module or subpackage is missing in pyproject.toml's packages"
    assert shelf_files() <= names, "a file of a shelf is missing in pyproject.toml's package-data"
    assert "dspark_sim/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)


def test_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MAX_WHEEL


def test_core_needs_no_torch(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("dist-info/METADATA"))
        needs = [line for line in archive.read(name).decode().splitlines() if line.startswith("Requires-Dist")]
    torch = [line for line in needs if "torch" in line]
    assert torch == ['Requires-Dist: torch==2.13.0; extra == "lab"']


def test_sdist_builds_the_same_package(sdist: Path) -> None:
    here = {p.relative_to(ROOT).as_posix() for n in SOURCES for p in (ROOT / n).rglob("*")
            if p.is_file() and "__pycache__" not in p.parts}
    there = {p.relative_to(sdist).as_posix() for p in sdist.rglob("*") if p.is_file()}
    assert here <= there
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE"} <= there


def test_quickstart_runs_from_the_wheel(bare: Path, tmp_path: Path) -> None:
    where = call(bare / "python", "-c", "import dspark_sim; print(dspark_sim.__file__)", cwd=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(bare.parent), f"the checkout is imported: {where}"
    done = call(bare / "dspark-sim", "run", "quickstart", "--out", "result", *SMALL, cwd=tmp_path,
                DSPARK_SIM_CACHE=str(tmp_path / "cache"))
    assert "async-global" in done.stdout
    folder = tmp_path / "result"
    assert len(json.loads((folder / "summary.json").read_text())["arms"]) == 6
    assert (folder / "steps.parquet").is_file()
    assert list((folder / "plots").glob("*.png")), done.stderr
    assert (folder / "report.html").is_file(), done.stderr  # its templates are in the wheel


@pytest.mark.parametrize("what", ["scenario", "policy", "profile", "trace"])
def test_shelves_are_found_in_the_wheel(bare: Path, tmp_path: Path, what: str) -> None:
    lists = [
        json.loads(call(*command, what, "list", "--format", "json", cwd=tmp_path).stdout)
        for command in ((bare / "dspark-sim",), (sys.executable, "-m", "dspark_sim"))
    ]
    installed, here = ([{k: v for k, v in row.items() if k not in ("file", "path")} for row in rows] for rows in lists)
    assert installed == here != []
