"""Prefix caching: prompts that begin alike share KV blocks and are computed once.

A prompt's leading text is known by the hashes of its blocks of 512 tokens (``Request.prefix``, as in the Mooncake
traces). A cached block that no running request uses stays until its memory is needed: it counts as free, and the least
recently used one goes first, as vLLM's automatic prefix caching does. Only whole blocks are shared, and at least one
prompt token is always computed, for its logits are needed. Blocks of an answer are kept when it is complete, where the
traffic tells what they will be called (``Request.answer_hashed``: sessions): the next turn's prompt begins with them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from dspark_sim.errors import IntegrityError
from dspark_sim.kv import BlockPool

__all__ = ["PREFIX_TOKENS", "PrefixCache"]

PREFIX_TOKENS = 512


class PrefixCache:
    """What an engine remembers of prompts.

    Args:
        pool: the engine's KV blocks; an unlimited pool remembers everything.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.blocks_each = PREFIX_TOKENS // pool.block_tokens if pool.limited else 0
        self._users: dict[int, int] = {}  # hash -> running requests that use it
        self._idle: OrderedDict[int, None] = OrderedDict()  # nobody's, the least recently used first

    @property
    def idle_blocks(self) -> int:
        """KV blocks that are free but still hold something."""
        return len(self._idle) * self.blocks_each

    def match(self, prefix: Sequence[int], prompt_tokens: int) -> int:
        """How many leading prefix blocks of a prompt are here."""
        n, most = 0, min(len(prefix), (prompt_tokens - 1) // PREFIX_TOKENS)
        while n < most and prefix[n] in self._users:
            n += 1
        return n

    def revived(self, prefix: Sequence[int], n: int) -> int:
        """KV blocks that stop being free when the first ``n`` prefix blocks are used."""
        return self.blocks_each * sum(self._users[h] == 0 for h in prefix[:n])

    def acquire(self, prefix: Sequence[int], n: int) -> None:
        """A request uses the first ``n`` prefix blocks, found by :meth:`match` just now."""
        for h in prefix[:n]:
            if self._users[h] == 0:
                del self._idle[h]
                self.pool.take(self.blocks_each)
            self._users[h] += 1

    def insert(self, prefix: Sequence[int], start: int, stop: int) -> int:
        """A request has computed prefix blocks ``start .. stop - 1`` into KV blocks of its own: share them from now on.

        Returns how many are shared now; the first one that somebody else computed meanwhile ends it (this request
        keeps its own copy of it and of what follows).
        """
        done = start
        while done < stop and prefix[done] not in self._users:
            self._users[prefix[done]] = 1
            done += 1
        return done

    def release(self, prefix: Sequence[int], n: int) -> None:
        """A request no longer uses its first ``n`` prefix blocks. Later blocks become evictable before earlier ones."""
        for h in reversed(prefix[:n]):
            self._users[h] -= 1
            if self._users[h] == 0:
                self._idle[h] = None
                self.pool.give(self.blocks_each)
            elif self._users[h] < 0:
                raise IntegrityError(f"prefix block {h} was released more often than used")

    def evict(self) -> None:
        """Forget idle blocks, the least recently used first, until what they hold fits into the free memory."""
        if self.pool.limited:
            while self._idle and self.idle_blocks > self.pool.free:
                del self._users[self._idle.popitem(last=False)[0]]

    def clear(self) -> None:
        """Forget everything (the engine failed)."""
        self._users.clear()
        self._idle.clear()

    def check(self) -> None:
        """An idle engine uses no prefix block."""
        used = sum(1 for users in self._users.values() if users)
        if used or self.idle_blocks > max(self.pool.free, 0):
            raise IntegrityError(f"an idle engine still uses {used} prefix blocks ({self.idle_blocks} KV blocks kept)")
