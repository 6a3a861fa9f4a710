"""Training a drafter on a feature store: AdamW, warm-up and cosine decay, checkpoints that a killed run goes on from.

Target, embedding and output head are frozen. Batches, schedule and weights follow from the settings and the step
number, so a run that was killed and started again ends with the same bits as one that was not (same machine, same
thread count).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear

from dspark_sim.errors import InputError
from dspark_sim.lab.batches import Batch, make_batch
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.features import FeatureStore
from dspark_sim.lab.losses import LossWeights, position_loss, position_weights

__all__ = ["Progress", "TrainSettings", "batch_loss", "evaluate", "train"]


@dataclass(frozen=True)
class TrainSettings:
    """What decides a training run, beside drafter and store.

    Attributes:
        steps: optimiser steps.
        sequences, anchors: per step: sequences, and blocks anchored in each.
        learning_rate, warmup, weight_decay, clip: AdamW's peak rate, linear warm-up steps, decay, gradient norm.
        seed: of batches.
        precision: ``bfloat16`` (autocast) or ``float32``.
        checkpoint_every: steps between checkpoints.
        validate_every: steps between evaluations on the validation store, if one is given.
    """

    steps: int = 1500
    sequences: int = 8
    anchors: int = 16
    learning_rate: float = 1e-3
    warmup: int = 50
    weight_decay: float = 0.0
    clip: float = 1.0
    seed: int = 0
    precision: str = "bfloat16"
    checkpoint_every: int = 50
    validate_every: int = 250
    weights: LossWeights = field(default_factory=LossWeights)


@dataclass(frozen=True)
class Progress:
    """One logged step.

    Attributes:
        loss: weighted loss per position.
        acceptance: (G,) mean 1 − TV by block position: conditional acceptance along the text.
        tau: 1 + Σ of products of the acceptances, as if positions were independent.
        cross_entropy, confidence: means over positions.
        split: ``train`` (this step's batch) or ``validation``.
        seconds: of training so far, over all starts.
    """

    step: int
    split: str
    loss: float
    acceptance: tuple[float, ...]
    tau: float
    cross_entropy: float
    confidence: float
    seconds: float


def batch_loss(
    drafter: Drafter, batch: Batch, head: Tensor, softcap: float | None, weights: LossWeights, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss of a batch, teacher-forced along the text.

    Args:
        head: (Vd, H) the target's output rows of the draft vocabulary.
        softcap: of the target's logits.

    Returns:
        loss (scalar, differentiable), (A, G) acceptance, (A, G) bool which positions count, (2,) mean cross-entropy and
        confidence loss.
    """
    G = drafter.config.block_size
    device = batch.ids.device
    weight = position_weights(G).to(device)
    counts = torch.arange(G, device=device) < batch.count[:, None]
    rows = drafter.draft_rows[batch.tokens]
    total, kept, sums = torch.zeros((), device=device), [], torch.zeros(2, device=device)
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        context = drafter.context(batch.ids, batch.features)
        state = drafter.begin(context, batch.row, batch.position, batch.tokens[:, 0])
        for k in range(G):
            logits, confidence = drafter.step(state, batch.tokens[:, k])
            with torch.no_grad():
                wide = linear(batch.last[:, k], head).float()
                wide = wide if softcap is None else torch.tanh(wide / softcap) * softcap
                target = (wide - batch.normaliser[:, k, None]).exp_().clamp_(max=1)
            with torch.autocast(device.type, enabled=False):
                part = position_loss(logits.float(), None if confidence is None else confidence.float(), target,
                                     rows[:, k + 1], weight[k] * counts[:, k], weights)
            total = total + part.loss
            kept.append(part.acceptance)
            sums += torch.stack([part.cross_entropy, part.confidence])
    scale = (weight * counts).sum().clamp(min=1)
    return total / scale, torch.stack(kept, 1), counts, sums / counts.sum().clamp(min=1)


def _log(
    step: int, split: str, loss: float, acceptance: Tensor, counts: Tensor, sums: Tensor, seconds: float
) -> Progress:
    mean = (acceptance * counts).sum(0) / counts.sum(0).clamp(min=1)
    chain = (acceptance * counts).cumprod(1).sum(1)
    return Progress(step, split, loss, tuple(mean.tolist()), 1 + float(chain.mean()), float(sums[0]), float(sums[1]),
                    seconds)


def evaluate(
    drafter: Drafter, store: FeatureStore, head: Tensor, softcap: float | None, settings: TrainSettings, *,
    batches: int = 8, step: int = 0, seconds: float = 0.0,
) -> Progress:
    """Mean figures over some fixed batches of a held-out store."""
    columns = store.columns(drafter.config.target_layer_ids)
    losses, kept, counts, sums = [], [], [], []
    with torch.no_grad():
        for number in range(batches):
            batch = make_batch(store, columns, drafter.config.block_size, sequences=settings.sequences,
                               anchors=settings.anchors, seed=987_654_321, step=number, device=head.device)
            loss, a, c, s = batch_loss(drafter, batch, head, softcap, settings.weights, settings.precision)
            losses.append(float(loss))
            kept.append(a)
            counts.append(c)
            sums.append(s)
    return _log(step, "validation", sum(losses) / len(losses), torch.cat(kept), torch.cat(counts),
                torch.stack(sums).mean(0), seconds)


def train(
    drafter: Drafter, store: FeatureStore, settings: TrainSettings, *, softcap: float | None = None,
    head: Tensor | None = None, validation: FeatureStore | None = None, checkpoint: Path | None = None,
    progress: Callable[[Progress], None] = lambda p: None, log_every: int = 10,
) -> list[Progress]:
    """Train in place; returns the log.

    Args:
        head: (Vd, H) output rows that make the target's probabilities; None for the drafter's own frozen head.
        checkpoint: file to save to and to go on from; None for none.

    Raises:
        InputError: the checkpoint belongs to other settings, or is damaged; memory ran out.
    """
    try:
        return _train(drafter, store, settings, softcap, head, validation, checkpoint, progress, log_every)
    except torch.OutOfMemoryError:
        kept = "" if checkpoint is None else f"; what was trained is kept in {checkpoint}"
        raise InputError(f"{drafter.fc.weight.device} ran out of memory{kept}",
                         allowed="fewer --anchors or --sequences, or another --device") from None


def _train(
    drafter: Drafter, store: FeatureStore, settings: TrainSettings, softcap: float | None, head: Tensor | None,
    validation: FeatureStore | None, checkpoint: Path | None, progress: Callable[[Progress], None], log_every: int,
) -> list[Progress]:
    from dspark_sim.lab.train_state import load_state, save_state

    trained = {n: p for n, p in drafter.named_parameters() if p.requires_grad}
    optimiser = torch.optim.AdamW(trained.values(), lr=settings.learning_rate, betas=(0.9, 0.95),
                                  weight_decay=settings.weight_decay, foreach=True)
    own_head = drafter.lm_head.weight.detach() if head is None else head
    cast = torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
    own_head = own_head.to(cast)
    log: list[Progress] = []
    first, before = 0, 0.0
    vocabulary = hashlib.sha256(drafter.draft_ids.cpu().numpy().tobytes()).hexdigest()  # what the rows of a head mean
    data = {"corpus": store.facts["corpus"], "draft_vocabulary": vocabulary}
    if checkpoint is not None and checkpoint.exists():
        first, before, log = load_state(checkpoint, trained, optimiser, settings, drafter.config, data)
    columns = store.columns(drafter.config.target_layer_ids)
    started = time.monotonic()
    device = own_head.device
    for step in range(first, settings.steps):
        rate = settings.learning_rate * _schedule(step, settings)
        for group in optimiser.param_groups:
            group["lr"] = rate
        batch = make_batch(store, columns, drafter.config.block_size, sequences=settings.sequences,
                           anchors=settings.anchors, seed=settings.seed, step=step, device=device)
        loss, kept, counts, sums = batch_loss(drafter, batch, own_head, softcap, settings.weights, settings.precision)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained.values(), settings.clip)
        optimiser.step()
        done, seconds = step + 1, before + time.monotonic() - started
        if done % log_every == 0 or done == settings.steps:
            log.append(_log(done, "train", float(loss.detach()), kept, counts, sums, seconds))
            progress(log[-1])
        if validation is not None and (done % settings.validate_every == 0 or done == settings.steps):
            log.append(evaluate(drafter, validation, own_head, softcap, settings, step=done, seconds=seconds))
            progress(log[-1])
        if checkpoint is not None and (done % settings.checkpoint_every == 0 or done == settings.steps):
            save_state(checkpoint, trained, optimiser, settings, drafter.config, data, done, seconds, log)
    return log


def _schedule(step: int, settings: TrainSettings) -> float:
    """Factor on the learning rate: linear warm-up, then a cosine to a twentieth."""
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    way = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * way))
