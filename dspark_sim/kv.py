"""The KV cache of one engine, counted in blocks.

Questions before actions: ask :meth:`BlockPool.fits`, then :meth:`BlockPool.take`. Blocks are taken by the *scheduled*
width, context + 1 + G look-ahead, even where the policy verifies fewer, as vLLM's ``allocate_slots`` does.
"""

from __future__ import annotations

from typing import Protocol

from dspark_sim.errors import IntegrityError

__all__ = ["BlockPool", "Evictable"]


class Evictable(Protocol):
    """A cache that keeps old contents in free blocks and must let go when they are taken."""

    def evict(self) -> None: ...


class BlockPool:
    """A count of free blocks; ``total=None`` means that memory never runs out.

    Args:
        total: blocks of the engine, None for no limit.
        block_tokens: tokens per block.
        lookahead: tokens beyond the context that a step may write: 1 + G.
    """

    __slots__ = ("block_tokens", "cache", "free", "limited", "lookahead", "total")

    def __init__(self, total: int | None, block_tokens: int, lookahead: int) -> None:
        self.limited = total is not None
        self.total = self.free = total if total is not None else -1
        self.block_tokens, self.lookahead = block_tokens, lookahead
        self.cache: Evictable | None = None  # something that holds on to free blocks while nobody needs them

    def needed(self, context: int) -> int:
        """Blocks that a request with ``context`` tokens must own before a step."""
        return -(-(context + self.lookahead) // self.block_tokens)

    def ever_fits(self, prompt: int, output: int) -> bool:
        """Whether a request can be served to its end when it is alone."""
        return not self.limited or self.needed(prompt + output) <= self.total

    def fits(self, blocks: int) -> bool:
        """Whether ``blocks`` are free now."""
        return not self.limited or blocks <= self.free

    def take(self, blocks: int) -> None:
        """Take blocks that :meth:`fits` said are free."""
        if self.limited:
            self.free -= blocks
            if self.free < 0:
                raise IntegrityError(f"KV pool: {-self.free} blocks taken that do not exist")
            if self.cache is not None:
                self.cache.evict()

    def give(self, blocks: int) -> None:
        """Give blocks back."""
        if self.limited:
            self.free += blocks
            if self.free > self.total:
                raise IntegrityError(f"KV pool: {self.free} free of {self.total} blocks")
