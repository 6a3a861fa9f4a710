"""The shipped profiles say what their sources say, and the committed scripts make them again byte for byte."""

from __future__ import annotations

import csv
import os
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from dspark_sim.errors import OutOfRange
from dspark_sim.profile import HardwareProfile, list_profiles, load_profile
from dspark_sim.shelves import HARDWARE_PROFILES, shelf

SHELF = shelf(HARDWARE_PROFILES)
TOOL = Path(__file__).resolve().parent.parent / "tools" / "make_profiles.py"
DERIVED = runpy.run_path(str(TOOL.with_name("make_derived_profiles.py")))
KINDS = {
    "b300x4-deepseek-v4-flash": ("measured", 4), "b300x8-deepseek-v4-pro": ("derived", 8),
    "deepseek-v4-flash-paper": ("derived", 1), "deepseek-v4-flash-paper-fig7": ("derived", 1),
    "deepseek-v4-pro-paper": ("derived", 1), "deepseek-v4-pro-paper-fig7": ("derived", 1),
    "h20-qwen3-8b": ("derived", 1), "synthetic-roofline": ("synthetic", 2),
    "rtx5090-qwen3-4b": ("derived", 1),
} | {name: ("derived", tp) for name, (_, _, tp) in DERIVED["ENGINES"].items()}


