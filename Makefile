# The project's tasks. `make demo` and `make test` set up what they need.
#
# VENV=DIR chooses the virtual environment, PYTHON=/path the interpreter it is made with.
export VENV ?= .venv
PYTHON_IN := $(VENV)/bin/python
# Tests of real processes and daemons meet a machine that others use: one that fails gets a second try,
# and its failure is shown at the end. RERUNS=0 takes it away; who looks for a race wants that.
RERUNS ?= 1
PYTEST := $(PYTHON_IN) -m pytest -q --reruns $(RERUNS) --max-suite-reruns 10 --rerun-show-tracebacks

.DEFAULT_GOAL := help
.PHONY: help setup setup-run setup-system demo test check lint types unit kernel containers conformance wheel \
        pythons bench realjob docs format clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup-run ## run a real command in the sandbox of examples/Coopfile, and try to get out
	@$(PYTHON_IN) scripts/demo.py

test: setup-system check kernel containers wheel ## everything: checks, this machine's kernel, its engines, the wheel

check: lint types unit ## lint, types and unit tests: no root, no network, no namespaces

lint: setup
	$(PYTHON_IN) -m ruff check .
	$(PYTHON_IN) -m ruff format --check .

types: setup
	$(PYTHON_IN) -m mypy

unit: setup
	$(PYTEST) -n 2 tests/unit

kernel: setup setup-system ## the tests that run real sandboxes
	$(PYTEST) -n 6 --dist loadgroup tests/native tests/attacks

containers: setup setup-system ## the tests that run real container engines, on sockets and stores of their own
	$(PYTEST) -n 3 --dist loadgroup tests/containers

conformance: setup ## print what each back end does with the same probes
	@$(PYTHON_IN) scripts/conformance.py

wheel: setup ## build the wheel and run coop from it
	$(PYTEST) tests/wheel

pythons: ## unit and wheel tests on every CPython of this machine
	@scripts/pythons.sh

bench: setup-run ## measure coop run, and having images, beside bubblewrap, podman, docker, runsc, srt and tar
	@$(PYTHON_IN) -m bench

realjob: setup ## as root, with Debian's mirror and PyPI: build a Debian without rights, run a project's tests in it
	@$(PYTHON_IN) scripts/realjob.py

docs: setup ## write schema/ and docs/reference.md again from the table of settings
	$(PYTHON_IN) scripts/reference.py

format: setup ## format the code
	$(PYTHON_IN) -m ruff check --fix .
	$(PYTHON_IN) -m ruff format .

clean: ## remove everything that make made
	rm -rf $(VENV) .venv-3.* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup: ## make .venv ready for development
	@scripts/setup.sh dev

setup-run:
	@scripts/setup.sh run

setup-system:
	@scripts/setup.sh system
