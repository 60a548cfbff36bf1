# All tasks of this project; `make help` lists them. Each creates or updates the environment that it needs, with
# tools/venv.sh. PYTHON names the interpreter of a new environment.

BIN := .venv/bin
SUPPORT := PYTHONPATH=$(CURDIR)/tests/support $(BIN)/python tests/support

# The environments are installed without byte code. If Python wrote none, each of the many processes of the tests would
# compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast test-other test-lowest latest lint format fuzz properties soak cluster bench bench-quick figures docs wheel newcomer lock clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

INSTALLER := pyproject.toml requirements/dev.txt tools/venv.sh tools/requirements.py

.venv/demo: $(INSTALLER)
	@tools/venv.sh demo

.venv/installed: $(INSTALLER)
	@tools/venv.sh

.venv-other/installed: .venv/installed
	@tools/venv.sh other

.venv-lowest/installed: $(INSTALLER)
	@tools/venv.sh lowest

demo: .venv/demo ## the main job on real input: Spark's workers share a data set without copying it
	@tools/programs.sh java
	@$(BIN)/python examples/demo.py

# Arrow for JavaScript, which tests read with; without npm they say what they skip.
tests/support/peers/node_modules: tests/support/peers/package.json
	@! command -v npm >/dev/null || (cd tests/support/peers && npm install --ignore-scripts --no-package-lock --no-audit --no-fund --silent \
		>/dev/null 2>&1 && touch node_modules) || echo 'shmarrow: npm could not install what tests/support/peers/package.json names'

test: .venv/installed tests/support/peers/node_modules ## all tests, on all processors
	@tools/programs.sh java flatc chromium || true
	@$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

test-fast: .venv/installed ## the tests that start no process, more than half of all, in two minutes
	@$(BIN)/pytest -m unit -n auto --dist loadfile --no-loadscope-reorder

test-other: .venv-other/installed ## the same on the newest other Python that is found
	@[ ! -e .venv-other/installed ] || .venv-other/bin/pytest -m unit -n auto --dist loadfile --no-loadscope-reorder

latest: tests/support/peers/node_modules ## all tests with the newest versions of all packages, which may be newer than the locked ones
	@tools/venv.sh latest
	@.venv-latest/bin/pytest -n auto --dist loadfile --no-loadscope-reorder

test-lowest: .venv-lowest/installed ## all tests that run with the lowest versions that pyproject.toml allows
	@.venv-lowest/bin/pytest -n auto --dist loadfile --no-loadscope-reorder

lint: .venv/installed ## style, by ruff; types, by mypy; text files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python tools/check_text.py

format: .venv/installed ## format the code, by ruff
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

SECONDS := 600
fuzz: .venv/installed ## fuzz the readers with new seeds, for SECONDS=600
	@$(SUPPORT)/fuzz.py --seconds $(SECONDS)

properties: .venv/installed ## property tests, with 3,000 new examples each
	@$(BIN)/pytest tests/parity/test_properties.py --hypothesis-profile=long --timeout=0

soak: .venv/installed ## faults against the store and rings, with real processes, for a quarter of an hour at most
	@$(SUPPORT)/labs/soak.py && $(SUPPORT)/labs/ring_soak.py

RESTARTS := 5
cluster: .venv/installed ## Spark on three hosts in namespaces, with faults; streams are killed RESTARTS=5 times
	@tools/programs.sh java
	@$(SUPPORT)/labs/cluster.py --restarts $(RESTARTS)

bench: .venv/installed ## every row beside every installed peer: benchmarks/results.json; BENCH="--parts store"
	@$(BIN)/python benchmarks/run.py $(if $(BENCH),$(BENCH),--spark)

bench-quick: .venv/installed ## the same with smaller data and fewer rounds, without Spark, in three minutes
	@$(BIN)/python benchmarks/run.py --quick

figures: .venv/installed ## lines, files, circles, imports and calls of the package; REVISIONS="main HEAD" compares two
	@$(BIN)/python tools/figures.py $(REVISIONS)

docs: .venv/installed ## write the generated pages, and build the guide and the reference in build/docs
	@for page in supported casts consumers tools_page spark_types performance; do $(SUPPORT)/pages/$$page.py || exit 1; done
	@$(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html -d build/doctrees docs build/docs
	@echo 'build/docs/index.html'

.venv/build: .venv/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group build
	@touch $@

wheel: .venv/build ## build the wheel and the sdist in dist
	@rm -rf dist
	@$(BIN)/python -m build --quiet --outdir dist
	@$(BIN)/python -m twine check --strict dist/*

newcomer: wheel ## install the wheel in clean environments: without and with each extra; run the README and tests there
	@$(BIN)/python tools/newcomer.py

lock: .venv/installed ## renew requirements/dev.txt, with the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group lock
	@tools/venv.sh names | xargs $(BIN)/python tools/requirements.py | $(BIN)/uv pip compile - --quiet --universal \
		--python-version 3.11 --generate-hashes --upgrade --no-annotate --custom-compile-command 'make lock' \
		--output-file requirements/dev.txt

clean: ## remove all that the other targets made
	@rm -rf .venv .venv-other .venv-latest .venv-lowest tests/support/peers/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
