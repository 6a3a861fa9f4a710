"""The house stands: imports go down the floors only, heavy libraries stay in their rooms, files stay short.

Checked on the syntax trees, so nothing is imported and every branch counts. A new module must be given its floor in
``FLOORS`` below; until then the suite fails.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dspark_sim"
FLOORS = (
    # ground: words that everyone uses
    "errors curve staircase policy trace request shelves yamlfile yamlio yamlmodel aside guard blame atomic jsonvalues "
    "stopping lean spill growing",
    # first floor: reading what the user wrote
    "registry policy_places parameters profile profile_curves profile_schema profile_write calibration "
    "trace_calibrate trace_import parametric traceset workload "
    "lengths userfile arrival_schema rates replay replay_csv replay_jsonl replay_log replay_read sessions "
    "traffic_checks scenario scenario_schema scenario_cluster scenario_plan what_if arms arm_setup arm_checks "
    "router router_registry",
    # second floor: the machine
    "kv prefix line prompts batch rows roster decide tally bins record engine traffic cluster faults autoscale "
    "assemble simulate",
    # third floor: what it means
    "metrics userrows userview stats results notes render rundir manifest pictures runner validate report plots "
    "rank rank_define rank_worker rank_pool rank_results rank_render traffic_notes "
    "validate_case validate_curves validate_traces validate_bench validate_docs validate_page validate_live "
    "validate_live_page "
    "frontier perfetto lossless testing lab importers "
    "sweeper sweep_grid sweep_key sweep_cells sweep_lock sweep_worker sweep_backends sweep_pool sweep_tables "
    "sweep_folder sweep_define sweep_render "
    "planner plan_load plan_judge plan_decide plan_search plan_tasks plan_arm plan_limits plan_demand plan_cost "
    "plan_variants plan_results plan_render plan_words plan_folder",
    # the roof: public names and the command line
    "__init__ __main__ cli cli_options cli_sweep cli_policy cli_plan cli_rank cli_trace cli_profile "
    "cli_profile_import cli_live commands",
)
FLOOR = {module: level for level, modules in enumerate(FLOORS) for module in modules.split()}
ONLY_IN = {  # library -> modules that may import it at all
    "simpy": {"engine", "traffic", "cluster", "faults", "autoscale", "assemble", "simulate"},
    "torch": {"lab"},
    "transformers": {"lab"},
    "safetensors": {"lab"},
    "gguf": {"lab"},
    "aiconfigurator_core": {"importers"},
    "matplotlib": {"plots"},
    "seaborn": {"plots"},
}
SLOW_TO_IMPORT = ("pandas", "matplotlib", "seaborn", "scipy", "torch", "transformers", "pyarrow.dataset", "joblib")
GROUND_LIBRARIES = {"numpy", "yaml", "pydantic", "pyarrow"}  # yaml and pydantic: strict YAML; pyarrow: lazily, in trace
STRICT_YAML = ("yamlfile", "yamlio", "yamlmodel")
COME_WITH = {  # by what is declared
    "dspark_sim", "yaml", "pydantic_core", "matplotlib", "torch", "transformers", "safetensors", "gguf",
    "aiconfigurator_core",
}
FORBIDDEN_CALLS = {"eval", "exec", "__import__"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
MAX_LINES = 300

Import = tuple[str, bool, int]  # dotted name, whether it runs when the module is imported, line


def sources(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """``engine`` for dspark_sim/engine.py; every file of a subpackage counts as the subpackage."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file except those for type checkers only."""

    def walk(node: ast.AST, eager: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from ((alias.name, eager, child.lineno) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:  # relative: within dspark_sim
                    base = f"dspark_sim.{base}".rstrip(".")
                if base == "dspark_sim":
                    yield from ((f"dspark_sim.{alias.name}", eager, child.lineno) for alias in child.names)
                else:
                    yield base, eager, child.lineno
            lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, eager and not lazy)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), True)


def inner(name: str) -> str | None:
    """The module of ours that an import names, None for a library. A bare public name counts as the package."""
    parts = name.split(".")
    if parts[0] != "dspark_sim":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FLOOR else "__init__"


def is_inside(name: str, library: str) -> bool:
    return name == library or name.startswith(library + ".")


@pytest.mark.parametrize("path", sources("dspark_sim"), ids=named)
def test_imports_go_down_only(path: Path) -> None:
    module = module_of(path)
    assert module in FLOOR, f"{named(path)}: give this module a floor in tests/test_house.py"
    for name, _, line in imports(path):
        target = inner(name)
        if target is not None and target != module:
            assert FLOOR[target] <= FLOOR[module], f"{named(path)}:{line} climbs from {module} up to {target}"


