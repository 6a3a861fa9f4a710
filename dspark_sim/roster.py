"""Who is where in one engine: waiting, prefilling or decoding, and which KV blocks and slots they own.

The engine asks in this order at every step: :meth:`Roster.grow`, :meth:`Roster.admit`, :meth:`Roster.share_prompts`;
and at its end :meth:`Roster.finish_rows`, :meth:`Roster.complete_prompts`. Nothing here knows what a step costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dspark_sim.batch import RANK, RING_ROW, Batch
from dspark_sim.errors import IntegrityError, RunError
from dspark_sim.kv import BlockPool
from dspark_sim.line import Line
from dspark_sim.prefix import PREFIX_TOKENS, PrefixCache
from dspark_sim.prompts import Prompt, Prompts
from dspark_sim.request import Request
from dspark_sim.rows import TraceRows

__all__ = ["EngineLimits", "Roster"]

MAX_INSTANT = 100_000
SAME_MOMENT = 1e-3  # seconds; pauses that the clock hardly resolves are none


@dataclass(frozen=True)
class EngineLimits:
    """What an engine can hold. ``tpot_sla``: seconds by class index, ``inf`` where a class has no such limit.

    ``hand_over``: prompts only; a request with its first token goes to another engine.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    prefill: Literal["none", "chunked", "separate"]
    tpot_sla: tuple[float, ...]
    prefix_cache: bool = True
    hand_over: bool = False


