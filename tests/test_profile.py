"""The profile loader: every key does something, and references find what they name."""

from __future__ import annotations

import copy
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from dspark_sim.errors import ProfileError
from dspark_sim.profile import HardwareProfile, list_profiles, load_profile
from dspark_sim.profile_schema import ProfileSpec
from dspark_sim.shelves import HARDWARE_PROFILES, shelf
from tests.profiles import SMALL, load, write

TEACHING = shelf(HARDWARE_PROFILES) / "synthetic-roofline"


# -- every key matters -----------------------------------------------------------------------------------------------
def answers(profile: HardwareProfile) -> list[Any]:
    """Everything that a simulation or a report takes from a profile."""
    out: list[Any] = [
        profile.description, profile.gpus, profile.price_per_gpu_hour, profile.currency, profile.kv_blocks,
        profile.kv_block_tokens, profile.max_num_seqs, profile.max_num_batched_tokens, profile.provenance,
        sorted(profile.drafter_notes.items()), profile.statements(profile.drafters),
    ]
    for drafter in [None, *profile.drafters]:
        c = profile.step_cost(drafter=drafter, block_size=7, max_requests=1024, max_tokens=20000, synchronous=True)
        for r in (1, 64, 500, 700, 1000):
            out += [c.draft_seconds(r, 5), c.draft_seconds(r, 5, r), c.schedule_seconds(r)]
            out.append(c.other_seconds(r, 2000 * r))
        out += [c.verify_seconds(b, 100) for b in (1, 65, 130, 200, 1000, 1024, 1030, 5000, 17000)]
        out += [c.verify_seconds(1, prefill) for prefill in (500, 700, 1000)]
    return out


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> set[str]:
    """Dotted names of every key that the schema knows; list items and drafters' names left out."""
    out: set[str] = set()
    for name, info in model.model_fields.items():
        inner = [m for m in flatten(info.annotation) if issubclass(m, BaseModel)]
        deeper = leaves(inner[0], (*path, name)) if inner else {".".join((*path, name))}
        out |= deeper
    return out


def flatten(annotation: Any) -> list[type]:
    arguments = typing.get_args(annotation)
    if isinstance(annotation, type) and not arguments:
        return [annotation]
    return [found for argument in arguments for found in flatten(argument)]


CURVE_TURNS: dict[str, Any] = {
    "file": "other.csv", "between": "linear", "graph_limit": 512, "extrapolate": None, "running_max": True,
    "unit": "s", "points": [[1, 1.25], [1024, 14.25]],
}
VERIFY_TURNS = {k: v for k, v in CURVE_TURNS.items() if k not in ("points", "unit")}
OTHER_TURNS: dict[str, Any] = {
    "description": "another", "gpus": 3, "price_per_gpu_hour": 9.0, "currency": "EUR", "measured_context": 0,
    "max_num_seqs": 512, "max_num_batched_tokens": 8192, "prefill": "shared", "per_request": 1e-5,
    "per_kv_token": 1e-9, "kv": None, "kv.blocks": 7, "kv.block_tokens": 32, "speculation_overhead": None,
    "schedule": None, "fixed": None, "drafters.dspark.kind": "parallel", "drafters.mtp.kind": "parallel",
    "drafters.dspark.assumption": "another", "drafters.dspark.source": "measured", "drafters.dspark.catch_up": None,
    "drafters.dspark.per_token": None, "drafters.mtp": None, "provenance.kind": "measured",
    "provenance.device": "other", "provenance.model": "other", "provenance.software": "other",
    "provenance.date": "2020", "provenance.source": "other", "provenance.command": "other",
    "provenance.assumptions": ["other"],
}
POINTS = [[1, 0.3], [300, 7.0], [600, 6.0], [1024, 9.0]]  # a curve that shows each of its keys


def curve_places(data: dict[str, Any]) -> list[str]:
    places = ["speculation_overhead", "prefill", "schedule", "fixed", "drafters.dspark.seconds"]
    return [*places, "drafters.dspark.catch_up", "drafters.dspark.per_token", "drafters.mtp.seconds"]


