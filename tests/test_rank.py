"""rank: what is compared, the leaderboard's arithmetic, and policies that raise, answer nonsense, print or hang."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.errors import InputError, PolicyLoadError
from dspark_sim.rank import rank
from dspark_sim.rank_define import BOUND, CONDITIONS, Cell, Contestant, contestants, loaded, text_of
from dspark_sim.rank_render import as_csv, as_json, as_markdown
from dspark_sim.rank_results import Ranking, Score
from dspark_sim.runner import run
from dspark_sim.scenario import load_scenario
from dspark_sim.stats import Figure
from tests.small_world import make

CLASS = '''
from typing import ClassVar
import numpy as np
class {name}:
    lossless: ClassVar[bool] = True
    timing: ClassVar[str] = "overlapped"
    def verify_lengths(self, view):
        {body}
'''
BAD = {
    "raises": "raise KeyError('lost')",
    "nonsense": "return view.drafted + 1",
    "prints": "print('x' * 100); return view.drafted.copy()",
    "hangs": "\n        while True: pass",
    "dies": "import os; os._exit(3)",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rank")
    for name, body in BAD.items():
        (folder / f"{name}.py").write_text(CLASS.format(name=name.title(), body=body))
    return make(folder)


# -- what is compared ------------------------------------------------------------------------------------------------
def test_contestants_are_read() -> None:
    text = "async_global, fixed(length=1)@mtp,batch_schedule(ranges=[[1, 4, 3], [5, 9, 1]]),no_spec, pkg.mod:Mine@d-5"
    got = contestants(text)
    assert got[0] == Contestant("async_global", "async_global")
    assert got[1] == Contestant("fixed(length=1)@mtp", "fixed", {"length": 1}, "mtp")
    assert got[2].parameters == {"ranges": [[1, 4, 3], [5, 9, 1]]}
    assert got[3].drafter == "none"
    assert (got[4].policy, got[4].drafter) == ("pkg.mod:Mine", "d-5")
    assert contestants("./a/mine.py:Mine")[0].policy == f"{Path('a/mine.py').absolute()}:Mine"


@pytest.mark.parametrize("text", ["", " , ", "fixed(length)", "fixed(length=1", "a b", "fixed,fixed", "fixed(=1)"])
def test_contestants_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match="--policies"):
        contestants(text)


def test_a_cell_is_the_scenario_with_one_arm(world: Path) -> None:
    data = loaded(load_scenario(world), 4)
    assert data["workload"]["arrival"]["concurrency"] == 4
    text = text_of(data, Contestant("a", "fixed", {"length": 2}), "dspark", "overconfident", None)
    assert text is not None
    out = json.loads(text)
    (arm,) = out["arms"]
    assert (arm["policy"], arm["drafter"]) == ({"name": "fixed", "length": 2}, "dspark")
    assert arm["belief"] == {"confidence_shift": 1.0}
    assert text_of(data, Contestant("a", "no_spec", {}, "none"), "dspark", "overconfident", None) is None
    lower = json.loads(text_of(data, BOUND, "dspark", "acceptance -20 %", None) or "")
    assert lower["what_if"]["acceptance"] == 0.8
    rates = json.loads(text_of(data, BOUND, "dspark", "spikes", 10.0) or "")["workload"]["arrival"]["rates"]
    assert [rate for _, rate in rates] == [4.0, 12.0] * 6
    assert rates[-1][0] < 4.0 <= rates[-1][0] + rates[1][0]  # twelve equal parts of warm-up and window
    with pytest.raises(InputError, match="whole numbers"):
        loaded(load_scenario(world), 1.5)


# -- the leaderboard's arithmetic ------------------------------------------------------------------------------------
def made() -> Ranking:
    """Two cells and a wrong belief. B gains 10 ± small in one cell, ties in the other, and breaks in the third."""
    one, two = Cell("s", 8), Cell("s", 32)
    off = Cell("s", 8, "overconfident")
    scores = {
        (one, "A"): Score((100.0, 102.0, 98.0), 2.0, 10.0), (one, "B"): Score((110.0, 112.3, 107.9), 2.0, 20.0),
        (one, "bound"): Score((125.0, 127.5, 122.5)),
        (two, "A"): Score((200.0, 201.0, 199.0), 2.0, 11.0), (two, "B"): Score((202.0, 199.0, 199.5), 2.0, 30.0),
        (two, "bound"): Score((190.0, 191.0, 189.0)),
        (off, "A"): Score((90.0, 91.8, 88.2)), (off, "B"): Score(error="broke"),
        (off, "bound"): Score((125.0, 127.5, 122.5)),
    }
    cells, both = (one, two, off), (Contestant("A", "a"), Contestant("B", "b"))
    return Ranking(both, "bound", cells, scores, {"A": True, "B": False},
                   dict.fromkeys(cells, "throughput_tok_s_gpu"), {"s": "d"}, 3)


def test_verdicts_regret_and_conditions() -> None:
    ranking = made()
    one, two, _ = ranking.cells
    assert [ranking.verdict(c, "B") for c in (one, two)] == ["win", "tie"]
    assert ranking.verdict(one, "A") is None
    assert ranking.change(one, "B").mean == pytest.approx(10.0, abs=0.2)
    assert ranking.regret(one, "A").mean == pytest.approx(20.0)
    regret = ranking.regret(two, "A")
    assert regret.mean == pytest.approx(-5.26, abs=0.02)  # better than a bound of one step
    assert regret.ci95_low is not None
    assert regret.ci95_high is not None
    assert regret.ci95_low <= -5.2 <= regret.ci95_high + 0.1
    best, base = ranking.entries()
    assert (best.contestant, best.wins, best.ties, best.losses) == ("B", 1, 1, 0)
    assert best.change.mean == pytest.approx(100 * ((1.1002 * 1.0008) ** 0.5 - 1), abs=0.05)
    assert best.microseconds == 30.0  # at the highest load
    assert best.errors == ("broke",)
    assert base.conditions["overconfident"].mean == pytest.approx(-10.0)  # against itself with right beliefs
    assert best.conditions["overconfident"] == Figure(None)


def test_forms() -> None:
    ranking = made()
    data = json.loads(as_json(ranking))
    assert [e["policy"] for e in data["leaderboard"]] == ["B", "A"]
    lines = list(csv.DictReader(io.StringIO(as_csv(ranking))))
    assert len(lines) == len(data["cells"]) == 9
    assert (lines[1]["policy"], lines[1]["verdict"]) == ("B", "win")
    text = as_markdown(ranking)
    tables = [block for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) == 3
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "| s @ 8 | 100.0 | **+10.0" in text
    assert "NO" in tables[0]
    assert "- B: broke" in text


# -- running ---------------------------------------------------------------------------------------------------------
def test_a_ranking_says_what_a_run_says(world: Path) -> None:
    ranking = rank([world], "no_spec,fixed(length=3),async_global")
    results = run(world, keep=False)
    (cell,) = ranking.cells
    assert ranking.drafters == {"small": "dspark"}
    for label, arm in (("fixed(length=3)", "fixed-3"), ("async_global", "async")):
        want = results[arm].figures["throughput_vs_first_pct"]
        assert ranking.change(cell, label).mean == pytest.approx(want.mean)
        assert ranking.change(cell, label).half_width == pytest.approx(want.half_width)
    assert all(e.microseconds is not None and 0 < e.microseconds < 5000 for e in ranking.entries())
    assert ranking.scores[cell, BOUND.label].values


def test_bad_policies_lose_their_arm_only(world: Path) -> None:
    files = {name: f"{world.parent / name}.py" for name in BAD}
    ranking = rank([world], ",".join(["async_global", *files.values(), "fixed(length=2)"]), limit_s=8, jobs=2)
    (cell,) = ranking.cells
    errors = {name: ranking.scores[cell, path].error for name, path in files.items()}
    assert "KeyError" in str(errors["raises"])
    assert "allowed: 0 to 3" in str(errors["nonsense"])
    assert errors["prints"] is None
    assert any(files["prints"] in note and "printed" in note for note in ranking.notes)
    assert errors["hangs"] == "took longer than 8 s for one replication and was ended"
    assert "code 3" in str(errors["dies"])
    assert len(ranking.of(cell, "async_global")) == len(ranking.of(cell, "fixed(length=2)")) == 2
    assert [e.contestant for e in ranking.entries()][-1] in files.values()


def test_robustness(world: Path) -> None:
    ranking = rank([world], "async_global,no_spec", loads=[8], conditions=list(CONDITIONS))
    assert ranking.conditions == list(CONDITIONS)
    base = next(e for e in ranking.entries() if e.contestant == "async_global")
    assert all(base.conditions[name].mean is not None for name in CONDITIONS)
    spikes = Cell("small", 8, "spikes")
    assert ranking.metrics[spikes] == "tps_user_mean"
    lower = ranking.of(Cell("small", 8, "acceptance -20 %"), "async_global")
    assert sum(v or 0.0 for v in lower) < 0.97 * sum(v or 0.0 for v in ranking.of(Cell("small", 8), "async_global"))
    assert not base.errors


def test_mistakes_are_told_before_anything_runs(world: Path) -> None:
    with pytest.raises(PolicyLoadError, match="did you mean 'async_global'"):
        rank([world], "async_globl")
    with pytest.raises(PolicyLoadError, match="length"):
        rank([world], "fixed(lenght=2)")
    with pytest.raises(InputError, match="no condition"):
        rank([world], "fixed", conditions=["rain"])
    with pytest.raises(InputError, match="two scenarios"):
        rank([world, world], "fixed")


def test_a_policy_that_cannot_run_here_says_why(world: Path) -> None:
    ranking = rank([world], "no_spec,fixed(length=9),threshold@none")
    errors = {e.contestant: e.errors for e in ranking.entries()}
    assert "length: got 9" in errors["fixed(length=9)"][0]
    assert errors["threshold@none"]
    assert not errors["no_spec"]


# -- the command -----------------------------------------------------------------------------------------------------
def call(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["rank", *map(str, arguments)])


def test_command(world: Path, tmp_path: Path) -> None:
    markdown, picture = tmp_path / "rank.md", tmp_path / "rank.png"
    result = call(world, "--policies", "no_spec,fixed(length=2)", "--loads", "4,8", "--replications", 2, "--format",
                  "json", "--markdown", markdown, "--picture", picture, "-q", "-j", 1)
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["leaderboard"]) == 2
    assert "| small @ 4 |" in markdown.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_exit_codes(world: Path) -> None:
    assert call(world, "--policies", "nobody").exit_code == 2
    assert call(world, "--loads", "8,x").exit_code == 2
    assert call(world, "--policies", "fixed", "--markdown", "/no/such/folder/x.md").exit_code == 2
    broken = f"{world.parent / 'raises'}.py"
    assert call(world, "--policies", broken, "--no-local-policies").exit_code == 2
    assert call(world, "--policies", f"no_spec,{broken}", "-q").exit_code == 1
