# `make demo` and `make test` do all of their own set-up: a virtual environment in .venv with pinned packages.

PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
READY := $(VENV)/.ready

.PHONY: demo test test-code test-root setup lint fuzz nightly test-mixed-torch clean

demo: $(READY)
	$(BIN)/swarm demo

# Networks between homes and small disks take root on Linux: elsewhere that part is left out, and named.
ROOT_TESTS := tests/netlab tests/integration/disks
test: test-code
	@if [ "$$(uname)$$(id -u)" = Linux0 ]; then $(MAKE) test-root; \
	else echo "left out: $(ROOT_TESTS), which take root on Linux (sudo make test-root)"; fi

test-code: $(READY)
	$(BIN)/python -m pytest -n auto $(addprefix --ignore ,$(ROOT_TESTS))

# Alone, since it measures.
test-root: $(READY)
	$(BIN)/python -m pytest $(ROOT_TESTS)

setup: $(READY)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Half a minute over all parsers; `nightly` gives each ten minutes.
fuzz: $(READY)
	$(BIN)/python tests/fuzz/guided.py --all 30

nightly: $(READY)
	$(BIN)/python tests/nightly.py

# Peers of two versions of torch train one job together; the other one's environment takes some gigabytes.
OTHER_TORCH := 2.8.0
OTHER := .venv-torch-$(OTHER_TORCH)
test-mixed-torch: $(READY) $(OTHER)/.ready
	$(BIN)/python tests/mixed_torch.py $(OTHER)/$(notdir $(BIN))/swarm

$(OTHER)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(OTHER)
	grep -v '^torch==' constraints.txt > $(OTHER)/constraints.txt
	$(OTHER)/$(notdir $(BIN))/python -m pip install --quiet --disable-pip-version-check -c $(OTHER)/constraints.txt -e '.[peer]' torch==$(OTHER_TORCH)
	touch $(OTHER)/.ready

clean:
	rm -rf $(VENV) .venv-torch-*

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fusion-swarm needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peer,examples,dev]'
	touch $(READY)
