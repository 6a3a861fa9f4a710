"""The command line does without pandas where it makes no data frame; the library never does without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.small_world import make

SMALL = ["--set", "replications=1", "--set", "measure.warmup_s=1", "--set", "measure.duration_s=1", "--no-plots"]
PROGRAM = """
import sys
sys.argv = ["dspark-sim", *{arguments!r}]
from dspark_sim.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("pandas" in sys.modules, file=sys.stderr)
"""


def test_run_imports_no_pandas(tmp_path: Path) -> None:
    arguments = ["run", "quickstart", *SMALL, "--quiet", "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(arguments=arguments)], capture_output=True, text=True,
                          check=True)
    assert done.stderr.strip().splitlines()[-1] == "False"
    assert (tmp_path / "out" / "requests.parquet").is_file()


def test_workers_of_a_sweep_import_no_pandas(tmp_path: Path) -> None:
    """Asked of a policy: it runs where the worker computes, and pyarrow has read its trace by then."""
    (tmp_path / "spy.py").write_text("""
import sys
from dspark_sim.policy import BudgetPolicy


class Spy(BudgetPolicy):
    def start(self, setup):
        open("seen", "a").write(f"{'pyarrow' in sys.modules} {'pandas' in sys.modules}\\n")

    def token_budget(self, view):
        return 0
""")
    path = make(tmp_path, "  - {name: spy, drafter: dspark, policy: ./spy.py}\n")
    subprocess.run([sys.executable, "-m", "dspark_sim", "sweep", str(path), "--over", "seed=1,2", "--jobs", "2",
                    "--replications", "1", "--no-plots", "--quiet"], cwd=tmp_path, capture_output=True, check=True)
    assert set((tmp_path / "seen").read_text().splitlines()) == {"True False"}


def test_a_program_keeps_its_data_frames(tmp_path: Path) -> None:
    """Results read back by the library in the same process, as the README shows."""
    program = (
        "import dspark_sim, pandas as pd\n"
        f"r = dspark_sim.run('quickstart', {str(tmp_path / 'out')!r}, overrides={{'replications': 1, "
        "'measure.warmup_s': 1, 'measure.duration_s': 1})\n"
        f"print(len(pd.read_parquet({str(tmp_path / 'out' / 'requests.parquet')!r})) > 0, len(r.to_frame()) > 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
