# Everything runs in .venv, which the targets make on their own. PYTHON chooses the interpreter (>= 3.11).
PYTHON ?= python3
BIN := .venv/bin
# Modules are compiled when first imported (a fifth of what is installed) and kept for every later
# process: unset, so that no setting of the shell forbids it.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
# uv installs in a sixth of pip's time; pip takes over where uv cannot (an index that only pip is
# told of, a platform that uv is not built for).
INSTALL = $(PIP) uv && $(BIN)/python -m uv pip install --quiet -c constraints.txt -e '.[$(1)]' \
	|| $(PIP) -c constraints.txt -e '.[$(1)]'

TORCH ?= torch==2.13.0
JAX_GPU ?= jax[cuda13]

.PHONY: demo demo-service test tests test-all test-service test-training test-parallel check lint style \
	types bench bench-gpu docs dist clean

demo: .venv/.demo
	$(BIN)/irtcat demo --out demo-output

# The example test on this machine: prints the link to take it and the one to administer it.
# DEMO_SERVICE="--check" starts it, asks whether it is ready, and stops it.
demo-service: .venv/.service
	$(BIN)/irtcat serve demo-service.db --example $(DEMO_SERVICE)

# The workers fill the cores: threads of numpy's would wait for each other, up to a hundred times as long.
test tests test-all test-service test-training test-parallel: export OPENBLAS_NUM_THREADS = 1

# A worker that crashes ends the run: xdist 3.8 waits forever for what a replaced worker had done.
PYTEST = $(BIN)/python -m pytest -n auto --dist loadfile --max-worker-restart 0

# mypy is busy on one core for a minute, and the tests have work for the other.
test: style
	$(MAKE) --jobs=2 types tests

tests: .venv/.dev
	$(PYTEST) -m "not slow" -rs

test-all: lint
	IRTCAT_TEST_OPTIMISED=1 $(PYTEST)

# The service on both databases, in the browser (Debian's chromium), and under random requests; and
# tests in a page, whose engine runs in Node.js.
test-service: .venv/.service-test
	IRTCAT_POSTGRESQL=1 IRTCAT_BROWSER=1 $(PYTEST) tests/service irtcat/service \
		tests/cat/test_offline.py

# PyTorch, Hugging Face's trainers, TRL, torchdata and grain on tiny random models, without the
# network but for the installation.
test-training: export OMP_NUM_THREADS = 1
test-training: .venv/.training-test
	IRTCAT_TRAINING=1 $(PYTEST) -rs tests/training_integrations \
		irtcat/training/drivers/torch.py irtcat/training/drivers/huggingface.py

# Crowds on Dask, Ray, joblib and MPI, also when workers are killed, and fits in two processes. The
# tests of MPI need Open MPI (Debian: openmpi-bin). One after the other: each starts its processes.
test-parallel: export OMP_NUM_THREADS = 1
test-parallel: .venv/.parallel-test
	IRTCAT_PARALLEL=1 $(BIN)/python -m pytest -rs tests/parallel_integrations

# The import layers (tests/test_layers.py) are among all tests too.
check: lint
	$(BIN)/python -m pytest -q tests/test_layers.py

lint: style types

style: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

bench: .venv/.dev
	$(BIN)/python experiments/benchmarks/fit_speed.py

# On a GPU, with the JAX for it (about 3 GB to install). GPU_OPTIONS="--only 2pl" and the like.
bench-gpu: .venv/.gpu
	$(BIN)/python experiments/gpu/run.py $(GPU_OPTIONS)

# The site is in site/, and opens from the disk. Without the network, but for the installation.
docs: export OPENBLAS_NUM_THREADS = 1
docs: .venv/.docs
	$(BIN)/python docs/tools/make_site.py

# What is released, in dist/. The wheel is tried out with the packages of requirements.lock.
dist: .venv/.release
	.ci/build

requirements.lock: pyproject.toml constraints.txt | .venv/.release
	$(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
		--no-annotate --no-header --extra plot --extra parquet -c constraints.txt pyproject.toml -o $@

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml constraints.txt | .venv/bin/python
	$(call INSTALL,plot)
	touch $@

.venv/.service: pyproject.toml constraints.txt | .venv/bin/python
	$(call INSTALL,service)
	touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(call INSTALL,dev)
	touch $@

.venv/.gpu: .venv/.dev
	$(PIP) -c constraints.txt '$(JAX_GPU)'
	touch $@

.venv/.service-test: pyproject.toml constraints.txt | .venv/bin/python
	$(call INSTALL,service-test)
	touch $@

.venv/.release: pyproject.toml constraints.txt | .venv/bin/python
	$(call INSTALL,release)
	touch $@

.venv/.parallel-test: pyproject.toml constraints.txt | .venv/bin/python
	$(call INSTALL,parallel-test)
	touch $@

# First PyTorch, alone: as it is installed the rest takes it. On Linux the registry's build has
# gigabytes of libraries for GPUs; TORCH=torch==2.13.0+cpu is the one without, where it can be had.
.venv/.training-test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -c constraints.txt '$(TORCH)'
	$(call INSTALL,training-test)
	touch $@

.venv/.docs: pyproject.toml constraints.txt | .venv/bin/python
	$(call INSTALL,docs)
	touch $@

clean:
	rm -rf .venv demo-output demo-service.db* build site *.egg-info
