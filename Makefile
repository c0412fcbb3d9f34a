# Everything that people and CI run. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
CHECK ?=
COVERAGE ?=
FRESH ?=
RECIPE ?= bert4rec-small
DATA ?= ../shared/data
# cpu: a couple of hundred megabytes; cuda: the plain index's build, several gigabytes on Linux. Once chosen, it stays.
TORCH ?= $(if $(wildcard $(VENV)/.torch-cuda),cuda,cpu)
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet
PEERS := .cache/peers
OPTIONS ?=
# Processes that share the suite, each a file at a time and with stores of its own. In the files' order: the last are short.
JOBS ?= 2
SPLIT = -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Sets index to pip's option for PyTorch's CPU build where the public CPU index answers within two seconds. pip prefers
# 2.13.0+cpu to 2.13.0, so that an extra index is enough.
FIND_TORCH = index=; if [ "$(TORCH)" = cpu ] && $(PYTHON) -c 'import urllib.request as r; r.urlopen("$(TORCH_CPU_INDEX)/torch/", timeout=2)' 2>/dev/null; \
	then index="--extra-index-url $(TORCH_CPU_INDEX)"; fi
export ORT_DISABLE_TELEMETRY := 1
# Images set it, and then each process that a test starts compiles all of our code anew: a fifth of its start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo day-two test fuzz drain deployments trial overload chaos soak swaps sold-out judged explained vendor check check-security check-protocol bench bench-graph bench-models bench-training bench-learning test-service coverage release dashboard preview format clean lighthouse
.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: $(VENV)/.run ## Train on MovieLens-100K, serve, replay, recommend; PORT=8000, RECIPE=nova, FRESH=1 trains anew, CHECK=1 verifies and exits
	@$(BIN)/python -m demo --port $(PORT) --recipe $(RECIPE) $(if $(FRESH),--fresh) $(if $(CHECK),--check)

day-two: $(VENV)/.run ## A model's second day: new films, live quality falls, retrain, trial, promotion, rollback; PORT=8000, CHECK=1 in less time
	@$(BIN)/python -m demo.day_two --port $(PORT) $(if $(CHECK),--check)

