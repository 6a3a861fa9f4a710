"""Where a result comes from: every profile, trace and policy of the manifest, and how to make the result again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Input", "Reproduce", "inputs_of", "reproduce"]

KINDS = {
    "measured": "measured on the named device",
    "derived": "derived from measurements by a stated method",
    "published": "published by somebody else as figures or pictures",
    "synthetic": "made up: it shows how things work, not how fast they are",
}


@dataclass(frozen=True)
class Input:
    """One input: ``what`` it is, its ``name``, its ``kind`` (one of four words, "" for policies), facts in order."""

    what: str
    name: str
    kind: str
    meaning: str
    facts: Sequence[tuple[str, str]]
    assumptions: Sequence[str] = ()
    sha256: str = ""


@dataclass(frozen=True)
class Reproduce:
    """``command`` for a shell ("" if Python made it), the scenario as written, versions and machine."""

    command: str
    words: str
    scenario: str
    versions: Sequence[tuple[str, str]]
    resolved: Mapping[str, Any] = field(default_factory=dict)


def inputs_of(manifest: Mapping[str, Any]) -> list[Input]:
    """Profiles, traces, then policies, each once."""
    out = [_profile(name, facts) for name, facts in manifest["profiles"].items()]
    out += [_trace(name, facts) for name, facts in manifest["traces"].items()]
    policies: dict[tuple[str, str], Input] = {}
    for arm in manifest.get("arms", ()):
        found = _policy(arm)
        policies.setdefault((found.name, found.sha256), found)
    return out + list(policies.values())


def _profile(name: str, facts: Mapping[str, Any]) -> Input:
    p = facts["provenance"]
    shown = [("device", p.get("device")), ("model", p.get("model")), ("software", p.get("software")),
             ("date", p.get("date")), ("source", p.get("source")), ("made by", p.get("command")),
             ("GPUs per engine", facts.get("gpus")), ("file", facts.get("file"))]
    return Input("hardware profile", name, str(p.get("kind") or ""), KINDS.get(str(p.get("kind")), ""), _kept(shown),
                 _list(p.get("assumptions")), str(facts.get("sha256") or ""))


def _trace(name: str, facts: Mapping[str, Any]) -> Input:
    p = dict(facts.get("provenance") or {})
    size = f"{facts.get('positions', 0):,} positions in {facts.get('documents', 0):,} documents"
    shown: list[tuple[str, Any]] = [("block size", facts.get("block_size")), ("temperature", facts.get("temperature")),
                                    ("size", size), ("reference", facts.get("reference"))]
    assumptions = _list(p.pop("assumptions", None)) + _list(p.pop("notes", None))
    command = p.pop("command", None)
    for key in ("source", "date", *sorted(p)):
        if key in p:
            shown.append((key.replace("_", " "), p.pop(key)))
    return Input("acceptance trace", name, str(facts.get("kind") or ""), KINDS.get(str(facts.get("kind")), ""),
                 _kept([*shown, ("made by", command)]), assumptions, str(facts.get("sha256") or ""))


def _policy(arm: Mapping[str, Any]) -> Input:
    p = arm["policy"]
    claim = "claims to keep the output distribution exact" if p.get("lossless") else \
        "does NOT keep the output distribution: its speed is indicative only"
    shown = [("comes from", "the shelf of dspark-sim" if p.get("shipped") else "a file of yours"),
             ("claim", claim), ("timing", p.get("timing")), ("file", p.get("file"))]
    return Input("policy", str(p["reference"]), "", "", _kept(shown), (), str(p.get("sha256") or ""))


def _kept(facts: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(key, "; ".join(_list(value))) for key, value in facts if value not in (None, "", [], ())]


def _list(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [" ".join(str(v).split()) for v in value]
    return [" ".join(str(value).split())]


def reproduce(manifest: Mapping[str, Any], kind: str) -> Reproduce:
    """The command as it was given, without the path of the program; Python's call where there was no command."""
    scenario, given = manifest["scenario"], manifest.get("command")
    overrides = dict(scenario.get("overrides") or {})
    if given:
        command, words = shlex.join(["dspark-sim", *map(str, given[1:])]), ""
    else:
        source = scenario.get("file") or scenario.get("name")
        command, words = "", (f"dspark_sim.{kind}({source!r}" + (f", overrides={overrides!r}" if overrides else "")
                              + ") in Python")
    if given and scenario.get("file"):
        words = f"The scenario was read from {scenario['file']}."
    versions = [("status", manifest.get("status")), ("seed", manifest.get("seed")),
                ("replications", manifest.get("replications")), ("began", manifest.get("started")),
                ("ended", manifest.get("finished")), ("Python", manifest.get("python")),
                ("platform", manifest.get("platform")),
                *((name, version) for name, version in (manifest.get("packages") or {}).items())]
    return Reproduce(command, words, str(scenario.get("text") or ""), _kept(versions), scenario.get("resolved") or {})
