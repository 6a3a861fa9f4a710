"""``trace train`` as a user meets it: what it leaves, a real kill -9, and mistakes in one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.lab.checkpoint import load_drafter
from tests.lab_corpus import corpus_of
from tests.lab_models import save_target, tiny_target

ARGS = ["--block-size", "3", "--rank", "4", "--draft-vocabulary", "40", "--sequences", "4", "--anchors", "4",
        "--precision", "float32", "--threads", "1", "--target-layers", "0,2,3"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    target = tiny_target("gemma3", tokenizer=True)
    save_target(target, folder / "target")
    target.name = "target"  # as its folder
    corpus_of(target, folder / "corpus")
    target.name = "another"
    corpus_of(target, folder / "foreign")
    return folder


def _train(world: Path, out: str, steps: int, *more: str) -> list[str]:
    return ["trace", "train", "dspark", "--target", str(world / "target"), "--corpus", str(world / "corpus"), "--out",
            str(world / out), "--steps", str(steps), *ARGS, *more]


def test_the_command_leaves_a_checkpoint_a_log_and_a_curve(world: Path) -> None:
    result = CliRunner().invoke(app, _train(world, "drafter", 20))
    assert result.exit_code == 0, result.output
    names = {p.name for p in (world / "drafter").iterdir()}
    assert {"config.json", "model.safetensors", "training.csv", "training.json", "training.png",
            "training.safetensors"} <= names
    rows = (world / "drafter" / "training.csv").read_text().splitlines()
    assert rows[0].startswith("step,split,loss,length")
    assert len(rows) == 3
    drafter = load_drafter(world / "drafter", target=tiny_target("gemma3"))
    assert drafter.config.draft_vocab_size == 40
    assert drafter.config.attention_bias, "the warm start's looking heads need biases"


def test_kill_9_and_again(world: Path) -> None:
    """A real process, killed after its first checkpoint; the second goes on and ends with the undisturbed bits."""
    out = world / "killed"
    state = out / "training.safetensors"
    code = (
        "import os, signal\n"
        "import dspark_sim.lab.train_state as s\n"
        "save = s.save_state\n"
        "def then_die(*a):\n"
        "    save(*a)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "s.save_state = then_die\n"
        "from dspark_sim.cli import main\n"
        "main()\n"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    died = subprocess.run([sys.executable, "-c", code, *_train(world, "killed", 60)], env=env, capture_output=True)
    assert died.returncode == -signal.SIGKILL
    assert state.exists()
    assert not (out / "config.json").exists()
    for name in ("killed", "whole"):
        done = subprocess.run([sys.executable, "-m", "dspark_sim", *_train(world, name, 60, "--no-plots")], env=env,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert (out / "model.safetensors").read_bytes() == (world / "whole" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("change", "said"), [
    (["trace", "train", "dsprk"], "did you mean 'dspark'"),
    (["--target", "gemma-3-270"], "did you mean 'gemma-3-270m'"),
    (["--corpus", "nowhere"], "no corpus"),
    (["--learning-rate", "nan"], "Invalid value for '--learning-rate'"),
    (["--target-layers", "0,x"], "--target-layers: got '0,x'"),
    (["--target-layers", "0,9"], "target_layer_ids [0, 3, 9]; allowed: rising numbers from -1 to 3"),
    (["--head", "lstm"], "--head: got 'lstm'"),
    (["--precision", "float8"], "--precision: got 'float8'"),
    (["--device", "cuda"], "no CUDA device"),
    (["--device", "tpu"], "allowed: auto, cpu, cuda"),
])
def test_mistakes_are_one_sentence(world: Path, change: list[str], said: str) -> None:
    if change == ["--device", "cuda"] and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    args = _train(world, "never", 5)
    args = [*change, *args[3:]] if change[0] == "trace" else [*args, *change]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output
    assert not (world / "never").exists()


def test_responses_of_another_target_are_refused(world: Path) -> None:
    result = CliRunner().invoke(app, [*_train(world, "never", 5), "--corpus", str(world / "foreign")])
    assert result.exit_code == 2
    assert "target: target 'target'; allowed: 'another', which wrote these responses" in result.output


def test_fewer_layers_than_the_store_has_are_taken_from_it(world: Path) -> None:
    assert CliRunner().invoke(app, _train(world, "all", 2, "--no-plots")).exit_code == 0
    args = [a if a != "0,2,3" else "2,3" for a in _train(world, "fewer", 2, "--no-plots")]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert load_drafter(world / "fewer", target=tiny_target("gemma3")).config.target_layer_ids == (2, 3)


def test_text_of_another_temperature_is_refused(world: Path) -> None:
    import json
    import shutil

    shutil.copytree(world / "corpus", world / "cool", ignore=shutil.ignore_patterns("features"))
    facts = json.loads((world / "cool" / "corpus.json").read_text())
    (world / "cool" / "corpus.json").write_text(json.dumps(facts | {"temperature": 0.6}))
    args = [a if a != str(world / "corpus") else str(world / "cool") for a in _train(world, "never", 2)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert "temperature: sampled at temperature 0.6" in result.output
