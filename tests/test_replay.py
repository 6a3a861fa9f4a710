"""Readers of traffic logs, and what playing one back does to it: nothing is lost, moved or invented without a word."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_sim.arrival_schema import Replay, Thin
from dspark_sim.replay import Played, ReplayStream, play, prepare_replay
from dspark_sim.replay_log import tick_of
from dspark_sim.replay_read import read_log
from dspark_sim.scenario_schema import RequestClass, Workload

AZURE = ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
         "2023-11-16 18:17:04.0319600,3180,8\r\n2023-11-16 18:18:04,110,27\r\n")
BURST = ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
         "45,GPT-4,1087,230,1317,API log\n118,ChatGPT,417,0,417,Conversation log\n")
PLAIN = "arrival_s,prompt_tokens,output_tokens,class,session\n0.5,10,3,a,s1\n1.5,20,4,b,\n1.5,30,5,a,s1\n\n"
SERVEGEN = ("arrived_at_s,input_tokens,output_tokens,reason_ratio,client_id\n0.0000,184,826,0.95,23\n"
            "0.25,238,629,0.76,4\n")
MOONCAKE = "".join(json.dumps({"timestamp": t, "input_length": p, "output_length": o, "hash_ids": h}) + "\n"
                   for t, p, o, h in ((0, 1100, 5, [0, 1, 2]), (250, 600, 6, [0, 3]), (3000, 1600, 7, [0, 1, 4, 5])))


def written(folder: Path, text: str, name: str = "log") -> Path:
    (folder / name).write_text(text)
    return folder / name


def log_of(n: int, folder: Path, *, rate: float = 10.0, seed: int = 0, sessions: int = 0, tick: float = 0.0) -> Path:
    """A plain CSV of n Poisson requests."""
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.exponential(1 / rate, n))
    t = np.floor(t / tick) * tick if tick else t
    head, more = "arrival_s,prompt_tokens,output_tokens", rng.integers(0, max(sessions, 1), n)
    rows = [f"{a:.6f},{1 + i % 999},{1 + i % 77}" + (f",{s}" if sessions else "")
            for i, (a, s) in enumerate(zip(t, more, strict=True))]
    head += ",session" if sessions else ""
    return written(folder, "\n".join([head, *rows]), f"log{n}-{rate}-{sessions}-{tick}")


def played(path: Path, replication: int = 0, seed: int = 1, **options: Any) -> tuple[Replay, Played]:
    replay = Replay(kind="replay", file=path.name, **options)
    prepare_replay(replay, path.parent, seed, replication + 1)
    return replay, play(replay, seed, replication)


# -- readers -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("text", "name", "arrival", "prompt", "output"), [
    (AZURE, "azure", [0, 0.052, 60.02004], [4808, 3180, 110], [10, 8, 27]),
    (BURST, "burstgpt", [5, 45], [472, 1087], [18, 230]),
    (PLAIN, "csv", [0.5, 1.5, 1.5], [10, 20, 30], [3, 4, 5]),
    (SERVEGEN, "csv", [0, 0.25], [184, 238], [826, 629]),
    (MOONCAKE, "mooncake", [0, 0.25, 3.0], [1100, 600, 1600], [5, 6, 7]),
])
def test_every_format_is_read_plain_and_gzipped(
    tmp_path: Path, packed: bool, text: str, name: str, arrival: list[float], prompt: list[int], output: list[int]
) -> None:
    path = tmp_path / "log.txt"  # the name says nothing
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    for stated in ("auto", name):
        log = read_log(path, stated)
        assert log.format == name
        assert log.arrival.tolist() == pytest.approx(arrival, abs=1e-9)
        assert log.prompt.tolist() == prompt
        assert log.output.tolist() == output
        with pytest.raises(ValueError, match="read-only"):
            log.prompt[0] = 1


def test_columns_beyond_the_needed_ones(tmp_path: Path) -> None:
    plain = read_log(written(tmp_path, PLAIN, "a"))
    assert plain.classes == ("a", "b")
    assert plain.class_code is not None
    assert plain.class_code.tolist() == [0, 1, 0]
    assert plain.session is not None
    assert plain.session.tolist() == [0, -1, 0]
    burst = read_log(written(tmp_path, BURST, "b"), class_column="Log Type")
    assert burst.classes == ("Conversation log", "API log")
    assert burst.dropped == (1, 4)
    served = read_log(written(tmp_path, SERVEGEN, "c"))
    assert served.client is not None
    assert served.client.tolist() == [0, 1]
    assert served.session is None
    moon = read_log(written(tmp_path, MOONCAKE, "d"))
    assert [moon.prefix(i) for i in range(3)] == [(0, 1, 2), (0, 3), (0, 1, 4, 5)]
    assert moon.session is not None
    assert moon.session.tolist() == [0, 1, 0]  # block 0 begins every prompt, block 1 those of one conversation


def test_rows_dropped_and_sorted_keep_their_own_prefixes(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in MOONCAKE.splitlines()]
    rows[1]["output_length"] = 0
    rows = [rows[2], rows[1], rows[0]]
    path = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    log = read_log(path, unordered="sort")
    assert log.prompt.tolist() == [1100, 1600]
    assert [log.prefix(i) for i in range(2)] == [(0, 1, 2), (0, 1, 4, 5)]
    assert log.dropped == (1, 2)
    assert log.line.tolist() == [3, 1]


def test_a_file_of_many_pieces_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log_of(5000, tmp_path, sessions=50)
    whole = read_log(path)
    monkeypatch.setattr("dspark_sim.replay_csv.BLOCK", 1000)
    path.touch()  # remembered files are those that did not change
    pieces = read_log(path)
    assert pieces is not whole
    assert whole.rows == 5000
    for name in ("arrival", "prompt", "output", "line", "session"):
        assert np.array_equal(getattr(pieces, name), getattr(whole, name)), name


def test_reading_imports_no_pandas(tmp_path: Path) -> None:
    written(tmp_path, PLAIN, "plain.csv")
    code = ("import sys; from pathlib import Path; from dspark_sim.replay_read import read_log; "
            f"assert read_log(Path({str(tmp_path / 'plain.csv')!r})).rows == 3; sys.exit('pandas' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# -- playing back --------------------------------------------------------------------------------------------------
def test_untouched_every_row_is_played_as_it_stands(tmp_path: Path) -> None:
    replay, got = played(log_of(1000, tmp_path))
    assert np.array_equal(got.arrival, replay.log.arrival)
    assert np.array_equal(got.row, np.arange(1000))
    assert not got.copy.any()


def test_a_window_is_half_open_and_begins_at_its_start(tmp_path: Path) -> None:
    path = written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n1,1,1\n2,2,2\n3,3,3\n4,4,4\n")
    _, got = played(path, window=(2.0, 4.0))
    assert (got.row.tolist(), got.arrival.tolist()) == ([1, 2], [0.0, 1.0])
    _, late = played(path, window=(1.5, 10.0), time_scale=2.0)
    assert late.arrival.tolist() == [1.0, 3.0, 5.0]


def test_time_scale_keeps_the_cv_of_gaps(tmp_path: Path) -> None:
    replay, got = played(log_of(1000, tmp_path), time_scale=0.25)
    assert np.allclose(got.arrival, replay.log.arrival * 0.25, rtol=1e-15)


@pytest.mark.parametrize("scale", [0.3, 1.5, 3.0, 2.25])
def test_rate_scale_multiplies_counts_in_the_same_time(tmp_path: Path, scale: float) -> None:
    replay, got = played(log_of(20_000, tmp_path), rate_scale=scale)
    copies = np.bincount(got.row, minlength=20_000)
    assert set(copies.tolist()) <= {int(np.floor(scale)), int(np.ceil(scale))}
    fraction = scale - np.floor(scale)
    sd = np.sqrt(20_000 * fraction * (1 - fraction))
    assert abs(copies.sum() - 20_000 * scale) <= 4 * sd
    before = np.histogram(replay.log.arrival, bins=20, range=(0, 2000))[0]
    after = np.histogram(got.arrival, bins=20, range=(0, 2000))[0]
    assert np.abs(after - scale * before).max() < 5 * np.sqrt(before.max()) + 1
    assert np.all(np.diff(got.arrival) >= 0)


def test_copies_stay_inside_their_burst(tmp_path: Path) -> None:
    times = np.concatenate([np.arange(10) * 0.1, 1000 + np.arange(10) * 0.1])
    path = written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{t},5,5\n" for t in times))
    _, got = played(path, rate_scale=5)
    assert got.row.size == 100
    assert np.count_nonzero(got.arrival < 1.1) == 50
    assert np.count_nonzero(got.arrival > 999.9) == 50


def test_smaller_shares_and_rates_are_subsets(tmp_path: Path) -> None:
    path = log_of(3000, tmp_path)
    kept = [set(played(path, thin={"keep": k})[1].row.tolist()) for k in (0.2, 0.5, 0.9)]
    assert kept[0] < kept[1] < kept[2]
    rated = [np.bincount(played(path, rate_scale=r)[1].row, minlength=3000) for r in (0.4, 0.9, 1.0, 1.6)]
    assert all(np.all(a <= b) for a, b in itertools.pairwise(rated))
    assert kept[1] != set(played(path, thin={"keep": 0.5}, replication=1)[1].row.tolist())
    inside = played(path, thin={"keep": 0.5}, window=(100.0, 200.0))[1].row
    assert set(inside.tolist()) <= kept[1]  # a window does not change who is kept


def test_thinning_by_session_keeps_sessions_whole(tmp_path: Path) -> None:
    path = log_of(4000, tmp_path, sessions=300)
    replay, got = played(path, thin={"keep": 0.4})
    session = replay.log.session
    assert session is not None
    in_, out = set(session[got.row].tolist()), set(np.delete(session, got.row).tolist())
    assert not in_ & out
    assert len(in_) == pytest.approx(120, abs=40)
    _, single = played(path, thin={"keep": 0.4, "by": "request"})
    assert set(session[single.row].tolist()) & set(np.delete(session, single.row).tolist())


def test_thinning_keeps_the_bursts_of_the_rate(tmp_path: Path) -> None:
    """Requests kept independently with probability k: variance / mean of counts, less 1, shrinks to k times itself."""
    rng = np.random.default_rng(3)
    rate = np.repeat(rng.gamma(0.5, 40.0, 400), 10)  # per second, changes every 10 s
    counts = rng.poisson(rate)
    times = np.sort(np.repeat(np.arange(4000), counts) + rng.random(counts.sum()))
    path = written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{t:.6f},5,5\n" for t in times))
    replay, got = played(path, thin={"keep": 0.5})

    def excess(t: np.ndarray) -> float:
        n = np.histogram(t, bins=400, range=(0, 4000))[0]
        return float(n.var() / n.mean() - 1)

    assert excess(got.arrival) == pytest.approx(0.5 * excess(replay.log.arrival), rel=0.05)
    shape = [np.histogram(t, bins=400, range=(0, 4000))[0] for t in (replay.log.arrival, got.arrival)]
    assert np.corrcoef(*shape)[0, 1] > 0.99


# -- ticks ---------------------------------------------------------------------------------------------------------
def test_ticks_are_found_where_the_clock_is_coarse_and_nowhere_else() -> None:
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.exponential(0.4, 20_000))
    assert tick_of(np.floor(t)) == 1.0
    assert tick_of(np.floor(t * 10) / 10) == pytest.approx(0.1)
    jitter = np.floor(t / 3) * 3
    jitter += 0.003 * np.sin(jitter)
    assert tick_of(np.sort(jitter)) == pytest.approx(3.0, abs=0.01)
    for fine in (t, np.sort(np.repeat(t, 3)), np.floor(t * 1000) / 1000):
        assert tick_of(fine) is None
    assert tick_of(np.zeros(100)) is None


def test_spreading_fills_the_tick_in_the_order_of_rows(tmp_path: Path) -> None:
    path = log_of(20_000, tmp_path, rate=3.0, tick=2.0)
    replay, got = played(path)
    assert np.array_equal(got.row, np.arange(20_000))  # order kept
    inside = got.arrival - replay.log.arrival
    assert inside.min() >= 0
    assert inside.max() < 2.0
    assert np.histogram(inside, bins=8, range=(0, 2))[0] == pytest.approx(np.full(8, 2500), rel=0.1)
    gaps = np.diff(got.arrival)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)  # Poisson again
    assert not np.array_equal(got.arrival, played(path, replication=1)[1].arrival)
    _, flat = played(path, spread_ticks=False)
    assert np.array_equal(flat.arrival, replay.log.arrival)


# -- requests ------------------------------------------------------------------------------------------------------
def stream_of(path: Path, classes: list[RequestClass], **options: Any) -> ReplayStream:
    replay, _ = played(path, **options)
    return ReplayStream(Workload(arrival=replay, classes=tuple(classes)), 1, 0)


def test_requests_carry_lengths_sessions_prefixes_and_named_classes(tmp_path: Path) -> None:
    classes = [RequestClass(name="b", domain="x"), RequestClass(name="a", domain="y")]
    stream = stream_of(written(tmp_path, PLAIN), classes)
    got = [stream.take() for _ in range(stream.total)]
    assert [(r.id, r.class_index, r.prompt_tokens, r.output_tokens, r.session) for r in got] == [
        (0, 1, 10, 3, 0), (1, 0, 20, 4, None), (2, 1, 30, 5, 0)]
    moon = stream_of(written(tmp_path, MOONCAKE, "moon"), [RequestClass(name="a", domain="x")], rate_scale=2)
    twins = [moon.take() for _ in range(moon.total)]
    assert len(twins) == 6
    assert [r.prompt_tokens for r in twins] == [1100, 1100, 600, 600, 1600, 1600]
    first, copy = twins[:2]
    assert first.prefix == (0, 1, 2)
    assert not set(first.prefix) & set(copy.prefix)  # another user, another text
    assert (first.session, copy.session, first.text != copy.text) == (0, 2, True)
    assert twins[5].prefix[:2] == copy.prefix[:2]  # the copy's next turn finds the copy's blocks


def test_classes_by_share_are_the_same_for_a_session_and_under_any_thinning(tmp_path: Path) -> None:
    classes = [RequestClass(name="a", share=0.7, domain="x"), RequestClass(name="b", share=0.3, domain="x")]
    path = log_of(4000, tmp_path, sessions=800)
    whole = stream_of(path, classes)
    of = {r.id: r for r in (whole.take() for _ in range(4000))}
    by_session: dict[Any, set[int]] = {}
    for request in of.values():
        by_session.setdefault(request.session, set()).add(request.class_index)
    assert {len(found) for found in by_session.values()} == {1}
    assert np.mean([r.class_index for r in of.values()]) == pytest.approx(0.3, abs=0.06)
    replay, kept = played(path, thin={"keep": 0.5})
    part = ReplayStream(Workload(arrival=replay, classes=tuple(classes)), 1, 0)
    for row in kept.row.tolist():
        request = part.take()
        same = of[row]
        assert (request.class_index, request.text) == (same.class_index, same.text)
        assert (request.prompt_tokens, request.session) == (same.prompt_tokens, same.session)


def test_thin_models_are_strict() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        Thin(keep=0.0)
