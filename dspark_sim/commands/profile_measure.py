"""dspark-sim profile measure: times a model here and writes a profile."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from dspark_sim.commands.output import emit_console, note
from dspark_sim.errors import InputError

__all__ = ["measure_command"]


def measure_command(model: str, out: Path, *, tokens: list[str], contexts: list[str], requests: list[str],
                    drafters: list[str], quiet: bool, force: bool, **rest: Any) -> None:
    """Measure, or go on with a measurement that was stopped; then write the folder and show it."""
    try:
        from dspark_sim.lab.measure import Request, measure, points_path, sizes
    except ModuleNotFoundError as missing:
        raise InputError(f"needs {missing.name}", key="profile measure",
                         allowed="pip install 'dspark-sim[lab]'") from None
    from dspark_sim.commands.profile import describe
    from dspark_sim.profile_write import check_place, write_profile

    check_place(out, force)
    text = shlex.join(["dspark-sim", *sys.argv[1:]])
    request = Request(
        model, tokens=sizes(tokens, "--tokens") if tokens else None,
        contexts=sizes(contexts, "--context") if contexts else None,
        requests=sizes(requests, "--requests") if requests else None,
        drafters=() if drafters == ["none"] else tuple(dict.fromkeys(drafters)), command=text[:1500], **rest)
    kept = points_path(out)
    try:
        draft = measure(request, out, (lambda line: None) if quiet else note)
    except (KeyboardInterrupt, InputError):
        if kept.exists():
            note(f"the points so far are kept in {kept}; the same command goes on from there")
        raise
    profile = write_profile(draft, out, force=force)
    kept.unlink(missing_ok=True)
    emit_console(lambda console: describe(console, profile))
    note(f"written to {out}; use it with  profile: {out if '/' in str(out) else f'./{out}'}")
