# Two commands for a newcomer: `make demo` and `make test`. Needs only python3 (3.11 or newer), pip and make.
PYTHON ?= python3
WORKERS ?= 2
BIN = .venv/bin

# Distributions that ship Python without ensurepip make an environment without pip: then the system's pip installs into it.
PIP = $$($(BIN)/python -m pip --version >/dev/null 2>&1 && echo "$(BIN)/python -m pip" || echo "$(PYTHON) -m pip --python $(BIN)/python")
INSTALL = PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --disable-pip-version-check
PEER_PIP = $$(.venv-bench/$*/bin/python -m pip --version >/dev/null 2>&1 && echo ".venv-bench/$*/bin/python -m pip" || echo "$(PYTHON) -m pip --python .venv-bench/$*/bin/python")

.PHONY: demo examples gallery docs docs-serve test torture lint format bench bench-fit release clean
.DELETE_ON_ERROR:

demo: .venv/plot.stamp
	$(BIN)/python -m inducing demo --out out

# Every example in turn, into out/: about half an hour; INDUCING_QUICK=1 only sees that they run.
examples: .venv/test.stamp
	for file in examples/[a-z]*.py; do echo "$$file"; $(BIN)/python $$file || exit 1; done

# The pictures of the documentation, from the figures of the examples.
gallery: examples
	MPLBACKEND=Agg $(BIN)/python docs/tools/gallery.py

# The site in site/: open site/index.html. Warnings are errors: broken links, names without docstring or example.
docs: .venv/test.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: .venv/test.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -q

# Hard conditions, at length: bad input, damaged files, kills, Ctrl-C, threads, memory and float32.
torture: .venv/test.stamp
	$(BIN)/python benchmarks/torture

lint: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/ty check --python .venv

format: .venv/test.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Side by side with other libraries, each in an environment of its own, since their requirements clash.
PEERS = .venv-bench/tensorflow.stamp .venv-bench/gpytorch.stamp .venv-bench/gpjax.stamp .venv-bench/boosting.stamp

bench: .venv/test.stamp $(PEERS)
	$(BIN)/python benchmarks/speed.py $(BENCH)
	$(BIN)/python benchmarks/fourier.py
	$(BIN)/python benchmarks/tables.py

bench-fit: .venv/test.stamp $(PEERS)
	$(BIN)/python benchmarks/fit.py $(BENCH)
	$(BIN)/python benchmarks/classics.py
	$(BIN)/python benchmarks/defaults.py $(DEFAULTS)
	$(BIN)/python benchmarks/defaults.py --libraries ours --data protein --seconds 600 --splits 0 1
	$(BIN)/python benchmarks/tables.py

# PyTorch goes first, by itself, so that nothing else chooses its version.
.venv-bench/%.stamp: benchmarks/peers/%.txt
	mkdir -p .venv-bench
	$(PYTHON) -m venv --clear .venv-bench/$* || $(PYTHON) -m venv --clear --without-pip .venv-bench/$*
	grep -h '^torch==' $< | xargs -r $(PEER_PIP) install --quiet
	$(PEER_PIP) install --quiet -r $<
	touch $@

# Build wheel and sdist into dist/, check their metadata, install the wheel into a clean environment and fit a model.
release: .venv/test.stamp
	rm -rf dist .venv-release
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build --outdir dist .
	$(BIN)/python tools/release.py dist
	$(PYTHON) -m venv .venv-release || $(PYTHON) -m venv --clear --without-pip .venv-release
	$(subst $(BIN),.venv-release/bin,$(INSTALL)) dist/*.whl
	cd dist && ../.venv-release/bin/python -W error ../tools/smoke.py
	.venv-release/bin/inducing --version
	rm -rf .venv-release

$(BIN)/python:
	$(PYTHON) -m venv .venv || $(PYTHON) -m venv --clear --without-pip .venv

# Environments are remade only when the requirements change; `test` holds all that `plot` does.
.venv/plot.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[plot]'
	touch $@

.venv/test.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[test]'
	touch $@ .venv/plot.stamp

clean:
	rm -rf .venv .venv-release out site build dist .cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
