"""The command line does without pandas where it makes no data frame; the library never does without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
