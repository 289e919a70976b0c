# `make` lists the targets. Every target sets up what it needs in .venv by itself.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NEXT := .venv-frameworks
MINDSPORE := .venv-mindspore
NOT_NEXT := --ignore=tests/frameworks_next --ignore=tests/frameworks_mindspore
# One thread: bits of a framework's kernels may depend on the thread count.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test test-fast test-frameworks test-mindspore test-real lint types docs zoo fuzz load harm mutants sbom release-check pictures requirements bench bench-large clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/ready: pyproject.toml constraints.txt hatch_build.py src/reprod_log/measure/kernel.c src/reprod_log/recording/sketch.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable . --group dev
	@touch $@

# The report's pages are tested in a real browser, and with axe-core for accessibility. What cannot be installed is skipped.
$(VENV)/browser: $(VENV)/ready
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
		|| echo "no browser could be installed: the browser tests will be skipped"
	@{ command -v npm >/dev/null && npm install --silent --prefix $(VENV)/axe axe-core; } \
		|| echo "npm could not install axe-core: the tests of accessibility will be skipped"
	@touch $@

demo: $(VENV)/ready ## align AlexNet in torch with its paddle port, then find a mistake planted in it; two reports
	$(BIN)/reprod plan examples/alexnet/plan.py --output demo_output --report demo_output/report.html
	@$(BIN)/python -W ignore examples/alexnet/planted.py demo_output

# The tests start hundreds of programs: each would compile the whole package anew where the shell forbids bytecode files.
# They lie in build/, so that no test finds one in a folder that it looks at.
test test-fast: export PYTHONDONTWRITEBYTECODE =
test test-fast: export PYTHONPYCACHEPREFIX = $(CURDIR)/build/bytecode

test: $(VENV)/ready $(VENV)/browser lint types ## check style and types, then run the tests; WHOLE=1: every row of the long tables
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(NOT_NEXT)

test-fast: $(VENV)/ready ## run the tests that need neither frameworks nor a browser
	$(BIN)/python -m pytest --fast -n 2 --dist loadfile --no-loadscope-reorder $(NOT_NEXT)

# Further frameworks have an environment of their own: `make test` and `make demo` need none of them.
$(NEXT)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(NEXT)
	$(NEXT)/bin/pip install --quiet --upgrade "pip>=25.1"
	$(NEXT)/bin/pip install --quiet --constraint constraints.txt --editable . --group frameworks-next
	@touch $@

test-frameworks: $(NEXT)/ready ## run the tests of further frameworks, in an environment of their own
	$(NEXT)/bin/python -m pytest -n 2 --dist loadscope tests/frameworks_next

# Public libraries of models, which need each other in versions of their own. torchvision asks for another build of torch,
# and what paddlenlp needs asks for a numpy that we do not work with.
.venv-real/ready: pyproject.toml requirements/real.txt
	$(PYTHON) -m venv .venv-real
	.venv-real/bin/pip install --quiet --upgrade "pip>=25.1"
	.venv-real/bin/pip install --quiet --editable . --requirement requirements/real.txt
	.venv-real/bin/pip install --quiet --no-deps torchvision==0.28.0
	@touch $@

.venv-paddlenlp/ready: pyproject.toml requirements/paddlenlp.txt
	$(PYTHON) -m venv .venv-paddlenlp
	.venv-paddlenlp/bin/pip install --quiet --upgrade "pip>=25.1"
	.venv-paddlenlp/bin/pip install --quiet --requirement requirements/paddlenlp.txt
	.venv-paddlenlp/bin/pip install --quiet --no-deps numpy==2.4.6
	.venv-paddlenlp/bin/pip install --quiet --editable .
	@touch $@

test-real: .venv-real/ready .venv-paddlenlp/ready ## compare models of public libraries, in environments of their own (long)
	@status=0; .venv-real/bin/python tests/real/run.py || status=1; .venv-paddlenlp/bin/python tests/real/run.py || status=1; \
		.venv-paddlenlp/bin/python tests/real/run.py --page; exit $$status

