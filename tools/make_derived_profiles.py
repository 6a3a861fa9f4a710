"""Make the shipped profiles that are derived from aiconfigurator's operator times again.

    python tools/make_derived_profiles.py               # from the answers that lie beside each (source.csv)
    python tools/make_derived_profiles.py --ask         # ask the package first: needs the extra aiconfigurator
    python tools/make_derived_profiles.py --into FOLDER # write elsewhere (answers are read from the shelf)

The same bytes each time; with the same version of the package also the same answers.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from dspark_sim.importers.derive import Options, derive, target_sizes
from dspark_sim.importers.operators import ask, connect
from dspark_sim.importers.sheet import read_sheet
from dspark_sim.profile_write import write_profile

SHELF = Path(__file__).resolve().parent.parent / "hardware_profiles"
COMMAND = "python tools/make_derived_profiles.py [--ask]"
MODELS = {"qwen3-8b": "Qwen/Qwen3-8B", "qwen3-32b": "Qwen/Qwen3-32B", "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B"}
ENGINES = {f"{gpu}-{short}": (model, gpu, 1) for gpu in ("h200", "h100") for short, model in MODELS.items()} | {
    "h100x2-qwen3-32b": ("Qwen/Qwen3-32B", "h100", 2),  # on one H100 the weights leave KV cache for 30,000 tokens
}
"""Profile -> (model, GPU, tensor-parallel GPUs)."""
OPTIONS = Options(date="2026", command=COMMAND)
"""Everything as ``profile import aiconfigurator`` does it by default; 2026 is the year of the package's tables."""


def make(into: Path, *, anew: bool = False) -> None:
    """Write all of them into ``into``.

    Args:
        into: a shelf; its other profiles stay.
        anew: ask the package instead of reading the shelf's ``source.csv``.
    """
    for name, (model, gpu, tp) in ENGINES.items():
        if anew:
            engine, about = connect(model, gpu, tp=tp)
            sheet = ask(engine, about, target_sizes(OPTIONS), OPTIONS.blocks)
        else:
            sheet = read_sheet(SHELF / name / "source.csv")
        with tempfile.TemporaryDirectory() as place:
            write_profile(derive(sheet, OPTIONS), Path(place) / name)
            (into / name).mkdir(parents=True, exist_ok=True)
            for file in sorted((Path(place) / name).iterdir()):
                shutil.copyfile(file, into / name / file.name)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ask", action="store_true", help="ask aiconfigurator instead of reading source.csv")
    parser.add_argument("--into", type=Path, default=SHELF, help="where to write (default: the shelf)")
    args = parser.parse_args()
    make(args.into, anew=args.ask)


if __name__ == "__main__":
    main()
