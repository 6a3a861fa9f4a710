# make demo    install, run the quickstart scenario, say where the result is
# make test    everything: ruff, mypy --strict, pytest (also installs the extras test and lab)
# make check   ruff and mypy only
# make bench   what a simulated step costs on this machine
# make docs    bring what README.md and docs/ quote up to date: output, pictures, tables of keys
# make clean   remove .venv and everything built
#
# Needs Python 3.11 or newer with its venv module; `make demo PYTHON=/path/to/python3` chooses one.
# Everything is installed into .venv; nothing is downloaded but Python packages.

VENV ?= .venv
PYTHON ?=
CANDIDATES = $(or $(PYTHON),python3.11 python3.12 python3.13 python3 python3.14 python)
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
PYTEST_ARGS ?= -n auto --maxprocesses 8 --dist loadfile
BENCH_ARGS ?=

.PHONY: demo test check bench docs clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed-core
	@$(VENV)/bin/dspark-sim run quickstart

test: check
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/installed-all
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy --strict

bench: $(VENV)/installed-core
	@$(VENV)/bin/python tools/bench.py $(BENCH_ARGS)

docs: $(VENV)/installed-all
	$(VENV)/bin/python tools/refresh_docs.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A command may be found and still not run (a version manager's shim), or lack venv (Debian packs it apart), so each
# candidate is tried. Versions that the tests run on come first.
$(VENV)/bin/python:
	@for python in $(CANDIDATES); do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "making $(VENV) with $$("$$python" --version) ($$python)"; \
	    exec "$$python" -m venv --clear $(VENV); \
	  fi; \
	done; \
	echo "dspark-sim needs Python 3.11 or newer with venv and ensurepip (Debian, Ubuntu: apt install python3-venv)." >&2; \
	echo "Tried: $(CANDIDATES). Another one can be named: make PYTHON=/path/to/python3" >&2; \
	exit 1

# An editable install: source files need no new install, a changed pyproject.toml does.
$(VENV)/installed-core: pyproject.toml | $(VENV)/bin/python
	@echo "installing dspark-sim into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-all: pyproject.toml | $(VENV)/bin/python
	@echo "installing dspark-sim with its extras test and lab into $(VENV)"
	@$(PIP) --editable '.[test,lab]'
	@touch $@ $(VENV)/installed-core
