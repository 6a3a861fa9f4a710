"""One document as the target sees it: features, the probability of every token of the text, and a few tokens more.

Shapes: S tokens of prompt and response, R of the response, E sampled past its end, H hidden size, V vocabulary, Vd
draft vocabulary. Response token j is y_j; j = R … R + E − 1 are past the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark_sim.lab.corpus import Document
from dspark_sim.lab.coupling import pick
from dspark_sim.lab.target import Target, TargetOutput

__all__ = ["Reading", "Surprise", "read"]

ELEMENTS = 1 << 24  # logits held at once; a constant, so that chunks and hence bits do not depend on the machine


@dataclass(frozen=True)
class Surprise:
    """Whether the text is what the target would write, over n tokens.

    Attributes:
        tokens: n.
        excess: sum of −log p(y) minus the entropy of p: about 0 for a text that was drawn from p.
        square: sum of its squares. Greedy: both are 0.
        foreign: tokens that are not the target's arg max (counted under greedy decoding only).
    """

    tokens: int
    excess: float
    square: float
    foreign: int


@dataclass(frozen=True)
class Reading:
    """The target's pass over one document.

    Attributes:
        ids: (S + E,) token ids.
        prompt: how many of them are the prompt.
        rows: R.
        features: (S, F·H) raw outputs of the layers asked for.
        hidden: (R + E, H): what the target's head reads to predict y_j.
        normaliser: (R + E,) log of the summed exponentials over all V tokens at this temperature; None if greedy.
        probability: (R + E,) p(y_j); 1 if greedy.
        surprise: of the response.
    """

    target: Target
    temperature: float
    ids: Tensor
    prompt: int
    rows: int
    features: Tensor
    hidden: Tensor
    normaliser: Tensor | None
    probability: Tensor
    surprise: Surprise

    def probabilities(self, at: Tensor, draft_ids: Tensor | None) -> Tensor:
        """p on the draft vocabulary (n, Vd) (None: all tokens) where y_j is predicted, j = ``at`` (n,)."""
        assert self.normaliser is not None
        logits = self.target.logits(self.hidden[at], draft_ids)
        return (logits / self.temperature - self.normaliser[at][:, None]).exp()


@torch.inference_mode()
def read(
    target: Target, document: Document, layer_ids: tuple[int, ...], temperature: float, tail: int,
    rng: np.random.Generator,
) -> Reading:
    """Teacher-forced pass over prompt and response; ``tail`` (E) more tokens are sampled past the end.

    A server verifies past a stop token as well, and throws away what it must not show; so does this.
    """
    prompt, R = len(document.prompt), len(document.response)
    ids = torch.from_numpy(np.concatenate([document.prompt, document.response])).to(target.device)
    out = target.forward(ids[None], layer_ids=layer_ids, keep=tail > 0)
    hidden = [out.last[0, prompt - 1:prompt + R - (0 if tail else 1)]]
    more = _sampled(target, out, temperature, tail, rng, hidden)
    text = torch.cat([ids[prompt:], more])
    states = torch.cat(hidden)
    normaliser, probability, surprise = _weigh(target, states, text, R, temperature)
    return Reading(target, temperature, torch.cat([ids, more]), prompt, R, out.features[0], states, normaliser,
                   probability, surprise)


def _sampled(
    target: Target, out: TargetOutput, temperature: float, tail: int, rng: np.random.Generator, hidden: list[Tensor]
) -> Tensor:
    """(E,) tokens past the end; appends what the head read for all but the first of them to ``hidden``."""
    tokens = torch.empty(tail, dtype=torch.long, device=target.device)
    points = torch.from_numpy(rng.random(64)).to(target.device)  # as many for every E, so that longer tails agree
    for j in range(tail):
        logits = target.logits(out.last[0, -1:])
        if temperature == 0:
            tokens[j] = logits.argmax()
        else:
            tokens[j] = pick(torch.softmax(logits / temperature, dim=-1), points[j:j + 1])[0]
        if j + 1 < tail:
            out = target.forward(tokens[j][None, None], cache=out.cache)
            hidden.append(out.last[0])
    return tokens


def _weigh(
    target: Target, hidden: Tensor, text: Tensor, R: int, temperature: float
) -> tuple[Tensor | None, Tensor, Surprise]:
    """Normalisers and p(y_j) over the whole vocabulary, chunk by chunk."""
    chunk = max(1, ELEMENTS // target.vocab_size)
    parts = list(zip(torch.split(hidden, chunk), torch.split(text, chunk), strict=True))
    if temperature == 0:
        best = torch.cat([target.logits(h).argmax(dim=-1) for h, _ in parts])
        foreign = int((best != text)[:R].sum())
        return None, torch.ones(len(text), device=text.device), Surprise(R, 0.0, 0.0, foreign)
    normalisers, surprises, excess = [], [], []
    for h, y in parts:
        z = target.logits(h).div_(temperature)
        top = z.amax(dim=-1, keepdim=True)
        weight = (z - top).exp_()
        total = weight.sum(dim=-1)
        normaliser = top[:, 0] + total.log()
        surprise = normaliser - z.gather(1, y[:, None])[:, 0]
        entropy = normaliser - weight.mul_(z.clamp_(min=-1e30)).sum(dim=-1) / total
        normalisers.append(normaliser)
        surprises.append(surprise)
        excess.append(surprise - entropy)
    over = torch.cat(excess)[:R].double()
    found = Surprise(R, float(over.sum()), float(over.square().sum()), 0)
    return torch.cat(normalisers), torch.cat(surprises).neg_().exp_(), found