def put(data: dict[str, Any], key: str, value: Any) -> None:
    *way, last = key.split(".")
    for part in way:
        data = data[part]
    if value is None:
        data.pop(last, None)
    else:
        data[last] = value


def teaching() -> dict[str, Any]:
    return typing.cast("dict[str, Any]", yaml.safe_load((TEACHING / "profile.yaml").read_text()))


def turns() -> list[tuple[str, Any]]:
    out = [(k, v) for k, v in OTHER_TURNS.items() if k != "drafters.dspark.kind"]
    out += [(f"verify.{k}", v) for k, v in VERIFY_TURNS.items()]
    for place in curve_places(teaching()):
        out += [(f"{place}.{k}", v) for k, v in CURVE_TURNS.items() if k != "file"]
    return out


@pytest.mark.parametrize(("key", "value"), turns(), ids=lambda v: v if isinstance(v, str) else "")
def test_turning_a_key_changes_a_result(tmp_path: Path, key: str, value: Any) -> None:
    data = teaching()
    place, _, last = key.rpartition(".")
    if place in curve_places(data):  # start from a curve in which every key is visible
        limit = {"graph_limit": 600} if last == "graph_limit" else {}
        graphs = last in ("between", "graph_limit")
        reach = {"extrapolate": "linear"} if last == "extrapolate" else {}
        points = [[1, 0.3], [300, 7.0], [600, 9.0]] if last == "extrapolate" else POINTS
        start = {"points": points, "unit": "ms", "between": "hold" if graphs else "linear", **limit, **reach}
        put(data, place, start)
        value = 300 if last == "graph_limit" else value
    if key == "verify.between":
        put(data, "verify.graph_limit", None)
    other = "batch_tokens,ms\n1,1\n512,5\n1024,9\n2048,30\n4096,60\n"
    files = {"verify": (TEACHING / "verify.csv").read_text(), "other": other}
    before = load(tmp_path, yaml.safe_dump(data), **files)
    turned = copy.deepcopy(data)
    put(turned, key, value)
    after = load(tmp_path, yaml.safe_dump(turned), **files)
    assert repr(answers(after)) != repr(answers(before))
    assert after.sha256 != before.sha256


def test_no_key_of_the_schema_is_forgotten_here() -> None:
    tested = set()
    for key, _ in turns():
        parts = key.split(".")
        if parts[0] == "drafters":
            del parts[1]
        tested.add(".".join(parts))
        tested.add(".".join(parts[:-1]))
    known = {k for k in leaves(ProfileSpec) if not k.endswith((".file", ".unit", ".points"))}
    known |= {"prefill", "drafters.kind"}
    assert known <= tested, sorted(known - tested)


def test_arguments_of_step_cost_matter(tmp_path: Path) -> None:
    profile = load_profile("synthetic-roofline")

    def seconds(**changes: Any) -> list[float]:
        arguments: dict[str, Any] = {"drafter": "dspark", "block_size": 5, "max_requests": 64, "max_tokens": 999,
                                     "ragged": "flattened", "synchronous": False, "scale": 1.0}
        return list(profile.step_cost(**(arguments | changes)).table(20))

    assert seconds(drafter="mtp") != seconds()
    fixed, overhead, draft = profile.fixed, profile.speculation_overhead, profile.drafters["dspark"](20, 5)
    assert fixed is not None
    assert overhead is not None
    bare = profile.verify(20) + fixed(20) + 20 * profile.per_request - profile.per_kv_token * 20 * 1024
    assert seconds(drafter=None)[0] == pytest.approx(bare), "neither drafter nor speculation overhead"
    assert seconds()[0] == pytest.approx(bare + draft + overhead(20))
    assert seconds(block_size=4) != seconds()
    assert seconds(max_tokens=100)[-1] == float("inf")
    assert seconds(ragged="padded") != seconds()
    assert seconds(synchronous=True)[0] == pytest.approx(seconds()[0] + profile.schedule(20))  # type: ignore[misc]
    assert seconds(scale=1.1) != seconds()