class Roster:
    """The requests of one engine.

    Args:
        limits: sizes.
        pool: KV blocks.
        batch, rows: decoding requests and their draft rows.
        left: called with each request that leaves for good or is handed over, at once.

    Attributes:
        kv_tokens: Σ context over decoding requests.
        fresh: decoding rows that have not decoded since they joined; the last ones of the batch unless ``mixed``.
        last_decode: when the rows that are not fresh last received tokens.
    """

    def __init__(
        self, limits: EngineLimits, pool: BlockPool, batch: Batch, rows: TraceRows, left: Callable[[Request], None]
    ) -> None:
        self.limits, self.pool, self.batch, self.rows, self.left = limits, pool, batch, rows, left
        self.waiting = Line()
        self.prompts = Prompts()
        self.prefixes = pool.cache = PrefixCache(pool) if limits.prefix_cache else None
        self.free_slots = list(range(limits.max_num_seqs - 1, -1, -1))
        self.width = 1 + rows.block_size  # tokens that each decoding request may put into a step
        self.capacity = min(limits.max_num_seqs, limits.max_num_batched_tokens // self.width)
        self.kv_tokens = self.fresh = self.submitted = self.completed = 0
        self.mixed = False
        self.last_decode = 0.0
        self._rank, self._instant, self._instant_at = 0, 0, -1.0

    @property
    def running(self) -> int:
        """Requests that prefill or decode."""
        return self.batch.size + len(self.prompts)

    @property
    def idle(self) -> bool:
        """Nobody is here."""
        return not (self.batch.size or self.prompts or self.waiting)

    def submit(self, request: Request) -> None:
        """Put a request into the queue.

        Raises:
            RunError: it could never be served, even alone.
        """
        if not self.pool.ever_fits(request.prompt_tokens, request.output_tokens):
            needed = self.pool.needed(request.prompt_tokens + request.output_tokens)
            raise RunError(
                f"request {request.id} ({request.prompt_tokens} prompt + {request.output_tokens} output tokens) needs "
                f"{needed} KV blocks of {self.pool.block_tokens} tokens, the engine has {self.pool.total}; "
                "give it more kv_blocks or shorter requests"
            )
        self.submitted += 1
        self.waiting.append(request)

    # -- before a step -----------------------------------------------------------------------------------------
    def expire(self, now: float) -> list[Request]:
        """Take those out of the line who gave up; the caller writes them down."""
        gone = self.waiting.expire(now)
        self.completed += len(gone)
        return gone

    def grow(self) -> bool:
        """Blocks for every row's scheduled width; True if somebody had to go."""
        preempted = False
        while self.batch.size:
            bundle = self.batch.bundle()
            context, have = bundle.context, bundle.blocks
            need = (context + (self.width + self.pool.block_tokens - 1)) // self.pool.block_tokens
            short = int(need.sum() - have.sum())
            if self.pool.fits(short):
                self.pool.take(short)
                have[:] = need
                break
            self._preempt()
            preempted = True
        return preempted

    def _preempt(self) -> None:
        """The youngest running request loses its KV and goes to the head of the line."""
        last = self.batch.size - 1
        if self.prompts and (last < 0 or self.prompts[-1].rank > self.batch.ints[RANK, last]):
            gone = self.prompts.pop()
            request = gone.request
            self._free(request, gone.blocks, gone.shared, gone.slot)
        else:
            request = self._remove(last)
        request.preemptions += 1
        self.waiting.appendleft(request)

    def admit(self, now: float) -> None:
        """First come, first served by priority; whoever does not fit blocks the line."""
        waiting, prefill = self.waiting, self.limits.prefill
        while waiting and self.running < self.capacity:
            request = waiting.head()
            fresh = request.emitted == 0
            decodes = prefill == "none" or request.prefilled or (fresh and request.skipped > 0)
            emitted = max(1, request.skipped) if fresh and decodes else request.emitted
            shared, revived = self._cached(request)
            blocks = self.pool.needed(request.prompt_tokens + emitted)
            own = blocks - (0 if self.prefixes is None else shared * self.prefixes.blocks_each)
            if not self.pool.fits(own + revived):
                break
            waiting.popleft()
            if shared and self.prefixes is not None:
                self.prefixes.acquire(request.prefix, shared)
            self.pool.take(own)
            slot = self.free_slots.pop()
            self._rank += 1
            if request.admitted is None:
                request.admitted = now
            if not decodes:
                left = request.prompt_tokens + emitted - shared * PREFIX_TOKENS
                request.cached_tokens += shared * PREFIX_TOKENS
                if request.preemptions or request.requeued:
                    request.recomputed_tokens += left
                self.prompts.append(Prompt(request, self._rank, slot, blocks, left, shared))
                continue
            request.prefilled = False
            if fresh:
                request.emitted, request.first_token, request.last_emit = emitted, now, now
            if emitted < request.output_tokens:
                self._join(request, self._rank, slot, blocks, shared)
                continue
            self._free(request, blocks, shared, slot)
            self._finish(request, now)
            self._no_time_passed(now)

    def _no_time_passed(self, now: float) -> None:
        """A request was complete on arrival; RunError when so many are at one moment that time seems to stand."""
        if now > self._instant_at + SAME_MOMENT:
            self._instant, self._instant_at = 0, now
        self._instant += 1
        if self._instant > MAX_INSTANT:
            raise RunError(
                f"{self._instant} requests in a row were complete when they were admitted: with prefill: none one "
                "output token takes no time, and a closed loop of such requests never moves; ask for longer outputs"
            )

    def _cached(self, request: Request) -> tuple[int, int]:
        """(leading prefix blocks of ``request`` that are in memory, KV blocks of them that count as free now)."""
        if self.prefixes is None or not request.prefix:
            return 0, 0
        shared = self.prefixes.match(request.prefix, request.prompt_tokens)
        return shared, self.prefixes.revived(request.prefix, shared)

    def share_prompts(self) -> int:
        """Share this step's prompt tokens out in admission order; returns how many there are."""
        budget = self.limits.max_num_batched_tokens
        return self.prompts.share(budget - self.batch.size * self.width if self.limits.prefill == "chunked" else budget)

    # -- after a step ------------------------------------------------------------------------------------------
    def finish_rows(self, ended: list[int], now: float) -> None:
        """Take finished rows out, the last first; then end them in row order, for that is the order of the tables."""
        gone = [self._remove(i, complete=True) for i in reversed(ended)]
        for request in reversed(gone):
            self._finish(request, now)

    def complete_prompts(self, now: float) -> tuple[int, list[float]]:
        """Prompts that are done emit one token, and decode from the next step on or are handed over. Returns how many
        there are, and the gaps of those that were recomputed after a preemption: their users waited."""
        done, gaps = self.prompts.done(), []
        for item in done:
            request = item.request
            request.emitted += 1
            if request.first_token is None:
                request.first_token = now
            elif request.last_emit is not None:
                gaps.append(now - request.last_emit)
                request.slowest_gap = max(gaps[-1], request.slowest_gap or 0.0)
            request.last_emit = now
            if self.prefixes is not None and request.prefix:
                whole = min(len(request.prefix), request.prompt_tokens // PREFIX_TOKENS)
                item.shared = self.prefixes.insert(request.prefix, item.shared, whole)
            if request.emitted >= request.output_tokens:
                self._free(request, item.blocks, item.shared, item.slot)
                self._finish(request, now)
            elif self.limits.hand_over:
                self._free(request, item.blocks, item.shared, item.slot)
                request.prefilled = True
                self.completed += 1
                self.left(request)
            else:
                self._join(request, item.rank, item.slot, item.blocks, item.shared)
        return len(done), gaps

    # -- membership --------------------------------------------------------------------------------------------
    def _join(self, request: Request, rank: int, slot: int, blocks: int, shared: int) -> None:
        limit = self.limits.tpot_sla[request.class_index]
        self.mixed |= self.batch.join(request, rank, slot, blocks, shared, self.rows.decode_step, limit)
        self.fresh += 1
        self.kv_tokens += request.prompt_tokens + request.emitted

    def _remove(self, i: int, *, complete: bool = False) -> Request:
        """Take row ``i`` out of the batch; its sums go back to the request, its blocks and slot to the engine."""
        _, _, context, *_, blocks, _, slot, _, joined, _, shared = self.batch.ints[:RING_ROW, i].tolist()
        self.kv_tokens -= context
        request, steps = self.batch.leave(i), self.rows.decode_step - joined
        if steps:
            request.last_emit = self.last_decode
        else:
            self.fresh -= 1
        request.steps += steps
        if not self.rows.partial:
            request.drafted += steps * self.rows.block_size
        if complete and request.answer_hashed and self.prefixes is not None:
            known = request.prompt_tokens + request.output_tokens - 1  # the last token has no KV
            shared = self.prefixes.insert(request.prefix, shared, min(known // PREFIX_TOKENS, len(request.prefix)))
        self._free(request, blocks, shared, slot)
        return request

    def _free(self, request: Request, blocks: int, shared: int, slot: int) -> None:
        if shared and self.prefixes is not None:
            blocks -= shared * self.prefixes.blocks_each
            self.prefixes.release(request.prefix, shared)
        self.pool.give(blocks)
        self.free_slots.append(slot)

    def _finish(self, request: Request, now: float) -> None:
        request.finished, request.outcome = now, "finished"
        request.emitted = request.output_tokens
        self.completed += 1
        self.left(request)

    # -- the books ---------------------------------------------------------------------------------------------
    def evict(self) -> tuple[list[Request], list[Request]]:
        """(everybody who runs, in admission order; everybody who waits): the engine is empty and knows nothing then."""
        running = [(int(self.batch.ints[RANK, i]), self._remove(i)) for i in range(self.batch.size - 1, -1, -1)]
        for item in self.prompts:
            self._free(item.request, item.blocks, item.shared, item.slot)
            running.append((item.rank, item.request))
        self.prompts.clear()
        running.sort(key=lambda pair: pair[0])
        waiting = self.waiting.clear()
        self.completed += len(running) + len(waiting)
        if self.prefixes is not None:
            self.prefixes.clear()
        self.mixed = False
        return [request for _, request in running], waiting

    def check_integrity(self) -> None:
        """An idle engine owns no block, no row and no slot, and has finished all it was given.

        Raises:
            IntegrityError: something does not balance.
        """
        self.batch.check()
        if self.prefixes is not None:
            self.prefixes.check()
        lost, slots = self.submitted - self.completed, self.limits.max_num_seqs - len(self.free_slots)
        blocks = self.pool.total - self.pool.free if self.pool.limited else 0
        if lost or slots or blocks or self.kv_tokens or self.fresh:
            raise IntegrityError(
                f"an idle engine still has {lost} requests, {slots} slots, {blocks} blocks, {self.kv_tokens} KV "
                f"tokens, {self.fresh} fresh rows"
            )