# MindSpore needs numpy before version 2, so nothing else lives with it: it records there, and is compared in .venv.
# Without the constraints, which pin a later numpy and what was built for it.
$(MINDSPORE)/ready: pyproject.toml
	$(PYTHON) -m venv $(MINDSPORE)
	$(MINDSPORE)/bin/pip install --quiet --upgrade "pip>=25.1"
	$(MINDSPORE)/bin/pip install --quiet --editable .[mindspore] "numpy<2"
	@touch $@

test-mindspore: $(VENV)/ready $(MINDSPORE)/ready ## run the tests of MindSpore, in an environment of its own
	MINDSPORE_PYTHON=$(CURDIR)/$(MINDSPORE)/bin/python $(BIN)/python -m pytest tests/frameworks_mindspore

lint: $(VENV)/ready ## check style
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/ruff format --check src tests examples benchmarks

types: $(VENV)/ready ## check types
	$(BIN)/mypy

zoo: $(VENV)/ready ## measure the verdict on planted mistakes and correct ports (long)
	$(BIN)/python tests/zoo/run.py

fuzz: $(VENV)/ready ## fuzz every reader under atheris: SECONDS=60 each, or RUNS=100000 (long)
	$(BIN)/pip install --quiet --constraint constraints.txt --group fuzz
	$(BIN)/python tests/fuzz/run.py $(if $(RUNS),--runs $(RUNS),--seconds $(or $(SECONDS),60)) $(TARGETS)

load: $(VENV)/ready ## 100,000 entries, 1,000 steps, an entry of 8 GB, 64 threads; says what each took (long)
	$(BIN)/python tests/load/run.py

harm: $(VENV)/ready ## kill watched trainings and have their recordings fail: KILLS=340 FAULTS=220 (long)
	cd tests && ../$(BIN)/python -W ignore -m trust.harm --kills $(or $(KILLS),340) --faults $(or $(FAULTS),220)

mutants: $(VENV)/ready ## plant faults in the parts that decide and see whether the tests notice: GROUPS=judge (long)
	$(BIN)/pip install --quiet --constraint constraints.txt --group mutants
	$(BIN)/python tests/mutants/run.py $(GROUPS)

sbom: $(VENV)/ready ## write the bill of materials of the installed tool to build/sbom.json
	@mkdir -p build
	$(PYTHON) -m venv build/sbom-env
	build/sbom-env/bin/pip install --quiet "pip>=25.1" && build/sbom-env/bin/pip install --quiet .
	$(BIN)/pip install --quiet --constraint constraints.txt --group sbom
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--output-file build/sbom.json build/sbom-env/bin/python

requirements: $(VENV)/ready ## pin and hash the packages of development in requirements/dev.txt
	$(BIN)/pip install --quiet --constraint constraints.txt pip-tools
	$(BIN)/python requirements/compile.py

pictures: $(VENV)/ready $(VENV)/browser ## take the pictures of the documentation from the reports of the demo and the gallery
	@fc-list :lang=zh | grep -q . || apt-get install -y -qq fonts-noto-cjk >/dev/null
	@test -f demo_output/mistake.html || $(MAKE) demo
	$(BIN)/python docs/gallery.py
	$(BIN)/python docs/pictures.py demo_output

release-check: $(VENV)/ready ## build wheel and sdist, install each in a fresh environment and use it there
	$(BIN)/python tests/release/check.py

docs: $(VENV)/ready ## build the documentation into site/
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/gallery.py
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d site/.doctrees docs site
	@echo "open site/index.html"

bench: $(VENV)/ready ## measure start-up, comparing and recording beside others, into benchmarks/RESULTS.md (minutes)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/measuring.py $(if $(PEER),--peer $(PEER))
	$(BIN)/python benchmarks/scale.py $(if $(PEER),--peer $(PEER)) --gigabytes $(or $(GIGABYTES),2)
	$(BIN)/python benchmarks/capture_overhead.py
	$(BIN)/python benchmarks/size.py
	$(BIN)/python benchmarks/report_page.py

bench-large: $(VENV)/ready ## compare up to 16 GB, or as much as the disk has room for
	$(BIN)/python benchmarks/scale.py --large 16

clean: ## remove what the targets made
	rm -rf $(VENV) $(NEXT) $(MINDSPORE) .venv-real .venv-paddlenlp demo_output site .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
