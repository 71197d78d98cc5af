# make demo   sets everything up and shows what trmon does
# make test   runs the checks and the fast tests
# make help   lists the rest

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
# Where the CPU builds of PyTorch lie; a plain install would pull gigabytes of CUDA. Empty: the default index.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Arguments of the demo, e.g. make demo ARGS="--keep --inject stale"
ARGS ?=

VENV := .venv
PEERS := .venv-peers
TRL := .venv-trl
PEER_VENVS := $(PEERS) $(TRL) $(TRL)-oldest .venv-examples .venv-skyrl .venv-openrlhf .venv-areal .venv-ms-swift .venv-trackers
LAB := .venv-lab
RIVALS := .venv-rivals
LOAD_PEERS := .venv-load-peers
IMAGE := build/image
FUZZ := .venv-fuzz
BIN := $(VENV)/bin
DIST ?= dist
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Only files whose hash is locked, and no sdist: pip checks no hash of what a build downloads.
LOCKED := --require-hashes --only-binary :all:
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 25 --durations-min 5
LOCK := $(BIN)/uv pip compile --quiet --universal --python $(BIN)/python --no-header --no-annotate --generate-hashes $(ARGS)
SERVERS := prometheus promtool alertmanager amtool tmux chromium postgres redis-server nginx caddy kubectl

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check lint types layers unit research-test peers image-check test-deps bench bench-peers bench-rivals soft-masking collapse load load-peers soak fuzz mutants docs site dashboards screenshots lock wheels sbom clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/run  ## make the virtual environment of the demo

demo: $(VENV)/run  ## set up, train a healthy, a drifting and a collapsing run, and show what trmon reports
	$(BIN)/trmon demo $(ARGS)

test: test-deps check unit  ## format, lint, types, layers, and the fast tests

test-all: test-deps check $(FUZZ)/done  ## the same, and browsers, servers, training, proofs and short fault runs
	$(PYTEST)

check: lint types layers

lint: $(VENV)/test  ## format, lint, and the budget of files and lines
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(BIN)/python -m tests.guards.budget

types: $(VENV)/test  ## mypy, strict
	$(BIN)/mypy

layers: $(VENV)/test  ## imports point down only
	$(BIN)/lint-imports

unit: $(VENV)/test  ## the fast tests
	$(PYTEST) -m "not slow"

research-test: $(VENV)/test $(LAB)/done $(RIVALS)/done $(TRL)/done  ## the studies in research/: sweeps over Ray, interventions, benchmarks, other monitors
	$(BIN)/pytest research/tests
	@for venv in $(LAB) $(RIVALS) $(TRL); do \
	  PYTHONPATH=.:research $$venv/bin/pytest research/tests/peers --confcutdir research/tests/peers -W default || exit 1; done

peers: $(VENV)/run $(PEER_VENVS:=/done) $(LAB)/done  ## trmon beside and within RL frameworks, and over Ray (each brings a hundred packages)
	@for venv in $(PEER_VENVS) $(LAB); do \
	  PYTHONPATH=. TRMON_SERVICE=$(BIN)/trmon $$venv/bin/pytest tests/peers --confcutdir tests/peers -W default || exit 1; done

image-check: $(VENV)/test  ## build the image and run it, without an engine (root: in a container; else in a virtual environment)
	@deploy/test-deps buildah debootstrap
	$(BIN)/pytest tests/deploy/check_image.py tests/deploy/check_container.py

test-deps: $(VENV)/test  ## install the servers that the tests start (Debian, as root)
	@deploy/test-deps $(SERVERS)

bench: $(VENV)/test  ## print the tables of bench_*.py, which docs/benchmarks.md quotes
	@for bench in benchmarks/bench_*.py; do PYTHONPATH=. $(BIN)/python $$bench || exit 1; done

bench-peers: $(VENV)/run $(PEERS)/done $(TRL)/done  ## the columns beside what verl computes; what trmon costs trainers of verl and TRL
	PYTHONPATH=. $(PEERS)/bin/python benchmarks/bench_columns.py
	PYTHONPATH=. $(PEERS)/bin/python benchmarks/verl_overhead.py
	PYTHONPATH=. TRMON_SERVICE=$(BIN)/trmon $(TRL)/bin/python benchmarks/trl_overhead.py

collapse: $(LAB)/done  ## write docs/collapse-benchmark.md anew from the stored runs
	PYTHONPATH=research $(LAB)/bin/python -m trmon_research.collapse report

soft-masking: $(LAB)/done  ## run the pairs that research/data/soft_masking.json lacks, and print the table of research/README.md
	PYTHONPATH=research $(LAB)/bin/python -m trmon_research.soft_masking

bench-rivals: $(RIVALS)/done  ## replay the stored runs of the lab through other monitors, into research/data/rivals.json
	PYTHONPATH=research $(RIVALS)/bin/python -m trmon_research.collapse.rivals research/data/runs $(ARGS)

load: $(VENV)/test  ## load a service of its own and print what it took (ARGS="--seconds 30 --fleet")
	PYTHONPATH=. $(BIN)/python -m benchmarks.load $(ARGS)

soak: $(VENV)/test  ## cause each fault under load at random moments: nothing is lost, doubled, missing or repeated
	PYTHONPATH=. $(BIN)/python -m benchmarks.load.soak $(ARGS)

