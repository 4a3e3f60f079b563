# `make demo` and `make test` create their own environment in .venv from nothing but Python, a C++
# compiler and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(shell find src/colonnade/native -name '*.cpp' -o -name '*.h')
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test check lint types install sanitize bench-kernels bench-lossless clean help

help:
	@echo "make demo            two parties on this machine: align, train, evaluate, predict"
	@echo "make test            set up, then lint, types and the whole test suite"
	@echo "make check           lint and types only"
	@echo "make bench-kernels   what each kernel of this processor takes, beside gmpy2"
	@echo "make bench-lossless  distance of a federated run from its float64 twin (COLONNADE_DATA)"
	@echo "make sanitize        the native tests under address and undefined-behaviour sanitizers"

# Progress bars need neither colour nor a terminal: plain lines are shown elsewhere.
demo: install
	$(BIN)/python -m colonnade demo --folder runs/demo

test: install check
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

check: lint types

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

bench-kernels: install
	$(BIN)/python -m benchmarks.kernels

bench-lossless: install
	$(BIN)/python -m benchmarks.lossless --set a9a
	$(BIN)/python -m benchmarks.lossless --set higgs

install: $(STAMP)

# torch first and by its exact version: a looser request may take a build many times as large.
$(STAMP): pyproject.toml constraints.txt CMakeLists.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]' \
		--config-settings=cmake.define.COLONNADE_WERROR=ON
	touch $(STAMP)

# A second environment sees the first one's dependencies, but this build of the extension.
SANITIZE := build/sanitize
sanitize: install
	rm -rf $(SANITIZE)
	$(BIN)/python -m venv --without-pip $(SANITIZE)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' \
		> "$$(echo $(SANITIZE)/lib/python3.*/site-packages)/dependencies.pth"
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation . \
		--target "$$(echo $(SANITIZE)/lib/python3.*/site-packages)" \
		--config-settings=cmake.define.COLONNADE_SANITIZE=ON \
		--config-settings=build-dir=$(SANITIZE)/build
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
		$(SANITIZE)/bin/python -m pytest tests/native -p no:cacheprovider -q

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
