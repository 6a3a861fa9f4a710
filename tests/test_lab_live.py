"""The live engine: its passes against plain ones, its text against the target's own law, its steps against the
simulator's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from dspark_sim.arms import ArmSetup, load_arms
from dspark_sim.errors import InputError
from dspark_sim.lab import live_sampling
from dspark_sim.lab.collect import collect
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.live_cache import FlatPass, live_attention
from dspark_sim.lab.live_check import compare_greedy, documents_of, greedy_outputs, plain_setup
from dspark_sim.lab.live_engine import live_run
from dspark_sim.lab.live_model import LiveModel
from dspark_sim.lab.live_plan import LivePlan, LivePrompt, parse_arms, prompts_sha256
from dspark_sim.lab.live_sampling import Dice, pick_wide
from dspark_sim.lab.live_timing import Timing, profile_of, sizes
from dspark_sim.lab.live_world import class_names, write_requests, write_scenario
from dspark_sim.lab.target import Target
from dspark_sim.profile_write import write_profile
from dspark_sim.scenario import Scenario, load_scenario
from dspark_sim.simulate import simulate
from tests.lab_models import tiny_drafter, tiny_target

torch.set_num_threads(1)
PROMPTS = [LivePrompt(i, "math" if i % 2 else "chat", (2, *[5 + i] * (1 + 3 * i % 7), 4 + i)) for i in range(6)]
TOKENS = 16


def plain_text(target: Target, prompt: tuple[int, ...], tokens: int) -> list[int]:
    """Greedy, everything read again for every token."""
    ids = list(prompt)
    for _ in range(tokens):
        ids.append(int(target.logits(target.forward(torch.tensor([ids])).last[0, -1]).argmax()))
    return ids[len(prompt):]


@pytest.mark.parametrize("kind", ["dspark", "eagle3"])
@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
@torch.inference_mode()
def test_ragged_passes_are_plain_ones_and_the_drafter_sees_what_it_should(family: str, kind: str) -> None:
    """Rows of different lengths, trimmed differently, leaving and joining; windows of 8 tokens in Gemma's layers."""
    target = tiny_target(family)
    drafter = tiny_drafter(kind, target, draft_vocab=50)  # type: ignore[arg-type]
    G = drafter.config.block_size
    model, rng = LiveModel(target, drafter, 3, 60, 0.0, Dice(0, G)), np.random.default_rng(1)
    texts: dict[int, list[int]] = {}
    who: list[int] = []
    with live_attention(target):
        def admit(i: int) -> None:
            who.append(i)
            texts[i] = [model.admit(PROMPTS[i].tokens, (i,))[1]]

        for i in range(3):
            admit(i)
        for step in range(9):
            place = [int(p) for p in rng.permutation(model.used)]  # the engine's order need not be the model's
            lengths = rng.integers(0, G + 1, len(place))
            block = model.draft(place, np.full(len(place), G))
            verdict, passed = model.verify(place, block, lengths)
            model.keep(place, verdict, passed)
            for n, p in enumerate(place):
                texts[who[p]] += [*block.tokens[n, : verdict.accepted[n]].tolist(), int(verdict.after[n])]
            if step in (3, 5):
                moved = model.leave(0)
                who[0] = who[moved]
                who.pop()
                admit(3 + step // 5)
    assert model._context is not None
    for p, i in enumerate(who):
        ids = torch.tensor([[*PROMPTS[i].tokens, *texts[i]]])
        assert int(model.known[p]) == ids.shape[1] - 1
        features = target.forward(ids[:, :-1], layer_ids=drafter.config.target_layer_ids).features
        whole = drafter.context(ids, features)
        assert torch.allclose(model._context.fused[p, : whole.length], whole.fused[0], atol=2e-4)
        for (k, v), (k2, v2) in zip(model._context.layers, whole.layers, strict=True):
            assert torch.allclose(k[p, : whole.length], k2[0], atol=2e-4)
            assert torch.allclose(v[p, : whole.length], v2[0], atol=2e-4)
    assert all(text == plain_text(target, PROMPTS[i].tokens, len(text)) for i, text in texts.items())


# -- the law of the text ---------------------------------------------------------------------------------------------
def exact_law(target: Target, prompt: tuple[int, ...], tokens: int, T: float) -> np.ndarray:
    """(V, …) probability of every output."""
    V = target.vocab_size
    law = np.ones((V,) * tokens)
    for n in range(tokens):
        for head in product(range(V), repeat=n):
            logits = target.logits(target.forward(torch.tensor([[*prompt, *head]])).last[0, -1]).double()
            law[head] *= torch.softmax(logits / T, -1).numpy().reshape(V, *([1] * (tokens - n - 1)))
    return law


def p_value(counts: np.ndarray, law: np.ndarray) -> float:
    """Chi-square over outcomes, the rare ones together."""
    expected, seen = law.ravel() * counts.sum(), counts.ravel()
    often = expected >= 5
    groups = [(seen[often], expected[often]), (seen[~often].sum()[None], expected[~often].sum()[None])]
    e, s = np.concatenate([g[1] for g in groups]), np.concatenate([g[0] for g in groups])
    return float(chi2.sf(((s - e) ** 2 / e).sum(), len(e) - 1))


def sampled(target: Target, drafter: Drafter, prompt: tuple[int, ...], tokens: int, T: float) -> np.ndarray:
    """Counts of what follows the prompt, its last token being the anchor; lengths follow confidences, as a policy's
    may. All rows are copies of one, so that only one prompt is read."""
    counts = np.zeros((target.vocab_size,) * tokens)
    rows, G = 1024, drafter.config.block_size
    model = LiveModel(target, drafter, rows, len(prompt) + 3 * tokens, T, Dice(5, G))
    with live_attention(target), torch.inference_mode():
        model.admit(prompt[:-1], (0,))
        assert model._context is not None
        ids = torch.tensor([prompt])
        features, _ = model.cache.forward(ids[0, :-1], FlatPass(torch.zeros(ids.shape[1] - 1, dtype=torch.long),
                                          torch.arange(ids.shape[1] - 1), 0, 1, [ids.shape[1] - 1]), model.layers)
        model._store(drafter.context(ids, features[None]), torch.tensor([0]), torch.tensor([0]))
        for i in range(1, rows):
            model.dice.first((i,))
            model.keys.append((i,))
        for store in (*[x for kv in model._context.layers for x in kv], model._context.fused):
            store[1:] = store[:1]
        model.cache.keys[:, 1:], model.cache.values[:, 1:] = model.cache.keys[:, :1], model.cache.values[:, :1]
        model.known[:], model.anchor[:] = len(prompt) - 1, prompt[-1]
        texts: list[list[int]] = [[] for _ in range(rows)]
        place = list(range(rows))
        for _ in range(tokens):
            model.roll(place)
            block = model.draft(place, np.full(rows, G))
            assert block.confidence is not None
            lengths = (block.confidence > 0.4).long().cumprod(1).sum(1).numpy()
            verdict, passed = model.verify(place, block, lengths)
            model.keep(place, verdict, passed)
            for text, kept, row, after in zip(texts, verdict.accepted, block.tokens, verdict.after, strict=True):
                text += [*row[:kept].tolist(), int(after)]
    for text in texts:
        counts[tuple(text[:tokens])] += 1
    return counts


@pytest.fixture(scope="module")
def toy() -> tuple[Target, Drafter, tuple[int, ...], np.ndarray]:
    target = tiny_target("gemma3", vocab=7)
    drafter = tiny_drafter("dspark", target, draft_vocab=5, block_size=2)
    prompt = (2, 4, 5)
    return target, drafter, prompt, exact_law(target, prompt, 2, 0.8)


def test_sampled_text_has_the_targets_law(toy: tuple[Target, Drafter, tuple[int, ...], np.ndarray]) -> None:
    target, drafter, prompt, law = toy
    assert p_value(sampled(target, drafter, prompt, 2, 0.8), law) > 0.01


@pytest.mark.parametrize("broken", ["no residual", "always kept", "wrong draft law"])
def test_a_broken_sampler_is_caught(
    toy: tuple[Target, Drafter, tuple[int, ...], np.ndarray], broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, drafter, prompt, law = toy
    judge: Callable[..., live_sampling.Verdict] = live_sampling.judge

    def wrong(logits, lengths, block, draft_ids, draft_rows, T, dice):  # type: ignore[no-untyped-def]
        if broken == "no residual":  # the next token from p itself
            block = replace(block, law=torch.zeros_like(block.law))
        elif broken == "always kept":
            block = replace(block, probability=torch.zeros_like(block.probability))
        else:
            block = replace(block, probability=block.probability ** 2)
        return judge(logits, lengths, block, draft_ids, draft_rows, T, dice)

    monkeypatch.setattr("dspark_sim.lab.live_model.judge", wrong)
    assert p_value(sampled(target, drafter, prompt, 2, 0.8), law) < 1e-6


def test_the_wide_draw_is_the_narrow_one() -> None:
    rng = np.random.default_rng(0)
    weight = torch.from_numpy(rng.random((40, 1500)) * (rng.random((40, 1500)) < 0.01)).float()
    weight[0] = 0
    weight[0, 1499] = 1
    place = torch.from_numpy(np.append(rng.random(39), 1 - 1e-16))
    found = pick_wide(weight, place)
    assert (weight[torch.arange(40), found] > 0).all()
    steps = weight.double().cumsum(1)
    narrow = torch.searchsorted(steps, place[:, None] * steps[:, -1:], right=True)[:, 0].clamp(max=1499)
    assert torch.equal(found, narrow)


# -- the engine against the simulator ----------------------------------------------------------------------------------
def world(folder: Path, target: Target, drafter: Drafter, arms: str, c: int = 3) -> tuple[Scenario, list[ArmSetup]]:
    """A greedy scenario on texts that the target writes, its steps recorded, with step times made up."""
    parsed = parse_arms(arms, drafter)
    plan = LivePlan("tiny", "d", "d", parsed, (c,), TOKENS, 0.0, 1, 1, 1, 1, (4, 8), False, "float32", "cpu", 1,
                    prompts_sha256(PROMPTS))
    texts = [plain_text(target, p.tokens, TOKENS) for p in PROMPTS]
    trace = collect(target, {"d": drafter}, documents_of(PROMPTS, texts), temperature=0.0)["d"]
    (folder / "traces" / "0").mkdir(parents=True)
    replace(trace, domain=tuple(class_names(PROMPTS))).save(folder / "traces" / "0" / "d.parquet")
    requests, tokens = sizes(c, drafter.config.block_size)
    timing = Timing(c, [(b, 0.01 + 0.002 * max(0, b - 4)) for b in (*requests, *tokens)], [(r, 1e-3) for r in requests],
                    [(r, 2e-3) for r in requests], 0.0, 1.0, 0.01, 16, "2026-01-01T00:00:00", 1, 1e-4, 2e-4, 1e-5)
    write_requests(folder / "requests.csv", PROMPTS, TOKENS)
    path = write_scenario(folder / f"c{c}", plan, parsed, PROMPTS, c, drafter.config.block_size)
    write_profile(profile_of(timing, drafter, "d", "a test"), folder / f"c{c}" / "profile")
    scenario = load_scenario(path, {"record": "all"})
    return scenario, load_arms(scenario)


SAME = ("requests", "drafted", "verified", "accepted", "emitted", "batch_tokens", "kv_tokens", "waiting")
ARMS = "no_spec,fixed:2,fixed:0,threshold:0.4,early_stop,async_global,ema_ladder,tetris,specdec_pp"


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_greedy_steps_are_the_simulators_and_the_text_is_the_targets(family: str, tmp_path: Path) -> None:
    """Nothing is random here, so every step of every policy must be the same one, token by token."""
    target = tiny_target(family)
    drafter = tiny_drafter("dspark", target, seed=1)
    scenario, setups = world(tmp_path, target, drafter, ARMS)
    prompts = [p.tokens for p in PROMPTS]
    texts = [plain_text(target, p.tokens, TOKENS) for p in PROMPTS]
    accepted = 0
    for setup in setups:
        live = live_run(setup, target, drafter, prompts, TOKENS, class_names(PROMPTS), seed=1)
        assert live.run.error is None, live.run.error
        assert live.outputs == texts, setup.name
        run = simulate(setup, scenario, 0)
        assert run.steps is not None
        assert live.run.steps is not None
        for name in SAME:
            assert live.run.steps[name].to_pylist() == run.steps[name].to_pylist(), (setup.name, name)
        for name in ("id", "steps", "emitted", "drafted", "verified", "accepted", "outcome"):
            assert live.run.requests[name].to_pylist() == run.requests[name].to_pylist(), (setup.name, name)
        assert live.run.lengths.equals(run.lengths.replace_schema_metadata(None))  # type: ignore[union-attr]
        accepted += sum(live.run.steps["accepted"].to_pylist())
    assert accepted > 20


def test_a_policy_that_fails_ends_its_run_and_says_where(tmp_path: Path) -> None:
    target = tiny_target()
    drafter = tiny_drafter("dspark", target)
    bad = tmp_path / "bad.py"
    bad.write_text("class Bad:\n    lossless = True\n    timing = 'overlapped'\n    def verify_lengths(self, view):\n"
                   "        if view.step == 3:\n            raise RuntimeError('no more')\n"
                   "        return view.drafted * 0\n")
    _, setups = world(tmp_path / "w", target, drafter, f"fixed:1,{bad}:Bad")
    live = live_run(setups[1], target, drafter, [p.tokens for p in PROMPTS], TOKENS, class_names(PROMPTS), seed=1)
    assert live.run.error is not None
    assert "Bad.verify_lengths" in live.run.error
    assert "no more" in live.run.error
    assert "at decode step 3" in live.run.error
    assert all(len(out) <= 4 for out in live.outputs)
    assert live.run.requests["outcome"].to_pylist() == ["unfinished"] * len(PROMPTS)
    assert target.model.config._attn_implementation != "dspark_live"  # as before


def test_greedy_comparison_tells_rounding_from_loss(tmp_path: Path) -> None:
    target = tiny_target()
    drafter = tiny_drafter("dflash", target)
    _, setups = world(tmp_path, target, drafter, "fixed:2")
    plain = greedy_outputs(plain_setup(setups[0]), target, drafter, PROMPTS, 8, 1).outputs
    found = compare_greedy(target, PROMPTS, plain, greedy_outputs(setups[0], target, drafter, PROMPTS, 8, 1).outputs)
    assert found.lossless
    assert found.different == 0
    assert found.tokens == 8 * len(PROMPTS)
    other = [list(text) for text in plain]
    other[2][5] = (other[2][5] + 1) % 64
    found = compare_greedy(target, PROMPTS, plain, other)
    assert (found.different, found.lossless) == (1, False)
    assert found.gap > 0.01


def test_arms_in_words(tmp_path: Path) -> None:
    drafter = tiny_drafter("dflash", tiny_target())
    mine = tmp_path / "mine.py"
    mine.write_text("from dataclasses import dataclass\n@dataclass\nclass Mine:\n    cut: float = 0.5\n"
                    "    lossless = True\n    timing = 'overlapped'\n    def verify_lengths(self, view):\n"
                    "        return view.drafted\n")
    arms = parse_arms(f"no_spec, fixed:3,threshold:0.5:on=survival,{mine}:Mine:0.25,{mine}")
    assert [a.parameters for a in arms] == [{}, {"length": 3}, {"threshold": 0.5, "on": "survival"}, {"cut": 0.25}, {}]
    assert [a.drafts for a in arms] == [False, True, True, True, True]
    for text, words in (
        ("fixd:3", "unknown policy 'fixd'.*did you mean 'fixed'"), ("fixed:3,fixed:3", "twice"), ("", "no arms"),
        ("fixed:length=x", "length"), ("fixed:lenght=1", "did you mean 'length'"), ("clairvoyant", "nobody knows"),
        ("no_spec:3", "no parameters"), ("fixed:1:2", "without a name"), ("./gone.py:Gone", "gone.py"),
    ):
        with pytest.raises(InputError, match=words):
            parse_arms(text)
    with pytest.raises(InputError, match="early_stop needs confidences; this drafter has none"):
        parse_arms("early_stop", drafter)