# Each test runs once, where it belongs: the service's without torch, all others beside it; and those of the service that
# want the exporter. Both halves run even if the first one fails.
SERVICE_TESTS = tests/contract tests/serving
OTHER_TESTS = $(filter-out $(addsuffix /,$(SERVICE_TESTS)) %__pycache__/,$(wildcard tests/*/)) $(shell grep -rl --include="*.py" importorskip $(SERVICE_TESTS))
MEASURED = $(if $(COVERAGE),coverage run -m pytest,pytest)
test: $(VENV)/.run $(VENV)/.dev .venv-service/.ready ## Run the whole suite on two cores, integration against a real Valkey included; JOBS=1, COVERAGE=1 measures it
	@rm -rf .cache/coverage && mkdir -p .cache/coverage
	.venv-service/bin/$(MEASURED) $(SPLIT) $(SERVICE_TESTS); service=$$?; \
	$(BIN)/pytest $(SPLIT) $(OTHER_TESTS) && exit $$service

coverage: .venv-service/.ready ## Report the branch coverage that `make test COVERAGE=1` measured, of service and model.contract; fails below the floor
	.venv-service/bin/coverage combine --quiet
	.venv-service/bin/coverage report

fuzz: $(VENV)/.run $(VENV)/.dev ## Twenty times as much generated input as in the suite: 3,000 cases, 10,000 bodies, 2,000 histories in each store
	FUZZ_TIMES=20 $(BIN)/pytest --timeout 1800 tests/serving/http/test_generated_input.py tests/serving/store/test_history_model.py tests/serving/store/test_history_import.py

drain: $(VENV)/.run $(VENV)/.dev ## Stop the service under load 20 times with one worker, 20 with two, and replace two 20 times; nobody is failed
	DRAIN_TIMES=20 $(BIN)/pytest --timeout 1800 -rP tests/serving/http/test_drain.py -k under_load

deployments: $(VENV)/.run $(VENV)/.dev ## Change deployments by 500 random sequences of commands, killed anywhere, and kill -9 command, worker and probe at each step
	DEPLOYMENT_SEQUENCES=500 KILL_TIMES=3 $(BIN)/pytest --timeout 1800 tests/contract/deployment tests/serving/deployment_commands
	KILL_TIMES=5 $(BIN)/pytest --timeout 1800 tests/reliability/test_swap_kills.py

trial: $(VENV)/.run ## Simulate 1,000 trials of each kind: how often a verdict on a candidate errs, and how soon it finds what is there
	@$(BIN)/python -m benchmarks.trial $(OPTIONS)

overload: $(VENV)/.run ## Ask three times as much as the model can answer, with events beside it
	@$(BIN)/python -m benchmarks.reliability.overload

test-service: .venv-service/.ready ## Run the service's half of the suite, in an environment without torch
	.venv-service/bin/pytest $(SPLIT) $(SERVICE_TESTS)

check: $(VENV)/.run $(VENV)/.dev ## Lint, types, import contracts, version floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m deploy.floors

# Strict: what the source of advisories does not know is a failure, and so is a source that cannot be reached.
check-security: .venv-security/.ready ## Ask PyPI's advisories about every pinned version; fails where it cannot
	.venv-security/bin/pip-audit --strict --disable-pip --no-deps --progress-spinner off -r constraints.txt \
	|| { echo "check-security: a version has a known hole, or could not be checked (see above)"; exit 1; }

RELEASE := .cache/release
# From the source archive, as whoever gets it builds it; in an environment without anything of ours.
release: .venv-release/.ready ## Build wheel and source archive into dist/, install the wheel elsewhere and try both commands and the client
	@rm -rf dist $(RELEASE) && mkdir -p $(RELEASE)
	@.venv-release/bin/python -m build --no-isolation . >$(RELEASE)/build.log 2>&1 \
	|| { tail -20 $(RELEASE)/build.log; echo "release: wheel and source archive could not be built (see above)"; exit 1; }
	@echo "Installing the wheel into $(RELEASE)/try ..."
	@$(PYTHON) -m venv $(RELEASE)/try
	@$(FIND_TORCH); $(PIP:$(BIN)%=$(RELEASE)/try/bin%) install -c constraints.txt $$index torch \
	&& $(PIP:$(BIN)%=$(RELEASE)/try/bin%) install -c constraints.txt "$$(ls dist/*.whl)[service,training]" \
	|| { echo "release: the wheel could not be installed with its extras (see above)"; exit 1; }
	@$(PYTHON) -m venv $(RELEASE)/client
	@$(PIP:$(BIN)%=$(RELEASE)/client/bin%) install -c constraints.txt "$$(ls dist/*.whl)[client]" \
	|| { echo "release: the wheel could not be installed with the extra client (see above)"; exit 1; }
	@$(RELEASE)/try/bin/python -P deploy/release.py $(RELEASE)/folder $(RELEASE)/client/bin/python
	@ls -l dist

.venv-release/.ready: constraints.txt
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	@$(PIP:$(BIN)%=.venv-release/bin%) install -c constraints.txt build hatchling
	@touch $@

vendor: ## Fetch the console's JavaScript libraries as pinned in its vendor/packages.json, checked by their integrity; needs npm
	@$(PYTHON) deploy/vendor.py

LIGHTHOUSE := .cache/lighthouse/node_modules/.bin
lighthouse: $(VENV)/.run $(VENV)/.dev ## Ask Lighthouse how accessible each view of the console is; needs npm and Chromium
	@npm install --silent --no-save --no-audit --no-fund --prefix .cache/lighthouse lighthouse@13.5.0
	@PATH="$(CURDIR)/$(LIGHTHOUSE):$$PATH" $(BIN)/pytest -rP tests/console/test_lighthouse.py

dashboard: $(VENV)/.run $(VENV)/.dev ## Write the Grafana dashboard's JSON anew from deploy/grafana
	$(BIN)/python -m deploy.grafana.dashboard

preview: $(VENV)/.run $(VENV)/.dev ## Draw docs/dashboard.png from the Prometheus of docker compose
	$(BIN)/python -m deploy.grafana.preview --url http://127.0.0.1:9090 --minutes 30

check-protocol: $(VENV)/.run ## Reproduce the papers' popularity rows; DATA=FOLDER holds their files
	@$(BIN)/python -m benchmarks.accuracy.protocol "$(DATA)"

chaos: $(VENV)/.run $(VENV)/.dev ## Lose no event: 50,000 under 112 faults, 21 power cuts among them; needs gcc
	@$(BIN)/python -m benchmarks.reliability.chaos

soak: $(VENV)/.run ## Watch the service's memory under ten minutes of traffic, and a leaking control's under three
	@$(BIN)/python -m benchmarks.reliability.soak

swaps: $(VENV)/.run ## Swap models 200 times under load with one worker and with two; OPTIONS=--corrupt: 1,000 damaged bundles
	@$(BIN)/python -m benchmarks.reliability.swaps $(OPTIONS)

sold-out: $(VENV)/.run ## Change items 10,000 times, 4 workers under 300 questions a second: every answer knows what is sold out and what filters allow
	@$(BIN)/python -m benchmarks.reliability.sold_out $(OPTIONS)

judged: $(VENV)/.run ## Compare p99, throughput and overload with the judge and without (15 minutes, cores of your own)
	@$(BIN)/python -m benchmarks.reliability.judged $(OPTIONS)

explained: $(VENV)/.run ## Check 1,000 answers' reasons on MovieLens-1M: true, in time, and what they do to ranks; DATA=FOLDER, OPTIONS="--seconds 300"
	@$(BIN)/python -m benchmarks.accuracy.explanations "$(DATA)/ml-1m/ml-1m.txt.gz" --work .cache/explained $(OPTIONS)

bench-training: $(VENV)/.run $(PEERS)/rectools/.ready $(PEERS)/recbole/.ready ## Train beside RecTools and RecBole; DATA=FOLDER, OPTIONS="--threads 2"
	@$(BIN)/python -m benchmarks.training "$(DATA)/ml-1m/ml-1m.txt.gz" --environments $(PEERS) $(OPTIONS)

bench-learning: $(VENV)/.run $(PEERS)/rectools/.ready $(PEERS)/recbole/.ready ## NDCG@10 over CPU seconds beside RecTools and RecBole, and minutes to published rows; DATA=FOLDER, OPTIONS="--minutes 30"
	@$(BIN)/python -m benchmarks.training.learning "$(DATA)/ml-1m/ml-1m.txt.gz" --environments $(PEERS) $(OPTIONS)

bench-models: $(VENV)/.run ## Every model on MovieLens-1M and Beauty, what is missing alone; DATA=FOLDER, OPTIONS="--only ml-1m"; CHECK=1 lists stale cells
	@$(BIN)/python -m benchmarks.accuracy.models "$(DATA)" --out benchmarks/results/models $(if $(CHECK),--check) $(OPTIONS)

bench: $(VENV)/.run $(PEERS)/litserve/.ready $(PEERS)/bentoml/.ready ## Serve beside a textbook handler, LitServe and BentoML; OPTIONS="--cases 50,3416,64"
	@$(BIN)/python -m benchmarks.serving --environments $(PEERS) $(OPTIONS)

bench-graph: $(VENV)/.run ## Measure what each step of the exported graph gains; OPTIONS="--threads 1 --network sasrec"
	@$(BIN)/python -m benchmarks.graph $(OPTIONS)

format: $(VENV)/.dev ## Format and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove environments, caches and artifacts
	rm -rf $(VENV) .venv-service .venv-security .venv-release .cache artifacts .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# Another TORCH than last time takes the old build away first: to pip both are 2.13.0.
$(VENV)/.torch-$(TORCH):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nextitem needs Python 3.11 or newer: PYTHON=python3.12 make ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test ! -e $(VENV)/.run || $(PIP) uninstall -y torch
	@rm -f $(VENV)/.torch-* && touch $@

# PyTorch comes first and by itself: its CPU build where there is one, else the plain index's.
$(VENV)/.run: pyproject.toml constraints.txt $(VENV)/.torch-$(TORCH)
	@echo "Installing PyTorch ($(TORCH)), ONNX Runtime and the rest into $(VENV) ..."
	@$(FIND_TORCH); $(PIP) install -c constraints.txt $$index torch
	@$(PIP) install -c constraints.txt -e '.[service,training]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.run
	@$(PIP) install -c constraints.txt -e '.[service,training,sweep,tracking,test,browser,deploy,check]'
	@touch $@

.venv-security/.ready:
	@$(PYTHON) -m venv .venv-security
	@$(PIP:$(BIN)%=.venv-security/bin%) install pip-audit==2.10.1
	@touch $@

# An environment for each trainer and server that ours are compared with: their pins are not ours.
vpath %.txt benchmarks/training/requirements benchmarks/serving/requirements
$(PEERS)/%/.ready: %.txt
	@echo "Installing $* into $(@D) ..."
	@mkdir -p $(PEERS) && $(PYTHON) -m venv --clear $(@D)
	@$(FIND_TORCH); $(PIP:$(BIN)%=$(@D)/bin%) install $$index -r $<
	@touch $@

.venv-service/.ready: pyproject.toml constraints.txt
	@test -x .venv-service/bin/python || $(PYTHON) -m venv .venv-service
	@$(PIP:$(BIN)%=.venv-service/bin%) install -c constraints.txt -e '.[service,test]'
	@touch $@