mutants: $(VENV)/test  ## try sixty faults that the tests must find (ARGS="alerts store"; half an hour)
	$(BIN)/python -m tests.guards.mutants $(ARGS)

fuzz: test-deps $(FUZZ)/done  ## fuzz every parser, the API, the protocol and the judge, each for 10 minutes (ARGS="-k wire --fuzz-seconds 60")
	$(BIN)/pytest -m fuzz --timeout 0 --fuzz-seconds 600 tests/fuzz tests/protocol $(ARGS)

load-peers: $(VENV)/test $(LOAD_PEERS)/done  ## trmon beside MLflow and pushgateway, in one run
	@deploy/test-deps pushgateway
	PYTHONPATH=. $(BIN)/python -m benchmarks.load.peers --mlflow $(LOAD_PEERS)/bin/mlflow $(ARGS)

site: $(VENV)/test  ## build the documentation as a site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs: $(VENV)/run  ## write the reference pages and the README's tables anew
	$(BIN)/python -m docs.reference.generate

dashboards: $(VENV)/test  ## write Grafana's dashboards and alert rules anew
	$(BIN)/python -m dashboards.source

screenshots: test-deps  ## take the pictures of the page that the documentation shows, of runs trained for them
	PYTHONPATH=. $(BIN)/python docs/screenshots/take.py

lock: $(VENV)/test  ## pin what is new, with hashes; ARGS=--upgrade pins everything anew
	$(BIN)/python requirements/lock.py | $(LOCK) -o requirements/run.txt -
	$(LOCK) -c requirements/run.txt -o requirements/torch-dependencies.txt requirements/torch-dependencies.in
	$(LOCK) -c requirements/run.txt -c requirements/torch-dependencies.txt -o requirements/test.txt requirements/test.in
	$(LOCK) -c requirements/run.txt -c requirements/torch-dependencies.txt -o requirements/lab.txt requirements/lab.in
	$(LOCK) -c requirements/run.txt -c requirements/torch-dependencies.txt -o requirements/rivals.txt requirements/rivals.in
	$(LOCK) -o requirements/load-peers.txt requirements/load-peers.in
	$(LOCK) -o requirements/fuzz.txt requirements/fuzz.in
	$(LOCK) --no-deps -c requirements/run.txt -o requirements/build.txt requirements/build.in

wheels: $(VENV)/test  ## build the wheels of both packages into dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir $(DIST) ./client .

sbom: $(VENV)/test  ## write dist/trmon.cdx.json (CycloneDX) and dist/licenses.md, of what the image installs
	@PYTHON=$(BIN)/python deploy/install.sh $(IMAGE) >/dev/null
	@$(BIN)/python requirements/sbom.py $(IMAGE)/bin/python dist

clean:  ## remove the virtual environment and the caches
	rm -rf $(VENV) $(PEER_VENVS) $(LAB) $(RIVALS) $(LOAD_PEERS) $(FUZZ) $(IMAGE) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "trmon needs Python 3.11 or later; name it: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run: requirements/run.txt requirements/torch-dependencies.txt requirements/torch.txt pyproject.toml client/pyproject.toml | $(VENV)/bin/python
	@echo "installing the pinned packages and PyTorch (CPU) into $(VENV); once"
	@$(PIP) $(LOCKED) -r requirements/run.txt -r requirements/torch-dependencies.txt
	@$(PIP) --retries 1 $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r requirements/torch.txt
	@$(PIP) --no-deps --no-build-isolation -e client -e .
	@touch $@

$(VENV)/test: $(VENV)/run requirements/test.txt
	@$(PIP) $(LOCKED) -r requirements/test.txt
	@touch $@

$(PEER_VENVS:=/done): .venv-%/done: requirements/%.txt requirements/build.txt requirements/torch.txt client/pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m venv .venv-$*
	@.venv-$*/bin/pip install -q --no-deps --require-hashes -r requirements/$*.txt
	@.venv-$*/bin/pip install -q $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r requirements/torch.txt
	@.venv-$*/bin/pip install -q --no-deps $(LOCKED) -r requirements/build.txt
	@.venv-$*/bin/pip install -q --no-deps --no-build-isolation -e client
	@touch $@

$(LAB)/done $(RIVALS)/done: .venv-%/done: requirements/%.txt requirements/run.txt requirements/torch.txt pyproject.toml client/pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m venv .venv-$*
	@.venv-$*/bin/pip install -q $(LOCKED) -r requirements/run.txt -r requirements/torch-dependencies.txt
	@.venv-$*/bin/pip install -q --retries 1 $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r requirements/torch.txt
	@.venv-$*/bin/pip install -q $(LOCKED) -r requirements/$*.txt
	@.venv-$*/bin/pip install -q --no-deps --no-build-isolation -e client -e .
	@touch $@

$(LOAD_PEERS)/done: requirements/load-peers.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m venv $(LOAD_PEERS)
	@$(LOAD_PEERS)/bin/pip install -q $(LOCKED) -r requirements/load-peers.txt
	@touch $@

$(FUZZ)/done: requirements/fuzz.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m venv $(FUZZ)
	@$(FUZZ)/bin/pip install -q $(LOCKED) -r requirements/fuzz.txt
	@touch $@