def test_modules_of_one_floor_do_not_import_in_circles() -> None:
    graph: dict[str, set[str]] = {}
    for path in sources("dspark_sim"):
        edges = graph.setdefault(module_of(path), set())
        edges.update(t for name, _, _ in imports(path) if (t := inner(name)) is not None and t != module_of(path))
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, "a circle of imports: " + " -> ".join([*path, module])
        if module not in done:
            for target in sorted(graph.get(module, ())):
                visit(target, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())


@pytest.mark.parametrize("path", sources("dspark_sim"), ids=named)
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    module = module_of(path)
    declared = {d.split(">")[0].split("=")[0].split("<")[0].strip() for d in dependencies()}
    known = declared | set(sys.stdlib_module_names) | COME_WITH
    for name, eager, line in imports(path):
        where = f"{named(path)}:{line} imports {name}"
        top = name.split(".")[0]
        assert top in known, f"{where}, which pyproject.toml does not declare"
        for library, rooms in ONLY_IN.items():
            assert not is_inside(name, library) or module in rooms, f"{where}, allowed in {sorted(rooms)}"
        if eager and module not in ("plots", "lab"):
            slow = [lib for lib in SLOW_TO_IMPORT if is_inside(name, lib) and name != "scipy.special"]
            assert not slow, f"{where} at import time; import it inside the function that needs it"
        if FLOOR.get(module) == 0 and top not in sys.stdlib_module_names and top != "dspark_sim":
            assert top in GROUND_LIBRARIES, f"{where} on the ground floor"
            assert top == "numpy" or module in STRICT_YAML or not eager, f"{where} on the ground floor, eagerly"
        if inner(name) == "lab" and module != "lab":
            command_line = module == "commands" or module.split("_")[0] == "cli"
            assert command_line, f"{where}; only the command line may"
            assert not eager, f"{where}; only lazily"


def dependencies() -> list[str]:
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"])


@pytest.mark.parametrize("path", [p for p in sources("policies") if p.name != "__init__.py"], ids=named)
def test_a_policy_imports_the_contract_and_numpy_only(path: Path) -> None:
    for name, _, line in imports(path):
        allowed = name in ("dspark_sim.policy", "dspark_sim.curve") or name.split(".")[0] in (
            {"numpy"} | set(sys.stdlib_module_names)
        )
        assert allowed, f"{named(path)}:{line} imports {name}"


@pytest.mark.parametrize("path", sources("dspark_sim", "policies", "tools", "tests"), ids=named)
def test_files_are_short_and_plain(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= MAX_LINES, f"{named(path)} has {lines} lines; split it at its second idea"
    for node in ast.walk(ast.parse(text)):
        where = f"{named(path)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{where}: bare except"
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                assert called.id not in FORBIDDEN_CALLS, f"{where}: {called.id}()"
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "yaml":
                assert called.attr not in {"load", "load_all", "full_load", "unsafe_load"}, f"{where}: {called.attr}"
            if isinstance(called, ast.Attribute) and called.attr in {"read_pickle", "to_pickle"}:
                pytest.fail(f"{where}: {called.attr}()")
            allow_pickle = [k.value for k in node.keywords if k.arg == "allow_pickle"]
            assert all(isinstance(v, ast.Constant) and v.value is False for v in allow_pickle), f"{where}: allow_pickle"
    for name, _, line in imports(path):
        assert name.split(".")[0] not in FORBIDDEN_MODULES, f"{named(path)}:{line} imports {name}"


def test_every_module_says_what_it_is() -> None:
    silent = [named(p) for p in sources("dspark_sim", "policies") if p.stat().st_size
              and ast.get_docstring(ast.parse(p.read_text(encoding="utf-8"))) is None]
    assert not silent, f"no docstring: {silent}"


def test_the_checks_can_see(tmp_path: Path) -> None:
    """The walker finds what hides in functions, in relative imports and under conditions."""
    file = tmp_path / "x.py"
    file.write_text("import simpy\nfrom . import engine\nif TYPE_CHECKING:\n    import torch\n"
                    "def f():\n    if True:\n        import pandas.core\n", encoding="utf-8")
    assert list(imports(file)) == [("simpy", True, 1), ("dspark_sim.engine", True, 2), ("pandas.core", False, 7)]
    assert inner("dspark_sim.engine") == "engine"
    assert inner("dspark_sim.runner") == "runner"
    assert inner("numpy") is None
