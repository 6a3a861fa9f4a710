"""What each command of the command line does; :mod:`dspark_sim.cli` parses and calls, imports happen here, late."""
