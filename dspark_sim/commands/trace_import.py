"""dspark-sim trace import."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.commands.output import emit, emit_console, emit_rows, note
from dspark_sim.errors import InputError, TraceError

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.trace_import.make import Imported, Names
    from dspark_sim.trace_import.sources import Source

__all__ = ["import_command"]

_DOMAIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9_-]*)=(.+)$")


def import_command(
    files: list[str], *, names: Names, form_from: str, since: Path | None, model: str | None, rates: str | None,
    given: str | None, acceptance_length: float | None, block_size: int | None, spread_from: str | None,
    confidence: bool, seed: int, documents: int, out: Path, force: bool, form: str,
) -> None:
    """Read, convert, write, and say everything that had to be assumed."""
    from dspark_sim.trace_import.make import borrow, from_rates, from_rounds, known_format, merged
    from dspark_sim.trace_import.sources import FORMATS, Options, Source, read_source

    typed = [name for name, value in (("--rates", rates), ("--acceptance-length", acceptance_length))
             if value is not None]
    if len(typed) + bool(files) != 1:
        raise InputError("nothing to import" if not typed and not files else "several things to import", key="FILE",
                         allowed="files, or --rates, or --acceptance-length")
    if given is not None and rates is None:
        raise InputError("has no effect without --rates", key="--given")
    command = shlex.join(["dspark-sim", *sys.argv[1:]])
    found: list[tuple[str | None, str, Source]]
    if typed:
        found = [(names.domain, f"the command line: {command}", Source("rates", {None: _typed(
            rates, given, acceptance_length, block_size)}))]
    else:
        options = Options(known_format(form_from, FORMATS), since, model, block_size)
        found = [(domain, str(path), read_source(path, options)) for domain, path in map(_split, files)]
    logs = [source.form == "rounds" for _, _, source in found]
    if any(logs) and not all(logs):
        raise TraceError(f"{found[logs.index(False)][1]} holds rates, {found[logs.index(True)][1]} rounds", key="FILE",
                         allowed="either")
    if all(logs):
        if spread_from is not None:
            raise InputError("has no effect on a log of rounds, which shows its own spread", key="--spread-from")
        done = from_rounds(found, names, command, block_size)
        path = _recording(out, done.trace.drafter, force)
        done.trace.save(path)
    else:
        if confidence and spread_from is None:
            raise InputError("has no effect without --spread-from", key="--confidence")
        lender = None if spread_from is None else borrow(spread_from, confidence)
        done = from_rates(merged(found, names.domain), names, [name for _, name, _ in found] if not typed else [],
                          command, seed=seed, documents=documents, borrowed=lender)
        path = _specification(out, force)
        _write(done, path)
    _tell(done, path, form, [source.form for _, _, source in found])


def _typed(rates: str | None, given: str | None, length: float | None, block_size: int | None) -> Any:
    from dspark_sim.trace_import.plain import from_words
    from dspark_sim.trace_import.rates import from_mean

    if rates is not None:
        if block_size is not None:
            raise InputError("has no effect on --rates, which say it by their number", key="--block-size")
        return from_words(rates, given)
    assert length is not None
    if block_size is None:
        raise InputError("is missing", key="--block-size", allowed="draft tokens per round")
    return from_mean(length, block_size)


def _split(word: str) -> tuple[str | None, Path]:
    """``DOMAIN=FILE`` or ``FILE``; a file whose name looks like the former is a file."""
    found = _DOMAIN.match(word)
    if found is None or Path(word).exists():
        return None, Path(word)
    return found[1], Path(found[2])


def _specification(out: Path, force: bool) -> Path:
    if out.suffix not in (".yaml", ".yml"):
        raise InputError(f"got {str(out)!r}", key="--out", allowed="a .yaml file: rates become a specification")
    if out.exists() and not force:
        raise InputError(f"{out} exists", key="--out", allowed="a new file, or --force")
    return out


def _recording(out: Path, drafter: str, force: bool) -> Path:
    if out.suffix in (".parquet", ".yaml", ".yml") or out.is_file():
        raise InputError(f"got {str(out)!r}", key="--out",
                         allowed=f"a folder, for {drafter}.parquet: a log of rounds becomes a recording")
    path = out / f"{drafter}.parquet"
    if path.exists() and not force:
        raise InputError(f"{path} exists", key="--out", allowed="another folder or --drafter, or --force")
    return path


def _write(done: Imported, path: Path) -> None:
    """The specification, checked as ``run`` will check it, aside and then renamed."""
    import yaml

    from dspark_sim.atomic import written_aside
    from dspark_sim.parametric import Spec
    from dspark_sim.yamlio import parse_yaml, validated

    text = "# Written by dspark-sim trace import. Meaning: docs/file-formats.md\n" + yaml.safe_dump(
        done.spec, sort_keys=False, allow_unicode=True, width=110)
    validated(Spec, parse_yaml(text, path, TraceError), TraceError)
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def _rows(done: Imported) -> list[dict[str, Any]]:
    """One row per domain and position: what was imported beside what rounds of the written trace show."""
    from dspark_sim.trace_import.spec import walked_rates

    rows = []
    for domain in done.trace.domains:
        given = done.rates.get(domain)
        shown = walked_rates(done.trace, domain)
        survival = 1.0
        for k, got in enumerate(shown):
            survival *= got or 0.0
            rows.append({
                "domain": domain, "position": k + 1,
                "imported_conditional": None if given is None else round(given.conditional[k], 6),
                "imported_unconditional": None if given is None else round(given.survival[k], 6),
                "trace_conditional": None if got is None else round(got, 6), "trace_unconditional": round(survival, 6),
            })
    return rows


def _lengths(done: Imported, rows: list[dict[str, Any]]) -> dict[str, tuple[float | None, float]]:
    """Acceptance length by domain: imported, and of the trace's rounds."""
    return {d: (None if d not in done.rates else done.rates[d].length,
                1 + sum(r["trace_unconditional"] for r in rows if r["domain"] == d)) for d in done.trace.domains}


