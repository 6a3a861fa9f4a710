"""The shipped recordings of Gemma 3 270M: whole, aligned, honest about themselves, and the figures that docs quote."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dspark_sim.trace import AcceptanceTrace, load_trace
from dspark_sim.traceset import open_traces

ROOT = Path(__file__).resolve().parent.parent
SETS = {1.0: "gemma-3-270m", 0.6: "gemma-3-270m-t0.6"}
DRAFTERS = ("dspark", "dspark-2layer", "dflash", "eagle3", "mtp")


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lab_report", ROOT / "tools" / "lab_report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trace(temperature: float, drafter: str) -> AcceptanceTrace:
    return load_trace(ROOT / "acceptance_traces" / SETS[temperature] / f"{drafter}.parquet")


@pytest.mark.parametrize("temperature", SETS)
def test_the_recordings_are_aligned_and_say_what_they_are(temperature: float) -> None:
    traces = open_traces(SETS[temperature], DRAFTERS)
    for name, one in traces.items():
        assert one.kind == "measured"
        assert one.temperature == temperature
        assert one.block_size == (1 if name == "mtp" else 7)
        assert set(one.domains) == {"math", "code", "chat"}
        assert (one.confidence is not None) == name.startswith("dspark")
        for key in ("target_weights", "training", "device", "hours", "text_fit", "draft_vocabulary_mass"):
            assert key in one.provenance, f"a measured trace says where it comes from: {key}"
    sizes = {one.positions for one in traces.values()}
    assert len(sizes) == 1


@pytest.mark.parametrize("temperature", SETS)
def test_dspark_is_calibrated_on_held_out_documents(temperature: float) -> None:
    for name in ("dspark", "dspark-2layer"):
        assert trace(temperature, name).sts_temperature is not None


def test_numbers_only_are_shipped() -> None:
    import pyarrow.parquet as pq

    for folder in SETS.values():
        for path in (ROOT / "acceptance_traces" / folder).glob("*.parquet"):
            names = pq.read_schema(path).names
            assert all(n.split("_")[0] in ("document", "accepted", "confidence", "draft") for n in names), names


def test_the_page_is_what_the_files_say(report: ModuleType) -> None:
    """Every table of docs/lab-results.md is computed again."""
    page = (ROOT / "docs" / "lab-results.md").read_text()
    for temperature in SETS:
        traces = {name: trace(temperature, name) for name in DRAFTERS}
        for part in (report.acceptance_section(traces), report.confidence_section(traces)):
            assert part in page
    assert report.histogram_section({name: trace(1.0, name) for name in DRAFTERS}) in page


def test_walked_figures_on_paper(report: ModuleType) -> None:
    """Accepted 2, –, –, 0, 1, – : rounds at rows 0, 3, 4 keep 2, 0, 1."""
    toy = AcceptanceTrace("t", "d", 2, np.array([2, 0, 0, 0, 1, 0], dtype=np.uint8), np.array([0, 6]), ("math",))
    assert report.walked(toy, "math").tolist() == [2, 0, 1]
    assert report.conditional(report.walked(toy, "math"), 2) == pytest.approx([2 / 3, 1 / 2])
    assert report.length(report.walked(toy, "math")) == 2.0
