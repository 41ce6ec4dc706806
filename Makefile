# Everything starts from a bare clone: Python 3.11+, a C++20 compiler and make. The rest is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard native/*) CMakeLists.txt pyproject.toml
# What builds the core lies in the environment itself: an editable install and a wheel then share one build folder, and
# nothing is compiled twice.
BUILD_TOOLS := "scikit-build-core>=0.10" "nanobind>=2.2" "cmake>=3.21" "ninja>=1.11"
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# The papers' data sets beside the checkout, where they exist; an explicit SVELTO_DATA wins.
ifneq ($(wildcard ../shared/data),)
export SVELTO_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test test-slow lint format docs bench bench-suite sanitize sanitize-threads fuzz wheel-test clean

demo: $(VENV)/.installed
	$(BIN)/svelto demo

# Files of tests go to as many processes as there are cores to speak of; TEST_JOBS=0 runs all in one.
TEST_JOBS ?= 2
test: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile --durations 20

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror native/*.cpp native/*.hpp

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i native/*.cpp native/*.hpp

# The site, with the gallery's programs run; warnings are errors. Nothing is fetched: packages are there already.
docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -W --keep-going -n -q -b html -d build/docs/doctrees docs build/docs/html
	@echo "build/docs/html/index.html"

bench: $(VENV)/.installed-bench bench-suite
	$(BIN)/python benchmarks/exact.py --markdown docs/benchmarks/exact.md --readme README.md
	$(BIN)/python benchmarks/exact.py --tuned --markdown docs/benchmarks/exact-tuned.md
	$(BIN)/python benchmarks/approximate.py --markdown docs/benchmarks/approximate.md --readme README.md --plot docs/benchmarks/size.png
	$(BIN)/python benchmarks/stand_ins.py --markdown docs/benchmarks/stand-ins.md
	$(BIN)/python benchmarks/hinges.py --markdown docs/benchmarks/hinges.md
	$(BIN)/python benchmarks/stage_costs.py --markdown docs/benchmarks/stage-costs.md
	$(BIN)/python benchmarks/bounded.py --markdown docs/benchmarks/bounded.md
	$(BIN)/python benchmarks/balanced_paths.py --markdown docs/benchmarks/balanced-paths.md
	$(BIN)/python benchmarks/sv_tree.py --markdown docs/benchmarks/sv-tree.md
	$(BIN)/python benchmarks/svm_tree.py --markdown docs/benchmarks/svm-tree.md
	$(BIN)/python benchmarks/local_svm.py --markdown docs/benchmarks/local-svm.md --plot docs/benchmarks/local-growth.png
	$(BIN)/python benchmarks/cluster.py --markdown docs/benchmarks/cluster.md
	$(BIN)/python benchmarks/c_export.py --markdown docs/benchmarks/c-export.md
	$(BIN)/python benchmarks/onnx_export.py --markdown docs/benchmarks/onnx-export.md
	$(BIN)/python benchmarks/latency.py --markdown docs/benchmarks/latency.md
	$(BIN)/python benchmarks/open_file.py --markdown docs/file-format.md

# What is measured already is kept in bench-results; an interrupted run goes on where it was.
bench-suite: $(VENV)/.installed-bench
	$(BIN)/svelto bench --suite --markdown docs/benchmarks/suite.md --html docs/benchmarks/suite.html --readme README.md

# The core under address and undefined-behaviour sanitizers, in an environment of its own. Python itself does not load
# the sanitizer, hence the preload; it also never frees everything at exit, hence no leak check.
sanitize: .venv-sanitize/.installed
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 SVELTO_SANITIZED=1 \
	.venv-sanitize/bin/python -m pytest -n $(TEST_JOBS) --dist loadfile -p no:cacheprovider tests/test_native.py tests/test_exact_engine.py \
	tests/test_exact_promise.py tests/test_inputs.py tests/test_metric_tree.py tests/test_certified.py \
	tests/test_native_paths.py tests/test_path_columns.py tests/test_settled_scores.py tests/test_sparse_block.py \
	tests/test_native_chains.py tests/test_native_hinges.py tests/test_bumps.py tests/test_hinge_guard.py tests/test_chain_checks.py tests/test_hull_projection.py \
	tests/test_hull_projection_degenerate.py tests/test_hull_projection_paper.py tests/test_hull_projection_use.py \
	tests/test_local_fits.py tests/test_local_neighbours.py tests/test_local_machines.py tests/test_fuzz_corpus.py

# The core under the thread sanitizer. Python is not instrumented, so what only Python, NumPy or a BLAS does is left out
# (tests/thread-sanitizer.supp); a race in our own code ends the run, and -s lets its report through. Address
# randomisation is off because the sanitizer of some compilers cannot live with that of newer kernels.
sanitize-threads: .venv-sanitize-threads/.installed
	LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so)" SVELTO_SANITIZED=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 \
	TSAN_OPTIONS="suppressions=$(CURDIR)/tests/thread-sanitizer.supp halt_on_error=1 exitcode=66 die_after_fork=0 second_deadlock_stack=1" \
	setarch -R .venv-sanitize-threads/bin/python -m pytest -s -p no:cacheprovider tests/test_concurrent_predict.py

# Each target gets FUZZ_SECONDS; what is found ends the run and stays in build/fuzz (fuzz/README.md).
FUZZ_SECONDS ?= 10
fuzz: $(VENV)/.installed-fuzz
	$(BIN)/python fuzz/run.py --seconds $(FUZZ_SECONDS)

# A source archive that holds all a build reads, and a wheel, installed into an empty environment and used away from the
# source tree.
wheel-test: $(VENV)/.installed-dev
	rm -rf dist build/wheel-test
	$(BIN)/python -m build --no-isolation --sdist --outdir dist
	$(BIN)/python tests/sdist_check.py dist/*.tar.gz
	$(BIN)/python -m build --no-isolation --wheel --outdir dist
	$(BIN)/python tests/wheel_size.py dist
	$(PYTHON) -m venv build/wheel-test
	build/wheel-test/bin/pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[cli]"
	cd build/wheel-test && ./bin/python -c "import svelto; print(svelto.__file__)" && \
	./bin/python $(CURDIR)/tests/wheel_check.py && ./bin/svelto demo --rows 2000

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --upgrade pip

# Python files are used in place; only native sources and the build description ask for a new build.
$(VENV)/.installed: $(VENV)/bin/python $(NATIVE)
	$(BIN)/python $(PIP_INSTALL) $(BUILD_TOOLS)
	SVELTO_WERROR=$${SVELTO_WERROR:-OFF} $(BIN)/python $(PIP_INSTALL) --no-build-isolation --editable ".[test]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python $(PIP_INSTALL) "ruff>=0.6" "mypy>=1.11" "clang-format>=18" "build>=1.2"
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python $(PIP_INSTALL) "sphinx>=8" "pydata-sphinx-theme>=0.16" "sphinx-gallery>=0.18" \
		"myst-parser>=4" "numpydoc>=1.8" "sphinx-design>=0.6" "matplotlib>=3.8"
	touch $@

# Named together, so that one extra does not undo the other's versions.
$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python $(PIP_INSTALL) --no-build-isolation --editable ".[test,bench]"
	touch $@

.venv-sanitize/.installed: $(NATIVE)
	$(PYTHON) -m venv .venv-sanitize
	.venv-sanitize/bin/python $(PIP_INSTALL) $(BUILD_TOOLS)
	SVELTO_SANITIZE=ON .venv-sanitize/bin/python $(PIP_INSTALL) --no-build-isolation --editable . \
		pytest pytest-xdist hypothesis pandas clarabel --config-settings=build-dir=build/sanitize
	touch $@

.venv-sanitize-threads/.installed: $(NATIVE)
	$(PYTHON) -m venv .venv-sanitize-threads
	.venv-sanitize-threads/bin/python $(PIP_INSTALL) $(BUILD_TOOLS)
	SVELTO_SANITIZE_THREADS=ON .venv-sanitize-threads/bin/python $(PIP_INSTALL) --no-build-isolation --editable . \
		pytest hypothesis --config-settings=build-dir=build/sanitize-threads
	touch $@

# Atheris has wheels for some versions of Python only; without it `make fuzz` goes through the kept inputs.
$(VENV)/.installed-fuzz: $(VENV)/.installed
	$(BIN)/python $(PIP_INSTALL) --only-binary :all: "atheris>=3" || \
		echo "Atheris cannot be installed here: make fuzz replays the kept inputs."
	touch $@

clean:
	rm -rf $(VENV) .venv-sanitize .venv-sanitize-threads build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
