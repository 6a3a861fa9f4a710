"""Bring README.md and docs/ up to date: what their blocks print, their pictures, and their generated tables.

    python tools/refresh_docs.py [--slow] [PAGE ...]

Without pages: all of them. ``--slow`` also runs the blocks that are marked slow (benchmarks: let the machine be quiet).
tests/test_readme.py fails when a page is out of date and points here.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import doc_blocks

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
MAX_IMAGE = 200_000  # bytes


# -- generated tables -------------------------------------------------------------------------------------------------
def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def policies() -> str:
    """The shelf of policies."""
    from dspark_sim.registry import list_policies

    def options(source: Any) -> str:
        return ", ".join(f"`{name}` = {default}" for name, (_, default) in source.parameters.items()) or "none"

    rows = [
        (f"`{p.name}`", "yes" if p.lossless else "**no**", p.timing, p.doc.strip().splitlines()[0].replace("``", "`"),
         options(p))
        for p in list_policies()
    ]
    return table(("policy", "lossless", "decides", "what it does", "options"), rows)


def profiles() -> str:
    """The shelf of hardware profiles."""
    from dspark_sim.profile import list_profiles, load_profile

    rows = []
    for name in list_profiles():
        p = load_profile(name)
        rows.append((f"`{name}`", f"**{p.provenance.kind}**", p.provenance.model, p.provenance.device,
                     ", ".join(p.drafters) or "none"))
    return table(("profile", "kind", "model", "device", "drafters"), rows)


def traces() -> str:
    """The shelf of acceptance traces."""
    from dspark_sim.traceset import list_traces, open_traces

    rows = []
    for target, drafters in list_traces().items():
        for name, trace in open_traces(target, drafters).items():
            rows.append((f"`{target}`", f"`{name}`", f"**{trace.kind}**", str(trace.block_size),
                         ", ".join(trace.domains), "yes" if trace.confidence is not None else "no"))
    return table(("target", "drafter", "kind", "γ", "domains", "confidence"), rows)


FLOORS = (  # from the top: name, what it does
    ("roof", "public names; the command line"), ("third floor", "what a run means"),
    ("second floor", "the machine: SimPy lives here only"), ("first floor", "reading what the user wrote"),
    ("ground", "words that everyone uses"),
)
FOLDERS = (
    ("policies/", "one file, one policy"), ("hardware_profiles/", "what steps cost: a folder per engine"),
    ("acceptance_traces/", "what drafters' tokens did: a file per target"), ("scenarios/", "one file per question"),
    ("tests/", "with a second, slow engine that must agree bit for bit"),
    ("tools/", "scripts that made the shelves, pages and pictures; bench"),
    ("docs/", "method, file formats, performance"),
)


def house() -> str:
    """The tree of the project; floors as tests/test_house.py enforces them."""
    sys.path.insert(0, str(ROOT))
    from tests.test_house import FLOORS as ENFORCED

    home = ROOT / "dspark_sim"
    lines = ["dspark_sim/            imports go down only, tests enforce it"]
    for (name, meaning), modules in zip(FLOORS, reversed(ENFORCED), strict=True):
        there = [m + "/" * (home / m).is_dir() for m in modules.split()
                 if (home / f"{m}.py").is_file() or any((home / m).glob("*.py"))]
        rows = textwrap.wrap(" ".join(there), 48) or [""]
        lines.append(f"  {name:21}{rows[0]:50}{meaning}")
        lines += [f"{'':23}{row}" for row in rows[1:]]
    lines += [f"{folder:23}{meaning}" for folder, meaning in FOLDERS]
    return "\n".join(("```text", *lines, "```"))


LENGTHS = "LognormalLengths"


def scenario_keys() -> str:
    """Every key of a scenario: a table for each mapping of the JSON schema, where it is first met."""
    from dspark_sim.scenario import json_schema

    schema = json_schema()
    waiting: list[tuple[str, list[str]]] = [("The file", [""])]  # heading, definitions (a union: told apart by a word)
    met, parts = {""}, []
    while waiting:
        heading, names = waiting.pop(0)
        rows: list[tuple[str, ...]] = []
        inner: list[tuple[str, list[str]]] = []
        for name in names:
            part = schema["$defs"][name] if name else schema
            part = next((p for p in part.get("anyOf", ()) if "properties" in p), part)
            which = f" ({_constant(part)})" if len(names) > 1 else ""
            for key, value in part["properties"].items():
                need = "needed" if key in part.get("required", ()) else _default(value)
                rows.append((f"`{key}`{which if 'const' not in value else ''}", _type(value), need,
                             value.get("description", "").replace("``", "`")))
                below = list(dict.fromkeys(_references(value)))
                if below and not met.issuperset(below):
                    met.update(below)
                    inner.append((_heading(heading, key, value, below), below))
        parts.append(f"#### {heading}\n\n" + table(("key", "type", "default", "meaning"), rows))
        waiting = inner + waiting
    left = set(schema["$defs"]) - met
    assert not left, f"definitions of the schema that no key leads to: {left}"
    return "\n".join(parts)


def _references(value: Any) -> list[str]:
    """Names of all definitions that a key's schema refers to."""
    if isinstance(value, dict):
        own = [value["$ref"].rsplit("/", 1)[1]] if "$ref" in value else []
        return own + [name for key, part in value.items() if key != "discriminator" for name in _references(part)]
    return [name for part in value for name in _references(part)] if isinstance(value, list) else []


