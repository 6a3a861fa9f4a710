"""What the pictures of a run need, read from its folder once; no picture touches a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from dspark_sim.curve import StepCurve
from dspark_sim.record import gap_value

__all__ = ["RunData"]

_MAX_CLASSES = 6


class RunData:
    """A run folder for drawing.

    Attributes:
        arms: names of the arms that have figures, in the scenario's order.
        source: sentences on the inputs' kind and the run's size, for the foot of every picture.
        manifest, summary: the two JSON files.
        warmup: seconds not measured.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        self.summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        self._arms = {a["arm"]: a for a in self.summary["arms"] if a["throughput_tok_s_gpu"]["mean"] is not None}
        self.arms = list(self._arms)
        measure = self.manifest["scenario"]["resolved"]["measure"]
        self.warmup = float(measure.get("warmup_s") or 0.0) if measure["mode"] == "steady" else 0.0
        n = self.summary["replications"]
        profiles = {a["profile"] for a in self.manifest["arms"]}
        inputs = [f"profile {name} ({self.manifest['profiles'][name]['provenance']['kind']})" for name in profiles]
        inputs += [f"trace {name} ({t['kind']})" for name, t in self.manifest["traces"].items()]
        runs = f"{n} replications, intervals 95 %" if n > 1 else "1 replication, no intervals"
        self.source = [f"Simulated. Scenario {self.summary['scenario']}, seed {self.summary['seed']}, {runs}.",
                       "Inputs: " + "; ".join(inputs) + "."]

    def figure(self, arm: str, name: str) -> tuple[float, float, float]:
        """(mean, low, high); NaN where undefined, low = high = mean without an interval."""
        f = self._arms[arm][name]
        mean = np.nan if f["mean"] is None else f["mean"]
        low, high = f["ci95_low"], f["ci95_high"]
        return mean, mean if low is None else low, mean if high is None else high

    def mean(self, arm: str, name: str) -> float:
        """The mean alone, NaN where undefined."""
        return self.figure(arm, name)[0]

    def label(self, arm: str) -> str:
        """How pictures call an arm: its label, its name where it has none."""
        for stated in self.manifest["scenario"]["resolved"]["arms"]:
            if stated["name"] == arm:
                return str(stated.get("label") or arm)
        return arm

    def lossless(self, arm: str) -> bool:
        """The claim of the arm's policy."""
        return bool(self._arms[arm]["lossless"])

    def curves(self) -> dict[str, StepCurve]:
        """The verify curve of each profile that an arm runs on."""
        out = {}
        for name in dict.fromkeys(a["profile"] for a in self.manifest["arms"] if a["name"] in self._arms):
            v = self.manifest["profiles"][name]["verify"]
            out[name] = StepCurve(np.array(v["batch_tokens"]), np.array(v["seconds"]), v["between"], v["graph_limit"],
                                  v["extrapolate"])
        return out

    def acceptance(self) -> tuple[list[str], dict[tuple[str, str], npt.NDArray[np.float64]]]:
        """Classes (the largest few), and per (arm, class) the acceptance length of each finished request."""
        table = pq.read_table(self.folder / "requests.parquet",
                              columns=["arm", "class", "finished", "steps", "accepted", "drafted"])
        arm = np.asarray(table["arm"].to_pylist(), dtype=object)
        group = np.asarray(table["class"].to_pylist(), dtype=object)
        finished, steps, accepted, drafted = (np.asarray(table[c].to_numpy(), dtype=np.float64)
                                              for c in ("finished", "steps", "accepted", "drafted"))
        inside = (finished > self.warmup) & (steps > 0)
        names, counts = np.unique(group[inside].astype(str), return_counts=True)
        big = set(names[np.argsort(-counts)][:_MAX_CLASSES])
        order = [c["name"] for c in self.manifest["scenario"]["resolved"]["workload"]["classes"] if c["name"] in big]
        out = {}
        for a in self.arms:
            for g in order:
                rows = inside & (arm == a) & (group == g)
                if drafted[rows].sum() > 0:
                    out[a, g] = 1.0 + accepted[rows] / steps[rows]
        return order, out

    def verified(self) -> dict[str, npt.NDArray[np.int64]]:
        """Per arm with a drafter, (G + 1, G + 1) measured rows by draft tokens verified and kept; empty for folders
        of older versions, which have no table of them."""
        path = self.folder / "lengths.parquet"
        out: dict[str, npt.NDArray[np.int64]] = {}
        if not path.exists():
            return out
        table = pq.read_table(path)
        arm = np.asarray(table["arm"].to_pylist(), dtype=object)
        measured, verified, accepted, rows = (table[c].to_numpy() for c in
                                              ("measured", "verified", "accepted", "request_steps"))
        for name in self.arms:
            mine = measured & (arm == name)
            if verified[mine].any():
                G = int(verified[mine].max())
                out[name] = np.zeros((G + 1, G + 1), dtype=np.int64)
                np.add.at(out[name], (verified[mine], accepted[mine]), rows[mine])
        return out

    def batches(self) -> dict[str, npt.NDArray[np.int64]]:
        """Per arm, how many measured steps had 0, 1, 2, … batch tokens; empty without a steps table."""
        path = self.folder / "steps.parquet"
        out: dict[str, npt.NDArray[np.int64]] = {}
        if not path.exists():
            return out
        for batch in pq.ParquetFile(path).iter_batches(1 << 17, columns=["arm", "start", "batch_tokens"]):
            arm = np.asarray(batch["arm"].to_pylist(), dtype=object)
            tokens = batch["batch_tokens"].to_numpy()
            measured = batch["start"].to_numpy() >= self.warmup
            for name in dict.fromkeys(arm.tolist()):
                if name not in self._arms:
                    continue
                counts = np.bincount(tokens[measured & (arm == name)])
                old = out.get(name, np.zeros(0, dtype=np.int64))
                total = np.zeros(max(old.size, counts.size), dtype=np.int64)
                total[: old.size] += old
                total[: counts.size] += counts
                out[name] = total
        return {name: out[name] for name in self.arms if name in out and out[name].sum() > 0}

    def gaps(self) -> dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]]:
        """Per arm: gaps in ms, rising, and how often each occurred in the measured windows."""
        table = pq.read_table(self.folder / "intervals.parquet", columns=["arm", "start", "gap_bin", "gap_count"])
        arm = np.asarray(table["arm"].to_pylist(), dtype=object)
        measured = np.asarray(table["start"].to_numpy()) >= self.warmup - 1e-9
        bins, counts = table["gap_bin"].to_pylist(), table["gap_count"].to_pylist()
        out = {}
        for name in self.arms:
            total: dict[int, int] = {}
            for i in np.flatnonzero(measured & (arm == name)):
                for b, c in zip(bins[i], counts[i], strict=True):
                    total[b] = total.get(b, 0) + c
            if total:
                order = np.array(sorted(total))
                out[name] = gap_value(order) * 1e3, np.array([total[b] for b in order])
        return out

    def timeline(self) -> dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """Per arm: middle of each interval (s) and throughput in it (tok/s/GPU), averaged over replications."""
        table = pq.read_table(self.folder / "intervals.parquet", columns=["arm", "start", "seconds", "emitted"])
        arm = np.asarray(table["arm"].to_pylist(), dtype=object)
        start, seconds, emitted = (np.asarray(table[c].to_numpy(), dtype=np.float64)
                                   for c in ("start", "seconds", "emitted"))
        out = {}
        for name in self.arms:
            rows = (arm == name) & (seconds > 0)
            moments, where = np.unique(start[rows], return_inverse=True)
            covered = np.bincount(where, seconds[rows])
            gpus = self._arms[name]["gpus"]
            out[name] = moments + covered / np.bincount(where) / 2, np.bincount(where, emitted[rows]) / covered / gpus
        return out
