# Everything a contributor runs. `make help` lists it; each target first makes what it needs.
#
# make setup needs Python 3.11 to 3.13 and nothing else. Variables:
#   PYTHON=python3.12   the interpreter to use (default: the first that fits; an existing venv keeps its own)
#   VENV=.venv-3.12     where the environment goes (default: .venv)
#   JOBS=2              processes that run tests at the same time (default: half as many again as there are cores)
#   SEED=1f3a           what random examples of `make test` are drawn by (default: the commit)
#   ARGS="-k journal"   passed on to pytest, `iriscw demo` or `iriscw bench`

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# A machine that forbids bytecode would compile everything anew in each process.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?=
VENV ?= .venv
# A third of what tests take is waiting, for processes, sockets and leases.
JOBS ?= $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 )))
ARGS ?=
UV_VERSION := 0.13.8
# What Hypothesis draws examples by: another commit tries others, and the same commit the same ones again.
SEED ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo none)

BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done

# The stamp says "installed from these files". Another interpreter than the venv's makes it stale as well.
ANOTHER_PYTHON := $(if $(PYTHON),$(shell [ "$$($(PYTHON) -V 2>&1)" = "$$($(BIN)/python -V 2>&1)" ] || echo another-python))

.PHONY: help setup demo test soak lint format bench docs lock proto criu clean another-python

help:  ## List the targets
	@sed -nE 's/^([a-z]+):.*  ## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(STAMP)  ## Create .venv with everything, in about a minute: test, lint, bench and docs tools included
	@if [ -n "$(filter setup,$(MAKECMDGOALS))" ]; then echo "make setup: done; next: make demo, or . $(VENV)/bin/activate"; fi

$(STAMP): pyproject.toml requirements.lock $(ANOTHER_PYTHON)
	@fits() { "$$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
	python=""
	for candidate in $(or $(PYTHON),$(BIN)/python python3 python3.11 python3.12 python3.13); do
	    if fits "$$candidate"; then python="$$candidate"; break; fi
	done
	if [ -z "$$python" ]; then
	    echo "make setup: no Python 3.11 to 3.13 found$(if $(PYTHON), as '$(PYTHON)'); name one with PYTHON=..." >&2
	    exit 1
	fi
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then
	    # Debian and Ubuntu ship ensurepip apart from Python.
	    package="$$("$$python" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')"
	    root=""
	    if [ "$$(id -u)" != 0 ]; then root="sudo -n"; fi
	    if ! command -v apt-get >/dev/null || { [ -n "$$root" ] && ! sudo -n true 2>/dev/null; }; then
	        echo "make setup: $$python cannot create virtual environments; install the package $$package" >&2
	        exit 1
	    fi
	    echo "make setup: installing $$package"
	    $$root env DEBIAN_FRONTEND=noninteractive sh -c \
	        'apt-get update -qq && apt-get install -qq -y --no-install-recommends '"$$package" >/dev/null || {
	        echo "make setup: apt-get could not install the package $$package" >&2
	        exit 1
	    }
	fi
	if [ "$$python" != "$(BIN)/python" ]; then
	    echo "make setup: creates $(VENV) with $$("$$python" -V)"
	    "$$python" -m venv --clear $(VENV)
	fi
	packages="$$(grep -c '^[a-z].*==' requirements.lock)"
	echo "make setup: installs $$packages packages into $(VENV), pinned by hash; this takes about a minute"
	export PIP_DISABLE_PIP_VERSION_CHECK=1
	pip="$(BIN)/python -m pip install --quiet --no-input"
	$$pip uv==$(UV_VERSION)
	# uv installs in seconds; pip does where only pip is configured to reach a registry.
	uv="$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode"
	$$uv --require-hashes -r requirements.lock || {
	    echo "make setup: uv did not succeed; pip is tried, which takes some minutes" >&2
	    $$pip --require-hashes -r requirements.lock
	}
	$$uv --no-deps -e . || $$pip --no-deps -e .
	touch $@
	echo "make setup: $(VENV) is ready"

demo: setup  ## Run a real job on a real cluster of processes on this machine
	@$(BIN)/iriscw demo $(ARGS)

test: setup  ## Run the tests that take less than 6 minutes together
	@$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not soak and not coreweave" --hypothesis-profile=ci --hypothesis-seed=$(SEED) $(ARGS)

soak: setup  ## Run the long tests: more seeds, more crashes, more examples, for many hours
	@$(BIN)/python -m pytest -n $(JOBS) -m "soak or hypothesis" --hypothesis-profile=soak -o faulthandler_timeout=0 $(ARGS)

lint: setup  ## Check style, format and types
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## Rewrite the sources as lint wants them
	@$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: setup  ## Measure the runtime against asyncio, Pykka and xoscar
	@$(BIN)/iriscw bench runtime $(ARGS)

docs: setup  ## Build the documentation into docs/_build/html; a warning is an error
	@$(BIN)/python -m sphinx -q -W -n --keep-going -b html docs docs/_build/html
	echo "docs/_build/html/index.html"

lock: setup  ## Choose the newest versions that fit pyproject.toml and write requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-annotate --extra gs --extra coreweave --extra zstd --extra protection --extra testing --group dev pyproject.toml -o requirements.lock

proto: setup  ## Generate src/iriscw/proto from protos/
	@cd protos
	PATH="$(abspath $(BIN)):$$PATH" $(abspath $(BIN))/python -m grpc_tools.protoc -I . \
	    --python_betterproto2_out=../src/iriscw/proto \
	    --python_betterproto2_opt=client_generation=async,server_generation=async \
	    $$(find . -name '*.proto' | sed 's,^\./,,' | LC_ALL=C sort)

criu:  ## Install CRIU for this user, built from its pinned source; nothing else of the system is touched
	@src/iriscw/deploy/install-criu $(ARGS)

clean:  ## Remove the environments and all that was built
	@rm -rf .venv .venv-3.* build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src sims tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
