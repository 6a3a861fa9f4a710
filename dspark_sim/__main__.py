"""``python -m dspark_sim`` is ``dspark-sim``."""

from dspark_sim.cli import main

if __name__ == "__main__":
    main()
