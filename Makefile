# Names for what scripts/dev.py does. ARGS goes on to the command: make test ARGS="-k retry"
PYTHON ?= python3
ARGS ?=
DEV := $(PYTHON) scripts/dev.py

.DEFAULT_GOAL := help
.PHONY: help run test test-postgres check format setup lock kill-run growth bench bench-quick bench-self

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1	\2/'

run: ## Start everything, with the demo handlers
	@$(DEV) run $(ARGS)

test: ## Run the checks, then the tests
	@$(DEV) test $(ARGS)

test-postgres: ## The same, with the PostgreSQL store on real servers of three majors
	@WINDLASS_TEST_POSTGRES=1 $(DEV) test $(ARGS)

check: ## Lint, formatting, types, who may import whom
	@$(DEV) check

format: ## Mend and format the code
	@$(DEV) format

setup: ## Make .venv and install what is pinned (the others do so when needed)
	@$(DEV) setup $(ARGS)

lock: ## Write requirements-dev.txt anew; ARGS=--upgrade for the newest releases
	@$(DEV) lock $(ARGS)

kill-run: ## Kill workers at random under load and count what was lost
	@$(DEV) exec python scripts/kill_run.py $(ARGS)

growth: ## Fill a PostgreSQL store and show that claims cost the same; ARGS=--scale=0.1 for a quick look
	@$(DEV) exec python scripts/growth.py $(ARGS)

bench: ## Side by side with the others: bench/report.md; ARGS=--minutes=20 for less time
	@$(DEV) exec python -m bench run $(ARGS)

bench-quick: ## Has anything become slower since the committed results? Under five minutes
	@$(DEV) exec python -m bench quick $(ARGS)

bench-self: ## Measure this tree alone, as `windlass bench` does for users
	@$(DEV) exec windlass bench $(ARGS)
