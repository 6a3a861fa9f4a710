"""Collection against a slow and obvious second one, drafters whose outcome is known, and all that may go wrong."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dspark_sim.errors import InputError, TraceError
from dspark_sim.lab.collect import _keys, collect
from dspark_sim.lab.corpus import Document
from dspark_sim.lab.coupling import acceptance, couple, pick, residual
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.sample import respond
from dspark_sim.lab.target import Target
from dspark_sim.trace import AcceptanceTrace
from tests.lab_models import tiny_drafter, tiny_target

torch.set_num_threads(1)
PROMPTS = [[2, 5, 7, 9], [2, 8], [2, 30, 11, 12, 13]]


def documents(target: Target, temperature: float, tokens: int = 13) -> list[Document]:
    answers = respond(target, PROMPTS, tokens, temperature, torch.Generator().manual_seed(1))
    return [Document(i, "math" if i % 2 else "chat", "held-out", np.array(p), np.array(r), ended)
            for i, (p, (r, ended)) in enumerate(zip(PROMPTS, answers, strict=True))]


def four(target: Target) -> dict[str, Drafter]:
    return {
        "dspark": tiny_drafter("dspark", target, draft_vocab=40), "dflash": tiny_drafter("dflash", target),
        "eagle3": tiny_drafter("eagle3", target, draft_vocab=40, seed=3), "mtp": tiny_drafter("mtp", target),
    }


# -- a second collection: row by row, everything recomputed from the text before it
@torch.inference_mode()
def slow_row(
    target: Target, drafter: Drafter, ids: list[int], anchor: int, T: float, accept: np.ndarray, place: np.ndarray
) -> tuple[int, list[float], list[float]]:
    """Accepted, confidences and probabilities of the block whose anchor is ``ids[anchor]``; p from prefixes alone."""
    text = torch.tensor(ids)
    seen = target.forward(text[None, :anchor], layer_ids=drafter.config.target_layer_ids)
    context = drafter.context(text[None, :anchor + 1], seen.features)
    state = drafter.begin(context, torch.tensor([0]), torch.tensor([anchor]), text[anchor:anchor + 1])
    on, kept, sure, chances, previous = True, 0, [], [], ids[anchor]
    names = drafter.draft_ids.tolist()
    for k in range(drafter.config.block_size):
        y = ids[anchor + 1 + k]
        logits, confidence = drafter.step(state, torch.tensor([previous]))
        sure.append(float(torch.sigmoid(confidence)[0]) if confidence is not None else float("nan"))
        p = target.logits(target.forward(text[None, :anchor + 1 + k]).last[0, -1]).double().numpy()
        q = np.zeros(target.vocab_size)
        q[names] = logits[0].double().numpy()
        if T == 0:
            own = int(drafter.draft_ids[logits[0].argmax()])
            on = on and own == int(p.argmax())
            q[names] = np.exp(q[names] - q[names].max())
            q /= q.sum()
        else:
            q[names] = np.exp((q[names] - q[names].max()) / T)
            q /= q.sum()
            p = np.exp((p - p.max()) / T)
            p /= p.sum()
            if on and accept[k] * p[y] < q[y]:
                own = y
            else:
                weight = np.maximum(q - p, 0) if on else q
                steps = np.cumsum(weight)
                own, on = int(np.searchsorted(steps, place[k] * steps[-1], side="right")), False
        kept += on
        chances.append(float(q[own]))
        previous = own
    return kept, sure, chances


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_all_rows_at_once_are_the_rows_one_by_one(family: str, temperature: float) -> None:
    target = tiny_target(family)
    texts, drafters = documents(target, temperature), four(tiny_target(family))
    traces = collect(target, drafters, texts, temperature=temperature, seed=3)
    keys, checked = _keys(texts), 0
    for i, d in enumerate(texts):
        uniform = np.random.default_rng(np.random.SeedSequence([3, *keys[i]], spawn_key=(79, 1))).random(
            (2, len(d.response), 64))
        ids = [*d.prompt.tolist(), *d.response.tolist()]
        for name, drafter in drafters.items():
            trace, start = traces[name], int(traces[name].document_start[i])
            for t in range(0, len(d.response) - drafter.config.block_size + 1, 3):  # blocks within the response
                kept, sure, chances = slow_row(target, drafter, ids, len(d.prompt) - 1 + t, temperature,
                                               uniform[0, t], uniform[1, t])
                assert trace.accepted[start + t] == kept, (name, i, t)
                if trace.confidence is not None:
                    assert np.allclose(trace.confidence[start + t], sure, atol=1e-5)
                assert trace.draft_probability is not None
                assert np.allclose(trace.draft_probability[start + t], chances, atol=1e-5)
                checked += 1
    assert checked > 30


class Knows(torch.nn.Module):
    """Stands for a drafter that knows what comes: p itself (``own``), or anything but the text."""

    def __init__(self, like: Drafter, target: Target, text: list[int], own: bool) -> None:
        super().__init__()
        self.config, self.fc, self.draft_ids, self.draft_rows = like.config, like.fc, like.draft_ids, like.draft_rows
        self.target, self.text, self.own, self.has_confidence = target, torch.tensor(text), own, False

    def context(self, ids: torch.Tensor, features: torch.Tensor) -> None:
        self.law = self.target.logits(self.target.forward(self.text[None]).last[0])

    def begin(
        self, context: None, row: torch.Tensor, position: torch.Tensor, anchor: torch.Tensor
    ) -> list[torch.Tensor]:
        assert torch.equal(anchor, self.text[position])
        return [position]

    def step(self, state: list[torch.Tensor], previous: torch.Tensor) -> tuple[torch.Tensor, None]:
        at = state[0].clamp(max=len(self.text) - 2)
        state[0] = state[0] + 1
        logits = self.law[at].clone()
        if not self.own:
            logits[torch.arange(len(at)), self.text[at + 1]] = -torch.inf
        return logits, None


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_a_drafter_that_is_the_target_is_always_right_and_one_that_avoids_the_text_never(temperature: float) -> None:
    target = tiny_target()
    [d] = documents(target, temperature)[:1]
    ids = [*d.prompt.tolist(), *d.response.tolist()]
    like = tiny_drafter("dflash", target, block_size=3)
    for own in (True, False):
        trace = collect(target, {"it": Knows(like, target, ids, own)}, [d], temperature=temperature)["it"]  # type: ignore[dict-item]
        inside = trace.accepted[:len(d.response) - 2]
        assert (inside == (3 if own else 0)).all()


def test_order_and_company_change_nothing_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    target = tiny_target("gemma3")
    texts, drafters = documents(target, 1.0) * 2, four(target)
    whole = collect(target, drafters, texts, seed=5, bundle=4)
    alone = collect(target, {"mtp": drafters["mtp"]}, texts, seed=5, bundle=1)["mtp"]
    assert same(whole["mtp"], alone)  # also though its tail is shorter than the others'
    backwards = collect(target, drafters, texts[3:][::-1], seed=5)
    a, b = backwards["dspark"], whole["dspark"]
    assert np.array_equal(a.accepted[a.document_start[2]:], b.accepted[:b.document_start[1]])
    assert not same(whole["dspark"], collect(target, drafters, texts, seed=6)["dspark"])
    once, twice = np.split(b.accepted, [b.document_start[3]])
    assert not np.array_equal(once, twice)  # equal texts, new dice

    def dies(done: int, parts: int, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(target, drafters, texts, seed=5, bundle=2, folder=tmp_path, progress=dies)
    (tmp_path / ".part-00002.parquet.xyz").write_bytes(b"torn")  # what a kill leaves behind
    assert collect(target, drafters, texts, seed=5, bundle=2, folder=tmp_path, shard=(0, 2)) == {}
    assert sorted(f.name[5:10] for f in tmp_path.glob("part-*")) == ["00000", "00002"]
    again: list[tuple[int, int, int]] = []
    resumed = collect(target, drafters, texts, seed=5, bundle=2, folder=tmp_path, progress=lambda *a: again.append(a))
    assert [a[:2] for a in again] == [(3, 3)]
    assert all(same(resumed[n], whole[n]) for n in drafters)
    digest = hashlib.sha256((tmp_path / "part-00000.parquet").read_bytes()).hexdigest()
    collect(target, drafters, texts, seed=5, bundle=2, folder=tmp_path)
    assert hashlib.sha256((tmp_path / "part-00000.parquet").read_bytes()).hexdigest() == digest

    settings = {"seed": 5, "bundle": 2, "folder": tmp_path}
    for change, words in (({"seed": 6}, "seed is 6, was 5"), ({"temperature": 0.5}, "temperature is 0.5")):
        with pytest.raises(InputError, match=words):
            collect(target, drafters, texts, **{**settings, **change})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="drafters is different for mtp"):
        collect(target, drafters | {"mtp": tiny_drafter("mtp", target, seed=9)}, texts, **settings)  # type: ignore[arg-type]
    (tmp_path / "part-00001.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(TraceError, match=r"part-00001.parquet: damaged part .* delete it"):
        collect(target, drafters, texts, seed=5, bundle=2, folder=tmp_path)


def same(a: AcceptanceTrace, b: AcceptanceTrace) -> bool:
    pairs = [(a.accepted, b.accepted), (a.draft_probability, b.draft_probability), (a.confidence, b.confidence)]
    return a.aligned_with(b) and all(np.array_equal(x, y) if x is not None else y is None for x, y in pairs)  # type: ignore[arg-type]


def test_what_a_trace_says_of_itself(tmp_path: Path) -> None:
    target = tiny_target()
    texts = documents(target, 1.0)
    traces = collect(target, four(target), texts, provenance={"corpus": "a test"})
    trace = traces["dspark"]
    assert (trace.kind, trace.target, trace.drafter, trace.temperature) == ("measured", "tiny-qwen3", "dspark", 1.0)
    assert trace.domain == ("chat", "math", "chat")
    assert np.diff(trace.document_start).tolist() == [len(d.response) for d in texts]
    assert traces["mtp"].confidence is None
    assert traces["mtp"].block_size == 1
    said = trace.provenance
    assert {"device", "software", "hours", "documents", "text_fit", "drafter", "date", "dtype", "corpus"} <= set(said)
    assert 0.2 < said["draft_vocabulary_mass"] < 1
    trace.save(tmp_path / "dspark.parquet")


def test_a_text_that_is_not_the_targets_shows() -> None:
    target, other = tiny_target(), tiny_target(seed=4)
    drafters = {"mtp": tiny_drafter("mtp", target)}
    fit = [float(collect(target, drafters, documents(who, T, 60), temperature=1.0)["mtp"].provenance["text_fit"]
                 .split()[3]) for who, T in ((target, 1.0), (target, 0.3), (other, 1.0))]
    assert abs(fit[0]) < 0.3 < -fit[1]
    assert fit[2] > 1
    greedy = collect(target, drafters, documents(other, 0.0), temperature=0.0)["mtp"].provenance["text_fit"]
    assert not greedy.startswith("0 of")


def test_mistakes_are_told() -> None:
    target = tiny_target()
    drafters, texts = four(target), documents(target, 1.0)
    small = replace(texts[0], prompt=np.array([2]))
    foreign = replace(texts[0], response=np.array([5, 64]))
    long = replace(texts[0], response=np.full(510, 5))
    cases = (
        ({}, texts, 1.0, "no drafters"), (drafters, [], 1.0, "no documents"), (drafters, texts, -1.0, "temperature -1"),
        (drafters, texts, float("nan"), "temperature nan"),
        (drafters, [small], 1.0, "document 0 .* has 1 prompt and .* at least 2 and 1"),
        (drafters, [foreign], 1.0, "holds token 64; allowed: 0 to 63"),
        (drafters, [long], 1.0, "has 514 tokens; allowed: 509"),
        ({"a/b": drafters["mtp"]}, texts, 1.0, "drafter name 'a/b'"),
        ({"x": tiny_drafter("mtp", tiny_target(vocab=32))}, texts, 1.0, "drafter x: vocab_size 32; allowed: 64"),
        ({"x": tiny_drafter("mtp", tiny_target(hidden=16))}, texts, 1.0, "drafter x: hidden_size 16; allowed: 32"),
    )
    for some, which, temperature, words in cases:
        with pytest.raises(InputError, match=words):
            collect(target, some, which, temperature=temperature)
    assert collect(target, {"dflash": drafters["dflash"]}, [small])["dflash"].positions == len(small.response)


def test_the_coupling_alone() -> None:
    q, p = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.6, 0.0, 0.2])
    assert torch.allclose(acceptance(q, p), torch.tensor([1.0, 0.5, 1.0, 0.0]))
    assert torch.allclose(residual(q[None], p[None]), torch.tensor([[0.3, 0.0, 0.2, 0.0]]))
    assert torch.equal(residual(q[None], q[None]), q[None])  # nothing left: rounding only
    ends = torch.tensor([0.0, 1 - 1e-12, 0.4999999, 0.5])
    assert pick(torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0]]).expand(4, 5), ends).tolist() == [1, 3, 1, 3]
    token, kept = couple(  # on the path and kept, on it and rejected, off it, and a text outside the draft vocabulary
        q.expand(4, 4), torch.tensor([1, 1, 1, 4]), torch.tensor([0.6, 0.6, 0.6, 0.1]), lambda at: p.expand(len(at), 4),
        torch.tensor([True, True, False, True]), torch.tensor([0.49, 0.51, 0.0, 0.0]).double(),
        torch.tensor([0.9, 0.59, 0.6, 0.61]).double())
    assert kept.tolist() == [True, False, False, False]
    assert token.tolist() == [1, 0, 1, 2]
