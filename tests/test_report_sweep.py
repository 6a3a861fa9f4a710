"""A sweep's report: the readings of its frontier, every grid point, baselines, and grids without a load."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dspark_sim.errors import InputError
from dspark_sim.frontier import curves, throughput_gain
from dspark_sim.plots.sweepdata import SweepData
from dspark_sim.report import write_report
from dspark_sim.report.readings import artefacts, read_facet
from dspark_sim.sweeper import sweep
from tests.report_inputs import small_sweep
from tests.small_world import make
from tests.test_report import Reader


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_sweep(tmp_path_factory.mktemp("world"))


@pytest.fixture(name="page", scope="module")
def _page(folder: Path) -> str:
    (path,) = write_report(folder)
    return path.read_text(encoding="utf-8")


def test_what_stands_in_it(folder: Path, page: str) -> None:
    read = Reader(page)
    words = read.words
    for text in ("Over engine.host_lag = 0, 2; workload.arrival.concurrency = 1, 4, 12. Baseline: no-spec.",
                 "Throughput at equal speed for users (engine.host_lag = 0)",
                 "Speed for users at equal throughput (engine.host_lag = 2)", "Every grid point",
                 "broken failed at engine.host_lag = 0, workload.arrival.concurrency = 1, replication 1",
                 "synthetic input", "made up: it shows how things work", "dspark_sim.sweep("):
        assert text in words, text
    manifest = json.loads((folder / "manifest.json").read_text())
    for facts in (*manifest["profiles"].values(), *manifest["traces"].values()):
        assert facts["sha256"] in words
    pictures = read.named("img")
    assert len(pictures) == 6  # three per lag
    assert "async from " in str(pictures[0]["alt"])
    assert "(engine.host_lag = 2)" in str(pictures[3]["alt"])
    assert len(read.named("figcaption")) == 6
    for tag, attributes in read.elements:
        for name in ("src", "href"):
            assert str(attributes.get(name) or "#").startswith(("data:", "#")), (tag, attributes)


def test_curves_are_the_tables(folder: Path) -> None:
    data = SweepData(folder)
    assert (data.axis, data.is_load) == ("workload.arrival.concurrency", True)
    assert data.slas == [("SLA: 150 tok/s (chat)", 150.0)]
    assert [f.label for f in data.facets] == ["engine.host_lag = 0", "engine.host_lag = 2"]
    rows = [r for r in pq.read_table(folder / "aggregate.parquet").to_pylist()
            if r["engine.host_lag"] == 2 and r["arm"] == "async"]
    curve = next(c for c in data.facets[1].curves if c.arm == "async")
    assert curve.load.tolist() == [1, 4, 12]
    assert curve.throughput.tolist() == [r["throughput_tok_s_gpu"] for r in rows]
    assert curve.tps.tolist() == [r["tps_user_concurrent"] for r in rows]
    assert curve.throughput_low.tolist() == [r["throughput_tok_s_gpu_ci95_low"] for r in rows]
    assert curve.throughput_by is not None
    assert curve.throughput_by.shape == (3, 2)
    assert curve.throughput_by.mean(axis=1) == pytest.approx(curve.throughput)


def test_a_baseline_of_choice(folder: Path, tmp_path: Path) -> None:
    (path,) = write_report(folder, tmp_path / "r.html", baseline="fixed-3")
    assert "Baseline: fixed-3." in Reader(path.read_text(encoding="utf-8")).words
    with pytest.raises(InputError, match=r"no arm 'fixed-4'.*did you mean 'fixed-3'"):
        write_report(folder, tmp_path / "r.html", baseline="fixed-4")


def test_a_collapsed_baseline_is_warned_of_first(folder: Path) -> None:
    """At 240 tok/s per user no-spec is alone on its GPU: next to nothing of its peak."""
    data = SweepData(folder)
    facet = data.facets[0]
    base, arm = (next(c for c in facet.curves if c.arm == a) for a in ("no-spec", "async"))
    level = 0.995 * base.tps[0]
    reading = throughput_gain(arm, base, level)
    assert reading.artefact
    assert "artefacts" in artefacts(facet, "no-spec", [reading])
    assert artefacts(facet, "no-spec", []) == ""
    at_tps, at_throughput = read_facet(facet, data, "no-spec")
    assert {r.arm for r in at_tps} == {"fixed-3", "async", "broken"}
    assert any(r.level == 150 for r in at_tps)  # the SLA
    assert all(r.words for r in (*at_tps, *at_throughput) if r.gain_pct.mean is None)


def test_csv_has_every_reading(folder: Path, tmp_path: Path) -> None:
    files = {f.name for f in write_report(folder, tmp_path / "r.html", csv=True, png=True)}
    assert {"r-points.csv", "r-all.csv", "r-warnings.csv", "r-frontier-1.png", "r-load-2.png"} <= files
    lists = sorted(n for n in files if n.startswith("r-at-equal-tps-") and n.endswith("-list.csv"))
    assert len(lists) == 2  # one per lag
    for name in lists:
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert {r["arm"] for r in rows} == {"fixed-3", "async", "broken"}
        for r in rows:
            assert r["gain_pct"] or "no gain can be read: " in r["doubt"]
            if r["gain_pct"]:
                assert float(r["gain_pct"]) == pytest.approx(100 * (float(r["value"]) / float(r["base"]) - 1))


def test_a_grid_without_a_load_has_tables_and_words(tmp_path: Path) -> None:
    done = sweep(make(tmp_path), {"engine.prefill": ("none", "chunked")}, out=tmp_path / "sweep", jobs=1,
                 overrides={"measure.duration_s": 1, "replications": 1})
    (path,) = write_report(done.folder)
    read = Reader(path.read_text(encoding="utf-8"))
    assert read.named("img") == []
    assert "No curves: no key of the grid has numbers as its values." in read.words
    assert "No comparison at equal speed or equal throughput can be read from this sweep." in read.words


def test_curves_of_rows_in_any_order() -> None:
    rows = [{"arm": a, "n": n, "tps_user_concurrent": 10.0 * n, "throughput_tok_s_gpu": None if n == 2 else 1.0}
            for n in (2, 1) for a in ("b", "a")]
    got = curves(rows, [], "n")
    assert [c.arm for c in got] == ["b", "a"]
    assert got[0].load.tolist() == [1, 2]
    assert got[0].tps.tolist() == [10, 20]
    assert got[0].throughput_by is None
    assert got[0].throughput[0] == 1.0
    assert got[0].throughput[1] != got[0].throughput[1]  # null is NaN, never 0


def test_a_winner_is_named_only_where_its_interval_says_so() -> None:
    from types import SimpleNamespace
    from typing import Any

    from dspark_sim.report.readings import answer

    def reading(arm: str, value: float, gain: float, half: float) -> Any:
        figure = SimpleNamespace(mean=gain, ci95_low=gain - half, ci95_high=gain + half, half_width=half)
        return SimpleNamespace(arm=arm, level=50.0, value=value, gain_pct=figure, artefact=False)

    data: Any = SimpleNamespace(rows=[], slas=[])
    facet: Any = SimpleNamespace(label="")
    wild, sure = reading("wild", 400.0, 162.5, 192.5), reading("sure", 360.0, 135.4, 72.1)
    (said,) = answer([(facet, [wild, sure], [])], "base", data)
    assert "sure serves 360" in said
    (said,) = answer([(facet, [wild], [])], "base", data)
    assert "do not tell from nothing" in said
