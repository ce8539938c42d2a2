# make install only what fedce needs, in .venv
# make demo    six hospitals train one model, and each alone to compare; report in runs/demo/report.html
# make demo-paper  the paper's setting: FedAvg fails the rare hospital, FedCE repairs part of it; one table
# make test    all tests
# make check   format, lint, types, import contracts
# make docs    the documentation as a site, with every link checked; build/docs/index.html
# make bench   all benchmarks, half an hour on an idle machine; benchmarks/RESULTS.md
# make release  wheel and source archive in dist/, tried in a new environment of every Python that is found
# make golden  compares every algorithm's bits with those that make golden RECORD=1 wrote before a change
# Each sets up what it needs in .venv, once.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -c constraints.txt

.PHONY: install demo demo-paper test check docs bench golden release clean help

help:
	@sed -n 's/^# //p' Makefile

install: .venv/installed

demo: .venv/installed
	$(BIN)/fedce run --data fundus6 --scale demo --alone --rounds 50 --out runs/demo --replace
	@echo "open runs/demo/report.html in a browser"

demo-paper: .venv/installed
	$(BIN)/fedce compare --data fundus6 --algorithms standalone,fedavg,fedce --seeds 0 --rounds 60 --set recipe=small --out runs/demo-paper

test: .venv/installed-dev
	@# Three for two cores: tests of engines wait for other processes half of the time.
	$(BIN)/python -m pytest -n 3 --dist worksteal

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/installed-dev
	$(BIN)/python tools/docs_site.py

bench: .venv/installed-dev
	@# Ray is Flower's, for its simulation; nothing else needs it.
	$(INSTALL) --quiet -e '.[bench]'
	$(BIN)/python -m benchmarks

golden: .venv/installed-dev
	$(BIN)/python tools/golden.py $(if $(RECORD),--record)

release: .venv/installed-dev
	$(BIN)/python tools/release.py

# Stamps, so that a second make does not install again; a changed constraint or dependency does.
.venv/bin/python:
	@echo "[1/3] creating the virtual environment in .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fedce needs Python 3.11 or newer; set PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "[2/3] installing fedce with the versions in constraints.txt (torch is about 200 MB; 1 to 3 minutes)"
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e .
	@touch $@
	@echo "[3/3] ready"

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "[2/3] installing fedce, its test tools, Flower and NVFlare with the versions in constraints.txt (1 to 3 minutes)"
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e '.[dev,docs,nvflare,flower,dicom-seg,export,tracking]'
	@touch $@ .venv/installed
	@echo "[3/3] ready"

clean:
	rm -rf .venv build dist src/*.egg-info
