# Everything a person needs: `make bench` measures, `make test` tests, `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_EXTRAS := measure,torch,report
TEST_EXTRAS := $(BENCH_EXTRAS),dev

.DEFAULT_GOAL := help
.PHONY: help python venv dev bench bench-self test torture lint docs gallery report dist clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

venv: $(VENV)/.bench  ## build .venv: the suite with the extras measure, torch and report

# Asked before pip is: with an older Python it tries old versions of everything, for minutes.
python:
	@own=$(BIN)/python in=" in $(VENV)" clean="clean "; [ -x $$own ] || { own=$(PYTHON) in= clean=; }; \
	$$own -c "import sys; v = sys.version_info[:3]; v >= (3, 11) or sys.exit('Python 3.11 or newer is needed, found \
	%d.%d.%d$$in; give another: make $${clean}$(MAKECMDGOALS) PYTHON=python3.12' % v)"

$(VENV)/.python: | python
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.bench: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[$(BENCH_EXTRAS)]"
	@touch $@

# CuPy is built for one CUDA major: the one of the torch that is installed, where there is a GPU.
$(VENV)/.cupy: $(VENV)/.bench
	@major=$$($(BIN)/python -c "import torch; print((torch.version.cuda or '').split('.')[0] if torch.cuda.is_available() else '')"); \
	if [ -n "$$major" ]; then $(BIN)/python -m pip install --quiet -e ".[cuda$$major]" && touch $@; fi

$(VENV)/.test: $(VENV)/.bench pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[$(TEST_EXTRAS)]"
	@touch $@

dev: $(VENV)/.test  ## build .venv with what the tests need as well

bench: venv $(VENV)/.cupy  ## measure this machine into results/local; ARGS=--quick for a first look
	$(BIN)/python -m pytest benchmarks --benchmark-json=results/local/run.json $(ARGS)

bench-self: $(VENV)/.test  ## measure what this suite itself costs, into docs/performance.md
	PYTHONPATH=tests $(BIN)/python -m performance

# Reading needs neither torch nor a GPU, so from a clone this takes a minute.
$(VENV)/.report: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[report]"
	@touch $@

report: $(VENV)/.report  ## build the reports of the shipped campaigns into report/
	$(BIN)/cuda-gains report --all -o report

$(VENV)/.notebooks: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[notebooks]"
	@touch $@

docs: $(VENV)/.bench  ## write docs/command-line.md from the commands themselves
	$(BIN)/python docs/command_line.py

gallery: $(VENV)/.notebooks  ## run the notebooks and write them as HTML into gallery/
	ls notebooks/*.ipynb | xargs -n 2 -P $$(nproc) $(BIN)/python -m nbconvert --to html --execute --output-dir gallery

lint: $(VENV)/.test  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The tests start a thousand processes of the suite: without compiled files each would compile it again.
test: lint  ## install what is missing, check, and run the tests
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest tests -m "not slow" -n 2 --dist loadfile

torture: $(VENV)/.test  ## run what shows each fault of docs/faults.md, and tell of each on a line
	$(BIN)/python -m pytest tests -q -m "torture and not slow"

dist: $(VENV)/.test  ## build the sdist and the wheel into dist/
	$(BIN)/python -m build

clean:  ## remove the environment and the caches, never results
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache build dist *.egg-info
