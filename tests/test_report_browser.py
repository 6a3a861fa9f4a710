"""Reports in a real browser, without a window: no errors, no requests, no overflow, and tables that sort."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from dspark_sim.report import write_report
from tests.report_inputs import browse, evil_run, small_sweep

# Appended to the page: waits for everything, then writes what it found into the document's title.
PROBE = """
<script>
window.addEventListener("load", function () {
  var out = { errors: window.seen || [] }, root = document.documentElement;
  document.querySelectorAll("details").forEach(function (d) { d.open = true; });
  out.width = window.innerWidth;
  out.content = Math.max(root.scrollWidth, document.body.scrollWidth);
  out.wide = Array.from(document.querySelectorAll("body *")).filter(function (e) {
    return e.getBoundingClientRect().right > window.innerWidth + 1 && !e.closest(".scroll") && !e.closest("pre");
  }).map(function (e) { return e.tagName + "." + e.className; });
  out.scrolls = Array.from(document.querySelectorAll(".scroll")).some(function (e) {
    return e.scrollWidth > e.clientWidth;
  });
  out.pictures = Array.from(document.images).map(function (i) { return i.naturalWidth; });
  out.background = getComputedStyle(document.body).backgroundColor;
  var table = document.querySelector("#comparison table"), head;
  function column(name) {
    var index = Array.from(table.tHead.rows[0].cells).findIndex(function (c) {
      return c.querySelector(".name").firstChild.textContent === name;
    });
    head = table.tHead.rows[0].cells[index];
    return function () {
      return Array.from(table.tBodies[0].rows).map(function (r) { return r.cells[index].getAttribute("data-sort"); });
    };
  }
  var read = column("throughput");
  out.given = read();
  head.querySelector("button").click(); out.once = read(); out.aria = head.getAttribute("aria-sort");
  head.querySelector("button").click(); out.twice = read();
  head.querySelector("button").click(); out.thrice = read();
  read = column("arm"); head.querySelector("button").click(); out.names = read();
  out.requests = performance.getEntriesByType("resource").map(function (r) { return r.name; })
    .filter(function (n) { return n.indexOf("data:") !== 0; });
  document.title = "PROBE" + encodeURIComponent(JSON.stringify(out));
});
</script>
"""
CATCH = ('<script>window.seen = []; window.boom = function (x) { window.seen.push("boom " + x); };\n'
         'window.addEventListener("error", function (e) { window.seen.push(String(e.message || e.target)); }, true);\n'
         'window.addEventListener("securitypolicyviolation", function (e) { window.seen.push(e.blockedURI); });'
         "</script>")
PHONE, DESK = 360, 1400


@pytest.fixture(name="page", scope="module")
def _page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with nasty names, with our probe in it."""
    folder = evil_run(tmp_path_factory.mktemp("evil"))
    (path,) = write_report(folder)
    text = path.read_text(encoding="utf-8")
    text = text.replace("<head>", f"<head>{CATCH}", 1).replace("</body>", f"{PROBE}</body>", 1)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(name="sweep", scope="module")
def _sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a sweep over two keys, with the same probe."""
    (path,) = write_report(small_sweep(tmp_path_factory.mktemp("sweep")))
    text = path.read_text(encoding="utf-8").replace('id="points"', 'id="comparison"')
    path.write_text(text.replace("<head>", f"<head>{CATCH}", 1).replace("</body>", f"{PROBE}</body>", 1),
                    encoding="utf-8")
    return path


def probe(page: Path, profile: Path, width: int, *options: str) -> dict[str, object]:
    """In a frame of ``width``: a browser without a window has a smallest width of its own (500)."""
    if width >= 500:
        dom, log = browse(page, profile, f"--window-size={width},1200", *options)
    else:
        frame = page.with_name(f"frame-{width}.html")
        # the frame's own document tells its parent by message, for a file may not look into another
        text = page.read_text(encoding="utf-8").replace(
            'document.title = "PROBE"', 'parent.postMessage("PROBE" + encodeURIComponent(JSON.stringify(out)), "*"); '
            'document.title = "x"')
        inner = page.with_name(f"inner-{width}.html")
        inner.write_text(text, encoding="utf-8")
        frame.write_text(
            '<script>addEventListener("message", function (e) { document.title = e.data; });</script>'
            f'<iframe src="{inner.name}" style="width:{width}px;height:1200px;border:0"></iframe>', encoding="utf-8")
        dom, log = browse(frame, profile, *options)
    found = re.search(r"<title>PROBE(.*?)</title>", dom)
    assert found is not None, log + dom[:2000]
    assert not re.search(r"CONSOLE|Refused to|ERR_", log), log
    out: dict[str, object] = json.loads(unquote(found.group(1)))
    assert out["width"] == width
    return out


@pytest.mark.parametrize("width", [PHONE, 768, DESK])
def test_fits_and_is_quiet(page: Path, tmp_path: Path, width: int) -> None:
    got = probe(page, tmp_path / "profile", width)
    assert got["errors"] == []
    assert got["requests"] == []
    assert got["content"] <= width, got["wide"]  # type: ignore[operator]
    assert got["wide"] == []
    assert len(got["pictures"]) == 10  # type: ignore[arg-type]
    assert all(w > 500 for w in got["pictures"])  # type: ignore[attr-defined]
    if width == PHONE:
        assert got["scrolls"] is True  # the wide table scrolls inside its frame


def test_a_sweep_fits_and_is_quiet(sweep: Path, tmp_path: Path) -> None:
    for width in (PHONE, DESK):
        got = probe(sweep, tmp_path / f"profile-{width}", width)
        assert (got["errors"], got["requests"], got["wide"]) == ([], [], [])
        assert got["content"] <= width  # type: ignore[operator]
        assert len(got["pictures"]) == 6  # type: ignore[arg-type]


def test_tables_sort_with_undefined_last(page: Path, tmp_path: Path) -> None:
    got = probe(page, tmp_path / "profile", DESK)
    given = got["given"]
    assert isinstance(given, list)
    known = sorted((float(v) for v in given if v is not None), reverse=True)
    assert given.count(None) == 1  # the arm that failed

    def numbers(key: str) -> list[float | None]:
        return [None if v is None else float(v) for v in got[key]]  # type: ignore[attr-defined]

    assert numbers("once") == [*known, None]
    assert numbers("twice") == [*known[::-1], None]
    assert got["thrice"] == given
    assert got["aria"] == "descending"
    assert sorted(got["names"]) == sorted(set(got["names"]))  # type: ignore[call-overload]


def test_light_and_dark(page: Path, tmp_path: Path) -> None:
    light = probe(page, tmp_path / "light", DESK, "--blink-settings=preferredColorScheme=1")
    dark = probe(page, tmp_path / "dark", DESK, "--blink-settings=preferredColorScheme=0")
    assert light["background"] == "rgb(255, 255, 255)"
    assert dark["background"] == "rgb(20, 23, 26)"
