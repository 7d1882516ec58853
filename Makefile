# Two commands do all the set-up on a machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_MAJORANT = $(BIN)/majorant
# processes that test: one more than the usual two cores, as some tests wait for other processes
WORKERS ?= 3
# every worker imports all tests: compiled once, also where the user's Python keeps no bytecode
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-all format check style types unit test-browser test-network test-trackers mutants crash fuzz coverage docs dist install install-dev benchmark clean

demo: $(VENV)/.installed  ## train FedEM, FedAvg and Local on the synthetic data and show the comparison
	$(RUN_MAJORANT) compare fedem fedavg local --data synthetic

test: $(VENV)/.installed-dev style  ## formatting, linting, types, tests (one of them builds the documentation site)
	$(MAKE) --jobs=2 types unit  # side by side: the first run of mypy takes half a minute

check: style types

style: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.installed-dev
	$(BIN)/mypy

unit: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-all: $(VENV)/.installed-dev check  ## as test, on every instance of properties that test looks at on some
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --every-instance

test-browser: $(VENV)/.installed-dev  ## reports in a real browser (Chromium must be installed; nothing else is needed)
	$(BIN)/python -m pytest tests/browser

test-network: $(VENV)/.installed-dev  ## every method on many devices and in several processes; federations on Flower (minutes)
	$(BIN)/python -m pytest tests/network tests/real_processes

coverage: $(VENV)/.installed-dev  ## which lines and branches the tests reach: a table, and pages in coverage/
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadfile
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report

docs: $(VENV)/.installed-dev  ## the documentation as a site, in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; to search in it: $(BIN)/python -m http.server --directory site"

dist: $(VENV)/.installed-dev  ## wheel and source archive in dist/; the wheel runs the demo in an empty environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$folder/venv/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt dist/majorant-*.whl; \
	cd "$$folder"; venv/bin/majorant --version; \
	venv/bin/majorant compare fedem fedavg local --data synthetic:clients=30,dimension=20 --rounds 20

format: $(VENV)/.installed-dev  ## put the code into the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-trackers: $(VENV)/.installed-dev  ## MLflow and Weights & Biases against their own local stores; installs both
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt mlflow-skinny wandb  # mlflow without its server, which wants an older pyarrow
	$(BIN)/python -m pytest tests/app/test_outside_trackers.py

mutants: $(VENV)/.installed-dev  ## plants bugs one at a time; MUTANTS='solvers.* padding' chooses some
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

crash: $(VENV)/.installed-dev  ## kills, interrupts and starves a hundred processes; every run must then end bit for bit the same
	$(BIN)/python tests/crash/drive.py

fuzz: $(VENV)/.installed-dev  ## thousands of odd inputs; FUZZ='--seed 7', FUZZ='tables folders' or a case that it printed
	PYTHONPATH=tests $(BIN)/python tests/fuzz/campaign.py $(FUZZ)

benchmark: $(VENV)/.installed-dev  ## the benchmarks (they need the extra: pip install -e '.[benchmark]')
	$(BIN)/python -m benchmarks.all

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Majorant needs Python 3.11 or newer; set PYTHON=...')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml reproductions/pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]" -e ./reproductions
	touch $@

$(VENV)/.installed-dev: pyproject.toml reproductions/pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" -e ./reproductions
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist site coverage .coverage* src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
