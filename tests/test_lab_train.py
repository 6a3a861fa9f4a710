"""Training: the fused loss against a plain one, batches by seed and step, runs that stop and go on, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, softmax

from dspark_sim.errors import InputError
from dspark_sim.lab.batches import make_batch
from dspark_sim.lab.corpus import Document, write_part
from dspark_sim.lab.features import FeatureStore, build_store, draft_vocabulary_of
from dspark_sim.lab.losses import LossWeights, position_loss, position_weights
from dspark_sim.lab.setup import default_layers, fold_scale, new_drafter
from dspark_sim.lab.target import Target
from dspark_sim.lab.train import TrainSettings, evaluate, train
from dspark_sim.lab.warm import fit_ridge, warm_start
from tests.lab_corpus import corpus_of
from tests.lab_models import tiny_target


@pytest.fixture(scope="module")
def target() -> Target:
    return tiny_target("qwen3", tokenizer=True)


@pytest.fixture(scope="module")
def store(target: Target, tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    folder = tmp_path_factory.mktemp("train")
    build_store(target, corpus_of(target, folder / "corpus"), folder / "store", (0, 2, 3))
    return FeatureStore(folder / "store")


# -- losses -------------------------------------------------------------------------------------------------------


def test_the_fused_loss_and_its_gradient_are_those_of_the_plain_formulas() -> None:
    torch.manual_seed(0)
    N, V = 9, 13
    logits = torch.randn(N, V, dtype=torch.float64, requires_grad=True)
    sure = torch.randn(N, dtype=torch.float64, requires_grad=True)
    target = softmax(torch.randn(N, V + 3, dtype=torch.float64), -1)[:, :V]  # some mass outside the draft vocabulary
    row = torch.tensor([0, 5, 12, 13, 13, 7, 2, 3, 4])  # 13: outside
    weight = torch.tensor([1.0, 0.5, 0.0, 1.0, 0.3, 1, 1, 1, 0], dtype=torch.float64)
    w = LossWeights(0.1, 0.9, 1.0)
    part = position_loss(logits, sure, target, row, weight, w)
    part.loss.backward()
    got = logits.grad, sure.grad
    logits.grad = sure.grad = None

    p = softmax(logits, -1)
    tv = 0.5 * ((p - target).abs().sum(-1) + 1 - target.sum(-1))
    inside = row < V
    ce = cross_entropy(logits, row.clamp(max=V - 1), reduction="none") * inside
    bce = torch.nn.functional.binary_cross_entropy_with_logits(sure, (1 - tv).detach(), reduction="none")
    plain = ((0.1 * ce + 0.9 * tv + bce) * weight).sum()
    plain.backward()
    assert part.loss.item() == pytest.approx(plain.item(), abs=1e-12)
    assert torch.allclose(part.acceptance, (1 - tv).detach())
    assert torch.allclose(got[0], logits.grad, atol=1e-12)  # type: ignore[arg-type]
    assert torch.allclose(got[1], sure.grad, atol=1e-12)  # type: ignore[arg-type]


def test_acceptance_on_paper() -> None:
    """p = (.5, .5), q = (.2, .3) and half of q outside the draft vocabulary: Σ min(p, q) = 0.5."""
    part = position_loss(torch.zeros(1, 2), None, torch.tensor([[0.2, 0.3]]), torch.tensor([0]), torch.ones(1),
                         LossWeights())
    assert part.acceptance.item() == pytest.approx(0.5)


def test_weights_fall_as_the_paper_has_them() -> None:
    assert position_weights(7).tolist() == pytest.approx([np.exp(-k / 7) for k in range(7)], rel=1e-6)


# -- features and batches -----------------------------------------------------------------------------------------


def test_a_store_holds_what_the_target_says(target: Target, store: FeatureStore) -> None:
    s = store.read(3)
    plain = target.forward(s.ids[None], layer_ids=(0, 2, 3))
    scaled = plain.features[0] / store.scale.repeat_interleave(target.hidden_size)
    assert torch.allclose(s.features.float(), scaled, atol=0.02, rtol=0.01)  # bfloat16 on disk
    z = target.logits(plain.last[0]).logsumexp(-1)
    assert torch.allclose(s.normaliser[s.prompt - 1:], z[s.prompt - 1:], atol=1e-4)  # all 64 tokens are "likeliest"
    assert store.read(0).features.float().view(-1, 3, 32).square().mean((0, 2)).sqrt().tolist() == pytest.approx(
        [1, 1, 1], rel=0.5)


def test_a_batch_is_what_its_anchors_see(store: FeatureStore) -> None:
    columns = store.columns((0, 2))
    batch = make_batch(store, columns, 4, sequences=3, anchors=50, seed=1, step=2)
    again = make_batch(store, columns, 4, sequences=3, anchors=50, seed=1, step=2)
    other = make_batch(store, columns, 4, sequences=3, anchors=50, seed=1, step=3)
    assert all(torch.equal(a, b) for a, b in zip(vars(batch).values(), vars(again).values(), strict=True))
    assert not torch.equal(batch.ids[:, :10], other.ids[:, :10])
    for a in range(len(batch.row)):
        ids, at = batch.ids[batch.row[a]], int(batch.position[a])
        n = int(batch.count[a])
        assert batch.tokens[a, : n + 1].tolist() == ids[at: at + n + 1].tolist()
        assert at >= 5, "an anchor is a response token"
        assert n >= 1
    assert (batch.count < 4).any(), "blocks that the text's end cuts are there, and counted"


def test_every_sequence_comes_once_an_epoch(store: FeatureStore) -> None:
    columns = store.columns((0,))
    seen = [tuple(make_batch(store, columns, 1, sequences=1, anchors=1, seed=0, step=i).ids[0, :12].tolist())
            for i in range(len(store))]
    assert len(set(seen)) == len(store)


def test_layers_and_vocabulary(store: FeatureStore) -> None:
    assert default_layers(18) == (1, 5, 9, 13, 17)
    assert default_layers(36) == (1, 10, 18, 26, 35)
    assert default_layers(4) == (0, 1, 2, 3)
    ids = draft_vocabulary_of(store, 10)
    assert len(ids) == 10
    assert (ids.diff() > 0).all()
    with pytest.raises(InputError, match="--draft-vocabulary: got 65; allowed: up to 64"):
        draft_vocabulary_of(store, 65)
    with pytest.raises(InputError, match="layers \\[1\\] are not in the store"):
        store.columns((1, 2))


def test_a_store_of_other_layers_is_refused(target: Target, store: FeatureStore) -> None:
    with pytest.raises(InputError, match="layer_ids"):
        build_store(target, store.folder.parent / "corpus", store.folder, (0, 1))


def test_a_damaged_part_is_named(target: Target, tmp_path: Path) -> None:
    corpus = corpus_of(target, tmp_path / "c")
    build_store(target, corpus, tmp_path / "s", (0, 3))
    part = tmp_path / "s" / "part-00001.safetensors"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(InputError, match="part-00001"):
        FeatureStore(tmp_path / "s")
    part.unlink()
    build_store(target, corpus, tmp_path / "s", (0, 3))
    assert len(FeatureStore(tmp_path / "s")) == 12


def test_responses_without_an_anchor_are_left_out(target: Target, tmp_path: Path) -> None:
    corpus = corpus_of(target, tmp_path / "c", documents=2, parts=1)
    sizes = ((5, 1), (1100, 9))  # one token; a prompt that fills all that a sequence keeps
    write_part(corpus, 1, [Document(9, "math", "train", np.full(p, 7), np.full(r, 8), False) for p, r in sizes])
    build_store(target, corpus, tmp_path / "s", (0, 3))
    assert len(FeatureStore(tmp_path / "s")) == 2
    (tmp_path / "s" / "part-00000.safetensors").unlink()
    with pytest.raises(InputError, match="no response of two tokens or more"):
        FeatureStore(tmp_path / "s")


# -- training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dspark", "dflash", "eagle3", "mtp"])
def test_training_learns(kind: str, target: Target, store: FeatureStore) -> None:
    ids = draft_vocabulary_of(store, 40)
    drafter = new_drafter(target, kind, block_size=3, rank=8, draft_ids=ids, layer_ids=(0, 2, 3), seed=1)  # type: ignore[arg-type]
    frozen = drafter.lm_head.weight.clone(), drafter.embed_tokens.weight.clone()
    settings = TrainSettings(steps=60, sequences=6, anchors=8, warmup=5, precision="float32", learning_rate=1e-2)
    log = train(drafter, store, settings, log_every=1)
    first, last = np.mean([p.tau for p in log[:5]]), np.mean([p.tau for p in log[-5:]])
    assert last > first + 0.05
    assert np.mean([p.loss for p in log[-5:]]) < np.mean([p.loss for p in log[:5]])
    assert torch.equal(frozen[0], drafter.lm_head.weight)
    assert torch.equal(frozen[1], drafter.embed_tokens.weight)


def test_folding_makes_a_drafter_read_raw_features(target: Target, store: FeatureStore) -> None:
    drafter = new_drafter(target, "dspark", block_size=3, rank=4, layer_ids=(0, 2, 3))
    s = store.read(0)
    raw = target.forward(s.ids[None], layer_ids=(0, 2, 3)).features
    scaled = raw / store.scale.repeat_interleave(target.hidden_size)
    at, row = torch.tensor([7]), torch.tensor([0])

    def first(features: torch.Tensor) -> torch.Tensor:
        state = drafter.begin(drafter.context(s.ids[None], features[:, :-1]), row, at, s.ids[at])
        return drafter.step(state, s.ids[at])[0]

    with torch.no_grad():
        before = first(scaled)
        fold_scale(drafter, store)
        assert torch.allclose(first(raw), before, atol=1e-4)


SETTINGS = TrainSettings(steps=12, sequences=4, anchors=4, warmup=2, precision="float32", checkpoint_every=1)


def test_a_stopped_run_ends_with_the_same_bits(target: Target, store: FeatureStore, tmp_path: Path) -> None:
    whole = new_drafter(target, "dspark", block_size=3, rank=4, layer_ids=(0, 2, 3))
    log = train(whole, store, SETTINGS, log_every=1)
    halves = new_drafter(target, "dspark", block_size=3, rank=4, layer_ids=(0, 2, 3))

    class Stop(Exception):
        pass

    def stop(p: object) -> None:
        if getattr(p, "step", 0) == 7:
            raise Stop

    with pytest.raises(Stop):
        train(halves, store, SETTINGS, checkpoint=tmp_path / "t.safetensors", progress=stop, log_every=1)
    fresh = new_drafter(target, "dspark", block_size=3, rank=4, layer_ids=(0, 2, 3), seed=9)
    rest = train(fresh, store, SETTINGS, checkpoint=tmp_path / "t.safetensors", log_every=1)
    for (name, a), b in zip(whole.named_parameters(), fresh.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert [p.loss for p in rest] == [p.loss for p in log]


def test_other_settings_are_refused(target: Target, store: FeatureStore, tmp_path: Path) -> None:
    state = tmp_path / "t.safetensors"
    drafter = new_drafter(target, "dflash", block_size=3, layer_ids=(0, 2, 3))
    train(drafter, store, TrainSettings(steps=2, sequences=2, anchors=2, precision="float32"), checkpoint=state)
    with pytest.raises(InputError, match=r"settings\.learning_rate: this checkpoint was made with 0\.001, now 0\.5"):
        train(drafter, store, TrainSettings(steps=2, sequences=2, anchors=2, precision="float32", learning_rate=0.5),
              checkpoint=state)
    other = new_drafter(target, "dflash", block_size=3, layer_ids=(0, 2, 3))
    other.draft_ids = other.draft_ids.flip(0)  # as another corpus would choose it: rows mean other tokens
    with pytest.raises(InputError, match=r"data\.draft_vocabulary: this checkpoint was made with"):
        train(other, store, TrainSettings(steps=2, sequences=2, anchors=2, precision="float32"), checkpoint=state)
    state.write_bytes(state.read_bytes()[:50])
    with pytest.raises(InputError, match="damaged training checkpoint"):
        train(drafter, store, TrainSettings(steps=2), checkpoint=state)


# -- the warm start -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(target: Target, tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    """Text that the target wrote itself, so that there is something to predict."""
    from dspark_sim.lab.sample import respond

    folder = tmp_path_factory.mktemp("written")
    corpus_of(target, folder / "corpus", documents=2, parts=1)
    prompts = [[4 + i % 50, 5, 6 + i % 7] for i in range(48)]
    answers = respond(target, prompts, 24, 1.0, torch.Generator().manual_seed(0))
    write_part(folder / "corpus", 0, [
        Document(i, "math", "train", np.array(p), np.array(a), e)
        for i, (p, (a, e)) in enumerate(zip(prompts, answers, strict=True))
    ])
    build_store(target, folder / "corpus", folder / "store", (0, 2, 3))
    return FeatureStore(folder / "store")


@pytest.mark.parametrize("kind", ["dspark", "dflash", "eagle3", "mtp"])
def test_a_warm_start_predicts_the_first_token_better(kind: str, target: Target, written: FeatureStore) -> None:
    def first(warm: bool) -> float:
        drafter = new_drafter(target, kind, block_size=2, rank=16, layer_ids=(0, 2, 3))  # type: ignore[arg-type]
        if warm:
            warm_start(drafter, fit_ridge(drafter, written, penalty=1.0))
        settings = TrainSettings(sequences=8, anchors=16, precision="float32")
        return evaluate(drafter, written, drafter.lm_head.weight.detach(), target.softcap, settings).acceptance[0]

    assert first(True) > first(False) + 0.05


def test_the_regression_is_least_squares(target: Target, written: FeatureStore) -> None:
    """Residuals are orthogonal to every regressor when nothing is penalised."""
    drafter = new_drafter(target, "eagle3", block_size=2, layer_ids=(0, 2, 3))
    ridge = fit_ridge(drafter, written, penalty=1e-3)
    columns = written.columns((0, 2, 3))
    rows, states = [], []
    for index in range(len(written)):
        s, (first_one, past) = written.read(index), written.anchors(index)
        at = torch.arange(max(first_one, 1), past)
        unit = drafter.embed(s.ids[at])
        unit = unit / unit.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-9)  # <pad> is all zeros
        rows.append(torch.cat([s.features[at - 1][:, columns].float(), unit.detach(), torch.ones(len(at), 1)], 1))
        states.append(s.last[at].float())
    x, y = torch.cat(rows), torch.cat(states)
    predicted = x[:, :96] @ ridge.f + x[:, 96:128] @ ridge.e + ridge.bias
    assert (x.T @ (y - predicted)).abs().max() < 0.05 * (x.T @ y).abs().max()
    assert float((y - predicted).square().mean()) < 0.8 * float((y - y.mean(0)).square().mean())
