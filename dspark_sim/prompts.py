"""Prompts that are being computed: who, how much is left, and how a step's tokens are shared out."""

from __future__ import annotations

from dspark_sim.request import Request

__all__ = ["Prompt", "Prompts"]


class Prompt:
    """A request whose prompt is being computed; ``left`` tokens are still to come, ``chunk`` of them in this step.

    ``shared``: leading prefix blocks that it uses together with others (:mod:`dspark_sim.prefix`).
    """

    __slots__ = ("blocks", "chunk", "left", "rank", "request", "shared", "slot")

    def __init__(self, request: Request, rank: int, slot: int, blocks: int, left: int, shared: int) -> None:
        self.request, self.rank, self.slot, self.blocks, self.left = request, rank, slot, blocks, left
        self.shared, self.chunk = shared, 0


class Prompts(list[Prompt]):
    """The prompts of one engine, in admission order."""

    def share(self, budget: int) -> int:
        """Give each in turn as many of ``budget`` tokens as it still needs; returns how many were given."""
        total = 0
        for item in self:
            item.chunk = min(item.left, budget - total)
            total += item.chunk
        return total

    def done(self) -> list[Prompt]:
        """Book the chunks of the step that ended; take out and return the prompts that are complete."""
        for item in self:
            item.left -= item.chunk
        n = 0
        while n < len(self) and self[n].left == 0:
            n += 1
        out = self[:n]
        del self[:n]
        return out