def _tell(done: Imported, path: Path, form: str, formats: list[str]) -> None:
    rows = _rows(done)
    if form == "json":
        import json

        t = done.trace
        emit(json.dumps({
            "written": str(path), "formats": formats, "target": t.target, "drafter": t.drafter, "kind": t.kind,
            "block_size": t.block_size, "temperature": t.temperature, "documents": t.documents,
            "positions": t.positions,
            "rounds": None if done.began is None else int(done.began.sum()), "confidence": t.confidence is not None,
            "acceptance_length": {d: {"imported": a, "trace": b} for d, (a, b) in _lengths(done, rows).items()},
            "rates": rows, "assumptions": list(done.assumptions), "warnings": list(done.warnings),
        }, indent=2, ensure_ascii=False) + "\n")
    elif form == "csv":
        emit_rows(rows, form)
    else:
        emit_console(lambda console: _show(console, done, path, rows, formats))
    if form != "table":
        for text in done.assumptions:
            note(f"assumed: {text}")
    for text in done.warnings:
        note(f"warning: {text}")


def _show(console: Console, done: Imported, path: Path, rows: list[dict[str, Any]], formats: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from dspark_sim.render import bullet

    t = done.trace
    console.print(Text(f"{t.target}/{t.drafter}: {t.kind}, block size {t.block_size}, temperature {t.temperature:g}, "
                       f"from {', '.join(dict.fromkeys(formats))}", style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    titles = ("domain", "k", "imported\nconditional", "of all\nrounds", "trace\nconditional", "of all\nrounds")
    for i, title in enumerate(titles):
        table.add_column(title, justify="right" if i else "left", no_wrap=True)
    last = ""
    for row in rows:
        cells = [row[key] for key in ("imported_conditional", "imported_unconditional", "trace_conditional",
                                      "trace_unconditional")]
        table.add_row("" if row["domain"] == last else row["domain"], str(row["position"]),
                      *("–" if c is None else f"{c:.4f}" for c in cells))
        last = row["domain"]
    console.print(table)
    for domain, (given, got) in _lengths(done, rows).items():
        before = "" if given is None else f"imported {given:.3f}, "
        console.print(Text(f"acceptance length, {domain}: {before}trace {got:.3f} (walked rounds, bonus included)",
                           style="dim"))
    console.print()
    console.print(Text("Assumed (and kept in the trace's provenance):"))
    for text in done.assumptions:
        bullet(console, text, "")
    console.print()
    folder = path if done.spec is not None else path.parent
    domains = " or ".join(t.domains)
    console.print(Text(f"written: {path}; in a scenario, traces: {folder}, an arm's drafter: {t.drafter}, a class's "
                       f"domain: {domains}"))
