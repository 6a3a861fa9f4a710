"""Where the shipped policies, profiles, traces and scenarios lie, in a wheel or in a checkout.

A wheel carries the four folders inside the package; a checkout (and so an editable install) has them beside it.
Nothing here imports what it finds.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ACCEPTANCE_TRACES", "HARDWARE_PROFILES", "POLICIES", "SCENARIOS", "cache_dir", "shelf"]

POLICIES = "policies"
HARDWARE_PROFILES = "hardware_profiles"
ACCEPTANCE_TRACES = "acceptance_traces"
SCENARIOS = "scenarios"

_PACKAGE = Path(__file__).resolve().parent


def shelf(name: str) -> Path:
    """The folder of one shelf: the package's own first, its sibling in a checkout second.

    Args:
        name: one of the four constants of this module.

    Raises:
        FileNotFoundError: the installation is broken.
    """
    for place in (_PACKAGE / name, _PACKAGE.parent / name):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"dspark-sim is not installed completely: no folder {name!r} in or beside {_PACKAGE}")


def cache_dir() -> Path:
    """Where derived files (materialised parametric traces) may be kept; not created here.

    ``DSPARK_SIM_CACHE`` if set, else ``$XDG_CACHE_HOME/dspark-sim``, else ``~/.cache/dspark-sim``.
    """
    own = os.environ.get("DSPARK_SIM_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dspark-sim"
