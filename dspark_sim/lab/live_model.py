"""Target and drafter with the requests in hand: prefill, draft, verify, keep; no policy, no clock.

A request's text is: ``known`` tokens that target and drafter have read, then the anchor, which the next pass reads.
Rows of both stores are dense: a request that leaves gives its row to the last one.

Shapes: R requests, G block size, B tokens of a pass, C rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark_sim.lab.drafters import Context, Drafter
from dspark_sim.lab.live_cache import FlatPass, RowCache
from dspark_sim.lab.live_sampling import Block, Dice, Verdict, draw_draft, judge, pick_wide
from dspark_sim.lab.target import Target
from dspark_sim.policy import IntArray

__all__ = ["LiveModel", "Passed"]


@dataclass(frozen=True)
class Passed:
    """What a verification pass leaves for :meth:`LiveModel.keep`: (B, F·H) features, begin (R,) of each request."""

    features: Tensor
    begin: IntArray
    ids: Tensor


class LiveModel:
    """Everything on the device.

    Args:
        target, drafter: the models; no drafter: plain decoding.
        rows: C, requests at once.
        length: most tokens of a request, prompt and output.
        temperature: of both; 0 is greedy.
        dice: random numbers; may be exchanged between runs.

    Attributes:
        known: (C,) tokens that have been read, by row.
        anchor: (C,) the next token, by row.
        keys: per row in use, which stream of ``dice`` it draws from.
    """

    def __init__(
        self, target: Target, drafter: Drafter | None, rows: int, length: int, temperature: float, dice: Dice
    ) -> None:
        self.target, self.drafter, self.temperature, self.dice = target, drafter, temperature, dice
        self.G = 0 if drafter is None else drafter.config.block_size
        self.cache = RowCache(target, rows, length + self.G + 1)
        self.layers = () if drafter is None else drafter.config.target_layer_ids
        self.known = np.zeros(rows, dtype=np.int64)
        self.anchor = np.zeros(rows, dtype=np.int64)
        self.keys: list[tuple[int, ...]] = []
        self._context: Context | None = None
        self._dice: Tensor | None = None

    @property
    def used(self) -> int:
        """Rows in use."""
        return len(self.keys)

    @torch.inference_mode()
    def admit(self, prompt: Sequence[int], key: tuple[int, ...]) -> tuple[int, int]:
        """Read a prompt into the next row; returns (row, the first output token)."""
        row, device, P = self.used, self.target.device, len(prompt)
        ids = torch.tensor(list(prompt), device=device)
        now = FlatPass(torch.full((P,), row, device=device), torch.arange(P, device=device), row, 1, [P])
        features, last = self.cache.forward(ids, now, self.layers)
        logits = self.target.logits(last[-1:])
        u = self.dice.first(key)
        if self.temperature == 0:
            token = int(logits.argmax())
        else:
            law = torch.softmax(logits / self.temperature, dim=-1)
            token = int(pick_wide(law, torch.tensor([u], dtype=torch.float64, device=device)))
        self.keys.append(key)
        self.known[row], self.anchor[row] = P, token
        if self.drafter is not None:
            more = self.drafter.context(torch.cat([ids, ids.new_tensor([token])])[None], self._cast(features)[None])
            self._store(more, torch.tensor([row], device=device), torch.tensor([0], device=device))
        return row, token

    @torch.inference_mode()
    def leave(self, row: int) -> int:
        """Forget a row; the last one moves there. Returns the row that moved (``row`` itself: none)."""
        last = self.used - 1
        if row != last:
            self.cache.move(last, row)
            self.known[row], self.anchor[row], self.keys[row] = self.known[last], self.anchor[last], self.keys[last]
            if self._context is not None:
                for keys, values in self._context.layers:
                    keys[row], values[row] = keys[last], values[last]
                self._context.fused[row] = self._context.fused[last]
        self.keys.pop()
        return last

    # -- a step ------------------------------------------------------------------------------------------------
    def roll(self, place: Sequence[int]) -> None:
        """Draw this step's random numbers for the requests in rows ``place`` (R,); call it first."""
        if self.temperature:
            self._dice = self.dice.roll([self.keys[p] for p in place], self.target.device)

    @torch.inference_mode()
    def draft(self, place: Sequence[int], lengths: IntArray) -> Block:
        """Draft for the requests in rows ``place`` (R,), ``lengths`` (R,) tokens each.

        Rows of length 0 do not begin; the others go on together to the longest of them.
        """
        assert self.drafter is not None
        device, R, G = self.target.device, len(place), self.G
        tokens = torch.zeros(R, G, dtype=torch.long, device=device)
        sure = torch.zeros(R, G, device=device) if self.drafter.has_confidence else None
        law = None if not self.temperature else torch.zeros(R, G, self.drafter.config.outputs, device=device)
        chance = None if law is None else torch.zeros(R, G, device=device)
        which = np.flatnonzero(lengths)
        if which.size:
            assert self._context is not None
            rows = np.asarray(place)[which]
            known, anchor = (torch.from_numpy(x[rows]).to(device) for x in (self.known, self.anchor))
            at, row, seen = torch.from_numpy(which).to(device), torch.from_numpy(rows).to(device), int(known.max())
            whole = self._context
            short = Context([(k[:, :seen], v[:, :seen]) for k, v in whole.layers], whole.fused[:, :seen])
            state, previous = self.drafter.begin(short, row, known, anchor, known), anchor
            for k in range(int(lengths.max())):
                logits, confidence = self.drafter.step(state, previous)
                if sure is not None and confidence is not None:
                    sure[at, k] = torch.sigmoid(confidence.float())
                drawn, q = draw_draft(logits, self.temperature,
                                      known if self._dice is None else self._dice[at, k])
                if q is not None:
                    assert law is not None
                    assert chance is not None
                    law[at, k], chance[at, k] = q, q.gather(1, drawn[:, None])[:, 0]
                previous = self.drafter.draft_ids[drawn]
                tokens[at, k] = previous
        return Block(tokens, law, sure, chance)

    @torch.inference_mode()
    def verify(self, place: Sequence[int], block: Block | None, lengths: IntArray) -> tuple[Verdict, Passed]:
        """One pass of the target over every anchor and ``lengths`` (R,) draft tokens; decides what is kept."""
        device, drafter = self.target.device, self.drafter
        lengths = lengths.copy()  # a policy may answer with an array of the engine's own, which torch cannot take
        rows, widths = np.asarray(place), lengths + 1
        begin = np.cumsum(widths) - widths
        column = np.arange(int(widths.sum())) - np.repeat(begin, widths)
        row = torch.from_numpy(np.repeat(rows, widths)).to(device)
        position = torch.from_numpy(np.repeat(self.known[rows], widths) + column).to(device)
        ids = torch.from_numpy(np.repeat(self.anchor[rows], widths)).to(device)
        if block is not None:
            draft = torch.from_numpy(column > 0).to(device)
            request = torch.from_numpy(np.repeat(np.arange(len(rows)), widths)).to(device)
            behind = torch.from_numpy(np.maximum(column - 1, 0)).to(device)
            ids = torch.where(draft, block.tokens[request, behind], ids)
        by_row = np.zeros(int(rows.max()) + 1, dtype=np.int64)
        by_row[rows] = widths
        now = FlatPass(row, position, 0, len(by_row), by_row.tolist())
        features, last = self.cache.forward(ids, now, self.layers)
        verdict = judge(self.target.logits(last), lengths, block, None if drafter is None else drafter.draft_ids,
                        None if drafter is None else drafter.draft_rows, self.temperature, self._dice)
        return verdict, Passed(features, begin, ids)

    @torch.inference_mode()
    def keep(self, place: Sequence[int], verdict: Verdict, passed: Passed, *, advance: bool = True) -> None:
        """Trim every row to what was kept, and give the drafter the features of it.

        ``advance`` False leaves all lengths as they were, so that the same step can be timed again.
        """
        rows, device = np.asarray(place), self.target.device
        if self.drafter is not None:
            W = int(verdict.accepted.max()) + 1
            at = torch.from_numpy(np.minimum(passed.begin[:, None] + np.arange(W), len(passed.ids) - 1)).to(device)
            after = torch.from_numpy(verdict.after).to(device)
            kept = torch.from_numpy(verdict.accepted).to(device)
            ids = torch.cat([passed.ids[at], after[:, None]], dim=1)
            ids[torch.arange(len(rows), device=device), kept + 1] = after
            start = torch.from_numpy(self.known[rows]).to(device)
            more = self.drafter.context(ids, self._cast(passed.features[at]), start)
            self._store(more, torch.from_numpy(rows).to(device), start)
        if advance:
            self.known[rows] += verdict.accepted + 1
            self.anchor[rows] = verdict.after

    # -- the drafter's context -----------------------------------------------------------------------------------
    def _cast(self, features: Tensor) -> Tensor:
        assert self.drafter is not None
        return features.to(self.drafter.fc.weight.dtype)

    def _store(self, more: Context, row: Tensor, start: Tensor) -> None:
        """Write entries (n, W, …) of rows (n,) from position ``start`` (n,) on; what a row did not keep lies behind its
        length and is written over."""
        if self._context is None:
            shape = (self.cache.rows, self.cache.length)
            self._context = Context([(k.new_zeros(*shape, *k.shape[2:]), v.new_zeros(*shape, *v.shape[2:]))
                                     for k, v in more.layers], more.fused.new_zeros(*shape, more.fused.shape[2]))
        at = start[:, None] + torch.arange(more.length, device=row.device)
        for (keys, values), (k, v) in zip(self._context.layers, more.layers, strict=True):
            keys[row[:, None], at], values[row[:, None], at] = k, v
        self._context.fused[row[:, None], at] = more.fused
