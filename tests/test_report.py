"""Reports: what is in them, that names stay names, that nothing leaves the file, and what damaged folders get."""

from __future__ import annotations

import csv
import html.parser
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dspark_sim
from dspark_sim import cli
from dspark_sim.errors import InputError
from dspark_sim.report import write_report
from dspark_sim.report.table import FIGURES, figure_cell
from dspark_sim.results import HEADLINE, MORE
from dspark_sim.trace import load_trace
from tests.report_inputs import EVIL, evil_run
from tests.small_world import make

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, text outside scripts and styles, and whether tags match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evil_run(tmp_path_factory.mktemp("evil"))


@pytest.fixture(name="page", scope="module")
def _page(folder: Path) -> str:
    (path,) = write_report(folder)
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


@pytest.fixture(name="drawn")
def _drawn(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where pictures are not the point: one that takes no time."""
    picture = tmp_path_factory.mktemp("drawn") / "throughput.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    monkeypatch.setattr("dspark_sim.report._draw", lambda source, place: ([picture], []))


def test_names_stay_names(page: str) -> None:
    """Nothing of the user's becomes markup: one script, ours; no handlers; and every name can be read."""
    read = Reader(page)
    assert len(read.named("script")) == 1
    assert not [a for _, a in read.elements if any(name.startswith("on") for name in a)]
    assert not [i for i in read.named("img") if not str(i["src"]).startswith("data:image/png;base64,")]
    assert "<b>" not in page
    for words in (EVIL, "hard<b>ware 'h'", "\"><img src=x onerror=boom(1)>&amp; 'q'", "mine <b>'q'.py",
                  "It answers </p><script>boom(2)</script> nothing."):
        assert words in read.words, words


def test_nothing_leaves_the_file(page: str) -> None:
    read = Reader(page)
    for tag, attributes in read.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            address = attributes.get(name)
            assert address is None or address.startswith(("data:", "#")), (tag, name, address)
    style = page[page.index("<style>"):page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    script = page[page.rindex("<script>"):]
    assert not re.search(r"fetch|XMLHttp|WebSocket|import\(|eval|innerHTML", script)
    assert "default-src 'none'" in page


def test_reads_without_javascript(page: str) -> None:
    """What the script adds are the buttons that sort; every word and number is there without it."""
    read = Reader(page)
    assert read.named("button") == []
    assert len(read.named("table")) == 3
    assert len(read.named("tr")) == 3 + 6 + 6 + 10  # heads; arms; arms; arms that have figures times classes


def test_warnings_come_first_and_failures_before_them(page: str) -> None:
    words = Reader(page).words
    order = ["What to doubt", "broken failed and has no figures", "synthetic input", "Results", "Pictures",
             "What the figures rest on", "Inputs and where they come from", "How to make this again"]
    spots = [words.index(w, words.index("What to doubt")) for w in order]
    assert spots == sorted(spots)
    assert "not lossless" in words


def test_figures_are_those_of_the_summary(folder: Path, page: str) -> None:
    arms = {a["arm"]: a for a in json.loads((folder / "summary.json").read_text())["arms"]}
    words = Reader(page).words
    for arm in ("no-spec", "fixed-3", "async"):
        figure = arms[arm]["throughput_tok_s_gpu"]
        assert figure_cell(FIGURES["throughput_tok_s_gpu"], figure["mean"]).text in words
    assert "Most throughput of the lossless arms: " in words
    best = max((a for a in arms.values() if a["lossless"] and not a["error"]),
               key=lambda a: a["throughput_tok_s_gpu"]["mean"])
    assert f"arms: {best['arm']} with" in words


def test_every_input_has_its_provenance(folder: Path, page: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    words = Reader(page).words
    for facts in (*manifest["profiles"].values(), *manifest["traces"].values()):
        assert facts["sha256"] in words
    for arm in manifest["arms"]:
        assert arm["policy"]["sha256"] in words
    assert "made up: it shows how things work" in words
    assert "a constant of the test" in words  # the drafter's assumption
    for line in manifest["assumptions"]:
        assert " ".join(line.split()) in words
    assert manifest["python"] in words
    assert "dspark_sim.run(" in words  # made from Python, so there is no command


def test_pictures_have_alt_texts_and_captions(page: str) -> None:
    read = Reader(page)
    pictures = read.named("img")
    assert len(pictures) == 10
    for picture in pictures:
        assert len(str(picture["alt"])) > 40
        assert not str(picture["alt"]).startswith("Picture ")
        assert int(str(picture["width"])) > 500
    assert len(read.named("figcaption")) == 10
    assert "tok/s/GPU, " in str(pictures[0]["alt"])
    assert "no-spec" in str(pictures[0]["alt"])


def test_same_run_same_report(folder: Path, page: str, tmp_path: Path) -> None:
    (again,) = write_report(folder, tmp_path / "again.html")
    assert again.read_text(encoding="utf-8") == page


@pytest.mark.usefixtures("drawn")
def test_csv_and_png_beside_it(folder: Path, tmp_path: Path) -> None:
    files = write_report(folder, tmp_path / "r.html", csv=True, png=True)
    assert {f.name for f in files} == {p.name for p in tmp_path.iterdir()}
    expected = {"r.html", "r-comparison.csv", "r-engine.csv", "r-classes.csv", "r-throughput.png"}
    assert expected <= {f.name for f in files}
    with (tmp_path / "r-comparison.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    arms = json.loads((folder / "summary.json").read_text())["arms"]
    assert [r["arm"] for r in rows] == [a["arm"] for a in arms]
    assert float(rows[1]["throughput_tok_s_gpu"]) == arms[1]["throughput_tok_s_gpu"]["mean"]
    broken = next(r for r in rows if r["arm"] == "broken")
    assert broken["throughput_tok_s_gpu"] == ""
    assert (tmp_path / "r-throughput.png").read_bytes().startswith(b"\x89PNG")


def test_every_figure_has_words() -> None:
    assert set(HEADLINE) | set(MORE) <= set(FIGURES)
    assert all(c.help for c in FIGURES.values())


def test_run_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = make(tmp_path)
    dspark_sim.run(scenario, tmp_path / "drawn", plots=True, overrides={"replications": 1})
    drawn = (tmp_path / "drawn" / "report.html").read_text(encoding="utf-8")
    assert len(Reader(drawn).named("img")) == len(list((tmp_path / "drawn" / "plots").glob("*.png"))) == 10
    assert "one replication: no interval can be given" in Reader(drawn).words
    (again,) = write_report(tmp_path / "drawn", tmp_path / "again.html")
    assert again.read_text(encoding="utf-8") == drawn


def test_a_trace_that_changed_is_named_not_drawn(tmp_path: Path) -> None:
    dspark_sim.run(make(tmp_path), tmp_path / "out", overrides={"replications": 1})
    path = tmp_path / "traces" / "dspark.parquet"
    replace(load_trace(path), provenance={"source": "another test"}).save(path)
    (report,) = write_report(tmp_path / "out")
    read = Reader(report.read_text(encoding="utf-8"))
    assert len(read.named("img")) == 8
    assert "the trace that the run used cannot be read any more (it has changed since)" in read.words


def damage(name: str, text: str) -> object:
    def do(folder: Path) -> None:
        (folder / name).write_text(text)

    return do


def remove(name: str) -> object:
    def do(folder: Path) -> None:
        (folder / name).unlink()

    return do


def edit(name: str, key: str, value: object) -> object:
    def do(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        data[key] = value
        (folder / name).write_text(json.dumps(data))

    return do


@pytest.mark.parametrize(("harm", "words"), [
    (remove("manifest.json"), "no manifest.json"),
    (damage("manifest.json", "{"), "manifest.json: is damaged"),
    (damage("manifest.json", "[]"), "lacks format"),
    (damage("manifest.json", '{"format": "somebody else 7"}'), "lacks scenario"),
    (edit("manifest.json", "format", "dspark-sim run 9"), "'dspark-sim run 9'"),
    (remove("summary.json"), "summary.json: cannot be read"),
    (damage("summary.json", "\0\1"), "summary.json: is damaged"),
    (edit("summary.json", "arms", [{"arm": "x"}]), "is damaged"),
    (edit("summary.json", "arms", 7), "is damaged"),
    (edit("manifest.json", "profiles", {"p": {}}), "is damaged"),
    (remove("intervals.parquet"), "intervals.parquet: is missing"),
    (damage("requests.parquet", "PAR1 not really"), "requests.parquet: is damaged"),
    (damage("steps.parquet", ""), "steps.parquet: is damaged"),
    (lambda run: shutil.copyfile(run / "requests.parquet", run / "intervals.parquet"), "FieldRef.Name"),
])
def test_a_damaged_folder_gets_one_clear_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], harm: object,
    words: str,
) -> None:
    shutil.copytree(folder, tmp_path / "run", ignore=shutil.ignore_patterns("report.html"))
    harm(tmp_path / "run")  # type: ignore[operator]
    assert call(monkeypatch, "report", tmp_path / "run") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert words in said.err
    assert not (tmp_path / "run" / "report.html").exists()


def call(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    monkeypatch.setattr(sys, "argv", ["dspark-sim", *map(str, args)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


@pytest.mark.usefixtures("drawn")
def test_command_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my report.html"
    assert call(monkeypatch, "report", folder, "--out", out, "--open", "no", "--csv") == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert "files beside it" in said.err
    for wrong, words in ((tmp_path / "nothing", "is not there"), (out, "is no folder"), (tmp_path, "no manifest.json")):
        assert call(monkeypatch, "report", wrong) == 2
        assert words in capsys.readouterr().err
    assert call(monkeypatch, "report", folder, "--out", tmp_path) == 2
    assert "is a folder" in capsys.readouterr().err
    with pytest.raises(InputError, match="its folder does not exist"):
        write_report(folder, tmp_path / "no" / "r.html")


@pytest.mark.usefixtures("drawn")
def test_opens_a_browser_only_when_asked_or_watched(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    monkeypatch.setenv("DISPLAY", ":0")
    out = tmp_path / "r.html"
    assert call(monkeypatch, "report", folder, "--out", out) == 0  # stdout is no terminal here
    assert opened == []
    assert call(monkeypatch, "report", folder, "--out", out, "--open", "yes") == 0
    assert opened == [out.resolve().as_uri()]
