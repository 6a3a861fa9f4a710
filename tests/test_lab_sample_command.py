"""``trace sample`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dspark_sim.cli import app
from dspark_sim.lab.corpus import read_corpus
from tests.lab_models import save_target, tiny_target


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    save_target(tiny_target("gemma3"), folder / "target")
    rows = [{"domain": d, "prompt": f"w{5 + i} w{9 + i}"} for i in range(10) for d in ("math", "chat")]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def sample(world: Path, out: str, *more: str) -> Result:
    return CliRunner().invoke(app, [
        "trace", "sample", str(world / "target"), str(world / "prompts.jsonl"), "--out", str(world / out),
        "--tokens", "6", "--responses", "1", "--batch", "4", "--threads", "1", *more])


def test_a_corpus_and_what_was_lost_of_it(world: Path) -> None:
    result = sample(world, "corpus")
    assert result.exit_code == 0, result.output
    assert "5 of 5 parts" in result.output
    whole = read_corpus(world / "corpus")
    assert len(whole) == 20
    assert {d.split for d in whole} == {"train", "held-out"}
    assert all(1 <= len(d.response) <= 6 for d in whole)
    part = world / "corpus" / "part-00003.parquet"
    before = part.read_bytes()
    part.unlink()
    assert "made now" in sample(world, "corpus").output
    assert part.read_bytes() == before, "a part depends on its number alone"


def test_shards_share_the_work(world: Path) -> None:
    assert sample(world, "shards", "--shard", "1/2").exit_code == 0
    assert sorted(p.name for p in (world / "shards").glob("part*")) == ["part-00001.parquet", "part-00003.parquet"]
    assert sample(world, "shards", "--shard", "0/2").exit_code == 0
    for part in (world / "shards").glob("part*"):
        assert part.read_bytes() == (world / "corpus" / part.name).read_bytes()


def test_the_split_does_not_follow_the_seed(world: Path) -> None:
    for seed in ("1", "2"):
        assert sample(world, f"seed{seed}", "--seed", seed, "--split", "held-out").exit_code == 0
    first, second = (read_corpus(world / f"seed{s}") for s in (1, 2))
    assert {d.prompt_id for d in first} == {d.prompt_id for d in second}
    assert sorted(map(str, (d.response.tolist() for d in first))) != sorted(
        map(str, (d.response.tolist() for d in second)))


@pytest.mark.parametrize(("more", "said"), [
    (["--temperature", "0.5"], "temperature 0.5"),
    (["--shard", "2/2"], "--shard: got '2/2'"),
    (["--held-out", "1.5"], "held-out share 1.5"),
    (["--dtype", "float8"], "dtype 'float8'"),
    (["--split", "test"], "allowed: train, held-out"),
    (["--seed", str(10**14)], "Invalid value for '--seed'"),
])
def test_mistakes(world: Path, more: list[str], said: str) -> None:
    result = sample(world, "corpus", *more)
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(("line", "said"), [
    ("{", "prompts2.jsonl:2: not JSON"), ('{"domain": "math"}', "prompts2.jsonl:2: got"),
    ('{"domain": "math", "prompt": 3}', '"prompt": "…"'),
    ('{"domain": "math", "prompt": "w5 \\ud800"}', "prompts2.jsonl:2: got"),
    ('{"domain": "a\\u001b[31m", "prompt": "w5"}', "the domain a short name"),
])
def test_a_prompt_that_is_none(world: Path, line: str, said: str) -> None:
    path = world / "prompts2.jsonl"
    path.write_text('{"domain": "math", "prompt": "w5"}\n' + line + "\n")
    result = CliRunner().invoke(app, ["trace", "sample", str(world / "target"), str(path), "--out", str(world / "x")])
    assert result.exit_code == 2
    assert said in result.output