# -- reading ---------------------------------------------------------------------------------------------------------
def test_csv_and_points_say_the_same_and_milliseconds_are_exact(tmp_path: Path) -> None:
    text = SMALL.replace("{points: [[1, 1.0], [64, 2.0]], unit: ms}", "{file: v.csv}")
    untidy = "# note\nspread, seconds ,batch_tokens\n\n9,0.02063,1\n9,0.10449,64\n"
    for content in ("batch_tokens,ms\n1,20.63\n64,104.49\n", untidy):
        profile = load(tmp_path, text, v=content)
        assert profile.verify.seconds.tolist() == [0.02063, 0.10449]


def test_the_hash_covers_the_yaml_and_the_files_it_names_and_no_others(tmp_path: Path) -> None:
    text = SMALL.replace("{points: [[1, 1.0], [64, 2.0]], unit: ms}", "{file: v.csv}")
    first = load(tmp_path, text, v="batch_tokens,ms\n1,1\n64,2\n").sha256
    assert load(tmp_path, text, v="batch_tokens,ms\n1,1\n64,2\n", unrelated="x").sha256 == first
    assert load(tmp_path, text, v="batch_tokens,ms\n1,1\n64,3\n").sha256 != first
    assert load(tmp_path, text + "# note\n", v="batch_tokens,ms\n1,1\n64,2\n").sha256 != first


def test_a_profile_is_found_by_name_by_folder_by_file_and_relative_to_the_scenario(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    write(folder, SMALL)
    places: list[tuple[str | Path, Path | None]] = [
        (str(folder), None), (folder, None), ("./mine", tmp_path), ("mine/profile.yaml", tmp_path), ("mine", tmp_path),
        ("../mine", folder)]
    for reference, base in places:
        assert load_profile(reference, base).name == "mine"
    assert load_profile("synthetic-roofline", tmp_path).path == TEACHING / "profile.yaml"
    (folder / "profile.yaml").rename(folder / "second.yaml")
    assert load_profile("mine/second.yaml", tmp_path).name == "second"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("b300x4-deepseek-v4-flsh", r"no profile '.*flsh'; allowed: .*did you mean 'b300x4-deepseek-v4-flash'"),
        ("./nowhere", r"nowhere: no such file or folder"),
        ("empty/", r"empty: the folder holds no profile.yaml"),
        ("", r"profile: got ''; allowed: a name or a path"),
        ("a\0b", r"a name or a path"),
        ("x" * 3000, r"a name or a path"),
        ("./" + "y" * 600, r"cannot be read|no such file"),
    ],
)
def test_an_unknown_profile_says_what_there_is(tmp_path: Path, reference: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProfileError, match=message):
        load_profile(reference, tmp_path)


def test_drafters_are_priced_by_their_own_entry_or_by_their_stem(tmp_path: Path) -> None:
    own = "drafters:\n  dspark-7: {kind: parallel, seconds: {points: [[1, 1]]}, source: there}\n"
    profile = load(tmp_path, SMALL.replace("drafters:\n", own))
    assert profile.drafter_entry("dspark-7") == "dspark-7"
    assert profile.drafter_entry("dspark-5") == profile.drafter_entry("dspark") == "dspark"
    assert profile.drafter_notes["dspark-7"] == "measured: there"
    with pytest.raises(ProfileError, match=r"drafter 'dsprk'; allowed: dspark-7, dspark \(did you mean 'dspark'"):
        profile.step_cost(drafter="dsprk", block_size=1, max_requests=1, max_tokens=9)
    with pytest.raises(ProfileError, match="no cost for drafter 'dspark-fast'"):
        profile.drafter_entry("dspark-fast")


def test_statements_say_kind_source_assumptions_and_how_the_drafters_in_use_were_priced() -> None:
    text = "\n".join(load_profile("b300x4-deepseek-v4-flash").statements(["mtp", "mtp"]))
    assert "b300x4-deepseek-v4-flash: measured; DeepSeek-V4-Flash" in text
    assert text.count("cost of drafter mtp assumed: not measured") == 1
    assert "cost of drafter dspark" not in text
    assert "assumes Prefill was not measured" in text


def test_the_shelf_lists_itself() -> None:
    assert "synthetic-roofline" in list_profiles() == sorted(list_profiles())
