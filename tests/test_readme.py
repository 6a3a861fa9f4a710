"""README.md and docs/ say what is: their blocks run, print what they show, and their tables are complete.

When a page is out of date, ``python tools/refresh_docs.py`` (or ``make docs``) brings it up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dspark_sim.results import HEADLINE, MORE

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import doc_blocks  # noqa: E402
import refresh_docs  # noqa: E402

RENEW = "python tools/refresh_docs.py renews it"
MAX_IMAGE = 256_000


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=refresh_docs.PAGES)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A page whose blocks have run in order in a folder, outputs compared."""
    name, folder = request.param, tmp_path_factory.mktemp("page")
    doc_blocks.furnish(folder)
    for block in doc_blocks.blocks(page(name)):
        where = f"{name}:{block.line}"
        if "file" in block.marks:
            doc_blocks.place(block, folder)
        elif block.runs or "slow" in block.marks:
            done = doc_blocks.run(block, folder, command=block.marks.get("slow"))
            assert done.returncode == 0, f"{where} fails\n{done.stdout}\n{done.stderr}"
            if block.output is not None and "slow" not in block.marks:
                wrong = doc_blocks.differences(block.output.text, done.stdout)
                assert not wrong, f"{where} prints something else; {RENEW}\n" + "\n".join(wrong)
            elif block.output is not None:
                printed = set(doc_blocks.shape(done.stdout))
                assert printed & set(doc_blocks.shape(block.output.text)), f"{where} prints other lines; {RENEW}"
        else:
            assert block.language not in doc_blocks.RUN or "skip" in block.marks, where
    return name, folder


def test_blocks_run_and_print_what_is_shown(played: tuple[str, Path]) -> None:
    name, folder = played
    for to, source in doc_blocks.images(page(name)):
        assert (folder / source).is_file(), f"{name}: no command makes {source}, from which {to} comes"


@pytest.mark.parametrize("name", refresh_docs.PAGES)
def test_generated_tables_are_up_to_date(name: str) -> None:
    text = page(name)
    assert refresh_docs.generated(text) == text, f"{name} has an old table; {RENEW}"


@pytest.mark.parametrize("name", [*refresh_docs.PAGES, "CHANGELOG.md"])
def test_pictures_and_links_exist(name: str) -> None:
    text, home = page(name), (ROOT / name).parent
    made = {to for to, _ in doc_blocks.images(text)}
    for picture in doc_blocks.linked_images(text):
        path = (home / picture).resolve()
        assert path.is_file(), f"{name}: no picture {picture}; {RENEW}"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size <= MAX_IMAGE, f"{picture} is too large"
        command = r"^\*Written by `(?:dspark-sim|python tools/lab_report\.py)[^`]*`"
        whole_page = re.search(command, text, re.MULTILINE)  # a command makes all of it
        assert whole_page or path.relative_to(ROOT).as_posix() in made, f"{name}: say which command makes {picture}"
    for link in re.findall(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if not target.startswith("http"):
            assert (home / target).exists(), f"{name}: broken link {link}"
            if anchor:
                linked = (home / target if target else ROOT / name).read_text(encoding="utf-8")
                titles = re.findall(r"^#+ (.+)$", linked, re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}, link


@pytest.mark.parametrize("name", refresh_docs.PAGES)
def test_commands_named_in_pages_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", page(name), re.MULTILINE)) <= targets
    for script in re.findall(r"\btools/\w+\.py", page(name)):
        assert (ROOT / script).is_file(), f"{name}: no {script}"


def test_house_shows_every_module() -> None:
    (house,) = (b.text for b in doc_blocks.blocks(page("README.md")) if b.text.startswith("dspark_sim/"))
    for path in (ROOT / "dspark_sim").iterdir():
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py"))):
            assert re.search(rf"(?<!\w){path.stem}(?!\w)", house), f"README's house has no {path.stem}; {RENEW}"


# -- docs/file-formats.md is complete ---------------------------------------------------------------------------------
def listed(heading: str) -> list[str]:
    """Names in the first column of the table under a heading."""
    section = page("docs/file-formats.md").split(f"### {heading}\n", 1)[1].split("\n#", 1)[0]
    cells = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("name", ["steps", "intervals", "requests", "lengths"])
def test_every_column_is_documented(name: str, tmp_path: Path) -> None:
    import dspark_sim

    small = {"replications": 1, "measure.warmup_s": 0, "measure.duration_s": 1}
    dspark_sim.run("quickstart", tmp_path / "out", overrides=small)
    assert listed(f"{name}.parquet") == pq.read_schema(tmp_path / "out" / f"{name}.parquet").names


def test_every_figure_is_documented() -> None:
    figures = [n for n in listed("summary.json and summary.csv") if n != "figure"]
    assert sorted(figures) == sorted({*HEADLINE, *MORE})


def test_every_key_of_profiles_and_traces_is_documented() -> None:
    from dspark_sim.parametric import Spec
    from dspark_sim.profile_schema import ProfileSpec

    prose = re.sub(r"^```.*?^```$", "", page("docs/file-formats.md"), flags=re.MULTILINE | re.DOTALL)
    words = set(re.findall(r"`([^`]+)`", prose))
    for model in (ProfileSpec, Spec):
        schema = model.model_json_schema()
        for part in (schema, *schema["$defs"].values()):
            missing = set(part.get("properties", ())) - words
            assert not missing, f"docs/file-formats.md says nothing of {sorted(missing)} ({part['title']})"


def test_differences_sees_differences() -> None:
    shown = "arm   speed\nfast  1,000 ±3\n"
    assert not doc_blocks.differences(shown, "arm  speed\nfast   1,010 ±9")
    assert doc_blocks.differences(shown, "arm  speed\nfast   1,200 ±3")
    assert doc_blocks.differences(shown, "arm  speed\nslow   1,000 ±3")
    assert doc_blocks.differences(shown, "arm  speed")


def test_ci_runs_the_command_that_readme_names() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run is not executable"
    assert re.search(r"^(exec )?make .*\btest$", script.read_text(), re.MULTILINE)
    assert "make test" in page("README.md")
