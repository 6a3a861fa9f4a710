"""What ``validate live`` is asked to do: arms in words, prompts of a file, and the settings that identify a result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError, PolicyLoadError, shown
from dspark_sim.lab.corpus import read_corpus, read_prompts
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.target import Target
from dspark_sim.policy_places import is_name
from dspark_sim.registry import find_policy, make_policy

__all__ = ["ARMS", "LiveArm", "LivePlan", "LivePrompt", "parse_arms", "parse_concurrency", "pick_prompts",
           "prompts_sha256"]

ARMS = "no_spec,fixed:3,threshold:0.5,early_stop,async_global"
MAX_REQUESTS = 1000  # each prompt is a class of requests, and a scenario has so many
PLAIN = "no_spec"


@dataclass(frozen=True)
class LiveArm:
    """One arm: as it was written, the policy it means, and whether it drafts."""

    name: str
    policy: str
    parameters: dict[str, Any]

    @property
    def drafts(self) -> bool:
        """``no_spec`` alone runs without a drafter."""
        return self.policy != PLAIN


@dataclass(frozen=True)
class LivePrompt:
    """A prompt as token ids."""

    id: int
    domain: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class LivePlan:
    """Everything that decides the numbers, but the machine.

    Attributes:
        target, drafter: references, as given.
        drafter_name: in tables; the folder's name.
        arms, concurrency: what is compared, at what loads.
        tokens: output tokens of every request; stop tokens do not end it.
        temperature: of both models; 0 is greedy.
        seed: of everything random.
        repeat: times that every arm serves all prompts.
        samples: texts per prompt that the trace is made of, independent of what the arms will write; greedy: 1.
        rounds: timings of each size.
        check: requests and tokens of the greedy comparison with plain decoding.
        calibrate: fit a calibration of confidences on the trace and apply it in both worlds.
        dtype, device, threads: how the models compute.
        prompts_sha256: of the prompts' tokens.
    """

    target: str
    drafter: str
    drafter_name: str
    arms: tuple[LiveArm, ...]
    concurrency: tuple[int, ...]
    tokens: int
    temperature: float
    seed: int
    repeat: int
    samples: int
    rounds: int
    check: tuple[int, int]
    calibrate: bool
    dtype: str
    device: str
    threads: int | None
    prompts_sha256: str

    def facts(self) -> dict[str, Any]:
        """As JSON keeps it; ``repeat`` and ``concurrency`` may grow between runs of one folder."""
        return dict(json.loads(json.dumps(asdict(self))))


def parse_arms(text: str, drafter: Drafter | None = None) -> tuple[LiveArm, ...]:
    """``no_spec,fixed:3,threshold:0.5:on=survival,./mine.py:Mine``: a policy, then its parameters, the first by place.

    Args:
        drafter: whose confidences policies may need.

    Raises:
        PolicyLoadError: unknown policy (with the nearest name), wrong parameter, oracle, no confidences.
        InputError: nothing, or an arm twice.
    """
    arms: list[LiveArm] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        arm = _arm(word, drafter)
        if any(other.name == arm.name for other in arms):
            raise InputError(f"arm {shown(word)} twice", key="--arms", allowed="each arm once")
        arms.append(arm)
    if not arms:
        raise InputError("no arms", key="--arms", allowed=f"such as {ARMS}")
    return tuple(arms)


def _arm(word: str, drafter: Drafter | None) -> LiveArm:
    first, *rest = word.split(":")
    if not is_name(first) or (rest and re.fullmatch(r"[A-Za-z_]\w*", rest[0]) and "." in first):
        first, rest = f"{first}:{rest[0]}" if rest else first, rest[1:]
    try:
        cls, source = find_policy(first)
        parameters: dict[str, Any] = {}
        for n, piece in enumerate(rest):
            key, equals, value = piece.partition("=")
            if not equals:
                if n or not source.parameters:
                    raise PolicyLoadError(f"got {shown(piece)}, without a name", key="policy",
                                          allowed=f"{next(iter(source.parameters), 'no parameters')}=…")
                key, value = next(iter(source.parameters)), piece
            parameters[key] = _value(value)
        make_policy(cls, source, parameters)
        if source.needs_oracle:
            raise PolicyLoadError(f"policy {source.name} asks the oracle, and nobody knows the future here",
                                  key="policy", allowed="policies without needs_oracle")
        if source.needs_confidence and drafter is not None and not drafter.has_confidence:
            raise PolicyLoadError(f"policy {source.name} needs confidences; this drafter has none", key="policy",
                                  allowed="a drafter with a confidence head, or another policy")
    except InputError as problem:
        raise type(problem)(f"arm {shown(word)}: {problem.problem}", file=problem.file, line=problem.line,
                            key=problem.key if problem.file else f"--arms: {problem.key or 'policy'}",
                            allowed=problem.allowed, suggestion=problem.suggestion) from None
    local = Path(first.rpartition(":")[0] or first).expanduser()
    if local.suffix == ".py" and local.is_file():  # a scenario reads relative paths from its own folder
        first = str(local.resolve()) + (f":{first.rpartition(':')[2]}" if ":" in first else "")
    return LiveArm(word, first, parameters)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "null": None}.get(text, text)


def parse_concurrency(text: str) -> tuple[int, ...]:
    """``4,8``: requests at once, rising, each once.

    Raises:
        InputError: anything else.
    """
    allowed = f"whole numbers from 1 to {MAX_REQUESTS}, such as 4,8"
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"got {shown(text)}", key="--concurrency", allowed=allowed) from None
    if not all(1 <= c <= MAX_REQUESTS for c in found):
        raise InputError(f"got {shown(text)}", key="--concurrency", allowed=allowed)
    return tuple(sorted(set(found)))


def pick_prompts(
    paths: Sequence[Path], target: Target, requests: int, *, split: str = "held-out", longest: int = 256,
    shortest: int = 2,
) -> list[LivePrompt]:
    """The first ``requests`` prompts of some files or of a corpus, the domains taking turns.

    Args:
        paths: JSONL files with ``domain`` and ``prompt``, as ``trace sample`` reads them (the same files in the same
            order: which prompts are held out depends on both); or one folder that it wrote.
        target: with its tokenizer.
        split: ``held-out``: those that training never saw; ``all``.
        longest, shortest: in tokens; others are left out.

    Raises:
        InputError: names file and line; or too few are left.
    """
    if not 1 <= requests <= MAX_REQUESTS:
        raise InputError(f"got {requests}", key="--requests", allowed=f"1 to {MAX_REQUESTS}")
    turns: dict[str, list[LivePrompt]] = {}
    for p in _prompts(paths, target, split):
        if shortest <= len(p.tokens) <= longest:
            turns.setdefault(p.domain, []).append(p)
    out: list[LivePrompt] = []
    while len(out) < requests and any(turns.values()):
        out += [own.pop(0) for own in turns.values() if own]
    if len(out) < requests:
        names, kind = ", ".join(p.name for p in paths), "prompts" if split == "all" else "held-out prompts"
        raise InputError(f"{names}: {len(out)} {kind} of {shortest} to {longest} tokens", key="--prompts",
                         allowed=f"{requests} (--requests), a longer --max-prompt-tokens, or --split all")
    return out[:requests]


def _prompts(paths: Sequence[Path], target: Target, split: str) -> list[LivePrompt]:
    if len(paths) == 1 and paths[0].is_dir():
        found = read_corpus(paths[0], split=None if split == "all" else split)
        unique = {d.prompt_id: LivePrompt(d.prompt_id, d.domain, tuple(d.prompt.tolist())) for d in found}
        strange = next((p for p in unique.values() if max(p.tokens) >= target.vocab_size), None)
        if strange is not None:
            raise InputError(f"prompt {strange.id} holds token {max(strange.tokens)}", file=paths[0],
                             allowed=f"a corpus of target {target.name}, tokens 0 to {target.vocab_size - 1}")
        return [unique[number] for number in sorted(unique)]
    return [LivePrompt(p.id, p.domain, tuple(int(i) for i in target.tokenizer(p.text).input_ids))
            for p in read_prompts(paths) if split == "all" or p.held_out]


def prompts_sha256(prompts: Sequence[LivePrompt]) -> str:
    """What identifies them."""
    return hashlib.sha256(json.dumps([[p.domain, p.tokens] for p in prompts]).encode()).hexdigest()