def _heading(parent: str, key: str, value: dict[str, Any], below: list[str]) -> str:
    if LENGTHS in below:
        return "Lengths: prompt_tokens, output_tokens"
    base = parent.strip("`") + "." if parent.startswith("`") else ""
    return f"`{base}{key}{'[]' if value.get('type') == 'array' else ''}`"


def _constant(part: dict[str, Any]) -> str:
    return next(str(v["const"]) for v in part["properties"].values() if "const" in v)


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    if default is None or isinstance(default, dict) or default == "":
        return "–"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        return "text or mapping" if name == "PolicyChoice" else "mapping"
    if "oneOf" in value:
        return "lengths" if LENGTHS in _references(value) else "mapping"
    if "anyOf" in value:
        return " or ".join(_type(part) for part in value["anyOf"] if part.get("type") != "null")
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return " or ".join(f"`{word}`" for word in value["enum"])
    if value.get("type") == "array":
        item = _type(value.get("items", {})).split(",")[0]
        return "list of lists" if item.startswith("list") else f"list of {item}s"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    word = words.get(value.get("type", ""), "mapping")
    low, above, high = (_plain(value.get(key)) for key in ("minimum", "exclusiveMinimum", "maximum"))
    if not high:
        return f"{word}, {low} or more" if low else word
    return f"{word}, {low} to {high}" if low else f"{word}, above {above}, to {high}"


def _plain(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}" if number == int(number) else f"{number:g}"


GENERATED: dict[str, Callable[[], str]] = {
    "policies": policies, "profiles": profiles, "traces": traces, "scenario-keys": scenario_keys, "house": house,
}


def generated(page: str) -> str:
    """The page with every generated section made anew."""
    for name, make in GENERATED.items():
        start, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
        if start in page:
            before, rest = page.split(start, 1)
            page = f"{before}{start}\n{make().strip()}\n\n{end}{rest.split(end, 1)[1]}"
    return page


# -- pages ------------------------------------------------------------------------------------------------------------
def refresh(path: Path, slow: bool) -> None:
    """Run a page's blocks as they stand and write what they print and draw."""
    page = generated(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        doc_blocks.furnish(folder)
        printed: list[tuple[doc_blocks.Block, str]] = []
        for block in doc_blocks.blocks(page):
            if "file" in block.marks:
                doc_blocks.place(block, folder)
            elif block.runs or (slow and "slow" in block.marks):
                print(f"{path.name}:{block.line}", flush=True)
                done = doc_blocks.run(block, folder)
                if done.returncode:
                    raise SystemExit(f"{path}:{block.line} failed\n{done.stdout}\n{done.stderr}")
                if block.output is not None:
                    printed.append((block.output, done.stdout))
        for block, text in reversed(printed):
            page = doc_blocks.replaced(page, block, text)
        for to, source in doc_blocks.images(page):
            size = (folder / source).stat().st_size
            if size > MAX_IMAGE:
                raise SystemExit(f"{source}: {size} bytes, at most {MAX_IMAGE}")
            (ROOT / to).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / source, ROOT / to)
    path.write_text(page, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Bring README.md and docs/ up to date")
    parser.add_argument("page", nargs="*", default=PAGES)
    parser.add_argument("--slow", action="store_true", help="also run the benchmarks that pages quote")
    arguments = parser.parse_args()
    for page in arguments.page:
        refresh(ROOT / page, arguments.slow)


if __name__ == "__main__":
    main()