def rows(profile: str, file: str) -> list[dict[str, str]]:
    lines = [line for line in (SHELF / profile / file).read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def drafter_seconds(profile: HardwareProfile, drafter: str, requests: int, tokens: int) -> float:
    cost = profile.step_cost(drafter=drafter, block_size=tokens, max_requests=requests, max_tokens=1)
    return cost.draft_seconds(requests, tokens)


# -- all of them -----------------------------------------------------------------------------------------------------
def test_the_shelf_holds_what_the_readme_says() -> None:
    assert set(list_profiles()) == set(KINDS)
    readme = (SHELF / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in KINDS)


@pytest.mark.parametrize("name", list(KINDS))
def test_each_says_where_it_comes_from(name: str) -> None:
    profile = load_profile(name)
    assert (profile.provenance.kind, profile.gpus) == KINDS[name]
    assert profile.provenance.assumptions
    assert set(profile.drafter_notes) == set(profile.drafters)
    priced = name == "synthetic-roofline"
    assert (profile.price_per_gpu_hour is not None) == priced, "no price was published for any of them"


@pytest.mark.parametrize("name", list(KINDS))
@pytest.mark.parametrize("block", [1, 5, 7])
def test_each_can_price_a_full_batch_of_its_own_limit(name: str, block: int) -> None:
    profile = load_profile(name)
    for drafter in profile.drafters:
        requests = min(profile.max_num_seqs, profile.max_num_batched_tokens // (1 + block))
        cost = profile.step_cost(drafter=drafter, block_size=block, max_requests=requests,
                                 max_tokens=profile.max_num_batched_tokens)
        for r in {1, 2, requests // 2, requests}:
            table = cost.table(r, kv=r * profile.measured_context)
            assert np.all(np.isfinite(table))
            assert table.min() > 0


def contents(shelf: Path) -> dict[str, bytes]:
    return {str(p.relative_to(shelf)): p.read_bytes() for p in sorted(shelf.rglob("*"))
            if p.suffix in (".yaml", ".csv", ".md")}


def test_the_scripts_make_every_file_again_from_the_source_tables(tmp_path: Path) -> None:
    DERIVED["make"](tmp_path)
    for file in SHELF.rglob("*.csv"):
        measured = file.parent.name == "b300x4-deepseek-v4-flash" and file.name in ("verify.csv", "dspark.csv")
        if (measured or "source" in file.name) and file.parent.name not in DERIVED["ENGINES"]:
            (tmp_path / file.parent.name).mkdir(exist_ok=True)
            shutil.copy(file, tmp_path / file.parent.name / file.name)
    by_hand = (SHELF / "README.md").read_text(encoding="utf-8").partition("<!-- below")[0]
    (tmp_path / "README.md").write_text(by_hand, encoding="utf-8")
    runpy.run_path(str(TOOL))["make"](tmp_path)
    assert contents(tmp_path) == contents(SHELF)


@pytest.mark.skipif("DSPARK_SIM_DATA" not in os.environ, reason="needs the published tables")
def test_the_source_tables_are_what_the_data_folder_holds(tmp_path: Path) -> None:
    shutil.copy(SHELF / "README.md", tmp_path)
    DERIVED["make"](tmp_path)
    runpy.run_path(str(TOOL))["make"](tmp_path, Path(os.environ["DSPARK_SIM_DATA"]))
    assert contents(tmp_path) == contents(SHELF)


# -- V4-Flash on four B300: measured ---------------------------------------------------------------------------------
FLASH = load_profile("b300x4-deepseek-v4-flash")


def test_flash_gives_back_every_measured_point_exactly() -> None:
    points = rows(FLASH.name, "verify.csv")
    assert len(points) == 88
    assert [FLASH.verify(int(p["batch_tokens"])) for p in points] == [float(p["ms"]) / 1000 for p in points]
    drafts = rows(FLASH.name, "dspark.csv")
    assert len(drafts) == 35
    assert [drafter_seconds(FLASH, "dspark", int(p["requests"]), 5) for p in drafts] == [
        float(p["ms"]) / 1000 for p in drafts]


def test_flash_keeps_the_published_cliff_and_labels() -> None:
    assert FLASH.verify(1) == 0.00511
    assert FLASH.verify(1024) == 0.02063
    assert FLASH.verify(1025) == FLASH.verify(1536) == 0.10449
    assert FLASH.verify(16384) == 0.23489
    assert drafter_seconds(FLASH, "dspark", 1, 5) == 0.00088
    assert drafter_seconds(FLASH, "dspark", 256, 5) == 0.00538


def test_flash_is_raw_it_falls_where_it_was_measured_falling() -> None:
    assert not FLASH.verify.running_max
    assert FLASH.verify(688) < FLASH.verify(672)
    assert FLASH.verify(2048) < FLASH.verify(1536)
    assert FLASH.verify.pad(129) == 136


def test_flash_refuses_what_was_not_measured() -> None:
    with pytest.raises(OutOfRange):
        FLASH.verify(16385)
    cost = FLASH.step_cost(drafter="dspark", block_size=5, max_requests=300, max_tokens=9)
    assert cost.draft_seconds(257, 5) == np.inf


def test_flashs_mtp_is_assumed_and_lies_between_one_layer_of_the_target_and_dspark() -> None:
    assert FLASH.drafter_notes["mtp"].startswith("assumed: ")
    assert FLASH.drafter_notes["dspark"].startswith("measured: ")
    for r in (1, 8, 64, 128, 256):
        assert FLASH.verify(2 * r) / 43 < drafter_seconds(FLASH, "mtp", r, 1) < drafter_seconds(FLASH, "dspark", r, 1)
    assert drafter_seconds(FLASH, "mtp", 1, 1) == pytest.approx(0.00022, abs=5e-6)
    assert drafter_seconds(FLASH, "mtp", 128, 1) == pytest.approx(0.00065, abs=5e-6)


# -- V4-Pro on eight B300: fitted on three arms ----------------------------------------------------------------------
def test_pro_explains_the_fitted_arms_within_one_per_cent_and_never_saw_the_fourth() -> None:
    profile = load_profile("b300x8-deepseek-v4-pro")
    source = rows(profile.name, "source.csv")
    assert len(source) == 18
    assert {row["k"] for row in source} == {"0", "1", "3"}
    errors = []
    for row in source:
        k, c = int(row["k"]), int(row["concurrency"])
        length = float(row["acceptance_length"])
        lost = 15 / 1240 * length / (1 + 15 / 1240 * length)
        drain = min(1.0, float(row["tok_s"]) / float(row["tok_s_user"]) / c / (1 - lost))
        alive = c * (1 - lost) * (1 + drain) / 2
        step = np.interp(alive * (1 + k), profile.verify.batch_tokens, profile.verify.seconds)
        if k:
            step += drafter_seconds(profile, "dspark", c, k)
        errors.append(step * float(row["tok_s_user"]) / float(row["acceptance_length"]) - 1)
    assert np.max(np.abs(errors)) < 0.01
    assert np.sqrt(np.mean(np.square(errors))) < 0.003


def test_pros_curve_rises_and_its_drafter_has_a_cost_per_token() -> None:
    profile = load_profile("b300x8-deepseek-v4-pro")
    assert np.all(np.diff(profile.verify.seconds) > 0)
    one, three = (drafter_seconds(profile, "dspark", 64, k) for k in (1, 3))
    assert one == pytest.approx(0.00179, abs=1e-5)
    assert three - one == pytest.approx(0.00044, abs=1e-5)


# -- the paper's service ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["flash", "pro"])
def test_the_papers_throughput_comes_back_from_figure_8(engine: str) -> None:
    profile = load_profile(f"deepseek-v4-{engine}-paper")
    for row in rows(profile.name, "source.csv"):
        c, published = float(row["concurrent_requests"]), float(row["throughput_tok_s_gpu"])
        if profile.verify.first <= 2 * c <= profile.verify.last:
            step = np.interp(2 * c, profile.verify.batch_tokens, profile.verify.seconds)
            assert 1.85 * c / step == pytest.approx(published, rel=0.002)


@pytest.mark.parametrize("engine", ["flash", "pro"])
def test_the_papers_user_speed_comes_back_from_figure_7(engine: str) -> None:
    profile = load_profile(f"deepseek-v4-{engine}-paper-fig7")
    for row in rows(profile.name, "source.csv"):
        speed, throughput = float(row["tps_per_user"]), float(row["throughput_tok_s_gpu"])
        size = 2 * throughput / speed
        if profile.verify.first <= size <= profile.verify.last:
            step = np.interp(size, profile.verify.batch_tokens, profile.verify.seconds)
            assert 1.85 / step == pytest.approx(speed, rel=0.007)


def test_the_papers_flash_is_the_known_straight_line() -> None:
    profile = load_profile("deepseek-v4-flash-paper")
    for tokens in (20, 100, 400, 700):
        assert profile.verify(tokens) == pytest.approx(0.0154 + 0.0000287 * tokens, rel=0.01)
    assert profile.verify(1200) == pytest.approx(0.0154 + 0.0000287 * 1200, rel=0.02), "extrapolated"


# -- Qwen3-8B on H20 -------------------------------------------------------------------------------------------------
def h20_ms(profile: HardwareProfile, requests: int, tokens: float, drafter: str | None) -> float:
    target = float(np.interp(tokens, profile.verify.batch_tokens, profile.verify.seconds))
    draft = drafter_seconds(profile, drafter, requests, 15) if drafter else 0.0
    return 1000 * (target + profile.per_request * requests + draft)


def test_h20_explains_verify_times_and_the_engine_without_speculation() -> None:
    profile = load_profile("h20-qwen3-8b")
    errors = []
    for row in rows(profile.name, "verify_source.csv"):
        r = int(row["requests"])
        ms = h20_ms(profile, r, r * (1 + 15 * float(row["keep_ratio"])), "dflash")
        errors.append(ms / float(row["ms"]) - 1)
    for row in rows(profile.name, "throughput_source.csv"):
        if row["arm"] == "AR":
            r = int(row["requests"])
            errors.append(h20_ms(profile, r, r, None) * float(row["tok_s"]) / 1000 / r - 1)
    assert len(errors) == 25
    assert np.max(np.abs(errors)) < 0.035
    assert np.sqrt(np.mean(np.square(errors))) < 0.016


def test_h20_saw_only_the_small_batches_of_the_arms_with_speculation() -> None:
    seen = {(row["arm"], row["requests"]) for row in rows("h20-qwen3-8b", "throughput_source.csv")}
    assert {r for arm, r in seen if arm != "AR"} == {"4", "8"}


def test_h20s_drafters_explain_both_small_batches_with_one_acceptance_length() -> None:
    profile = load_profile("h20-qwen3-8b")
    for arm, width, drafter, tokens in [("DFlash-B8", 8, "dflash", 7), ("DFlash-B16", 16, "dflash", 15),
                                        ("EAGLE-3", 4, "eagle3", 3)]:
        lengths = []
        for row in rows(profile.name, "throughput_source.csv"):
            if row["arm"] == arm:
                r = int(row["requests"])
                ms = h20_ms(profile, r, r * width, None) + 1000 * drafter_seconds(profile, drafter, r, tokens)
                lengths.append(ms * float(row["tok_s"]) / 1000 / r)
        assert lengths[1] == pytest.approx(lengths[0], rel=0.03)


# -- the teaching profile --------------------------------------------------------------------------------------------
def test_the_teaching_profile_uses_every_optional_key_and_is_jagged() -> None:
    profile = load_profile("synthetic-roofline")
    optional = (profile.prefill, profile.schedule, profile.fixed, profile.speculation_overhead, profile.kv_blocks)
    assert None not in optional
    assert profile.per_request > 0
    assert profile.per_kv_token > 0
    assert {c.kind for c in profile.drafters.values()} == {"parallel", "autoregressive"}
    assert np.any(np.diff(profile.verify.seconds) < 0)
    assert profile.verify(1025) > 1.5 * profile.verify(1024)


def test_the_readme_holds_the_residuals_that_the_script_wrote() -> None:
    text = (SHELF / "README.md").read_text(encoding="utf-8")
    worst = re.search(r"Root mean square ([\d.]+) %, worst ([\d.]+) %; drafter", text)
    assert worst is not None
    assert float(worst[2]) < 1.0
