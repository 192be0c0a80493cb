# Names for what scripts/dev.py does. ARGS goes on to the command: make test ARGS="-k retry"
# PYTHON chooses the interpreter, each version with an environment of its own: make test PYTHON=python3.13
PYTHON ?= python3
ARGS ?=
DEV := "$(PYTHON)" scripts/dev.py

.DEFAULT_GOAL := help
.PHONY: help run test test-fast check format shape words setup lock docs proofs kill-run kill-commit schedule-run move-run two-hosts bad-company shutdown-matrix suspects parallel churn growth at-size held-xmin
.PHONY: simulate simulate-mutants power-cuts siege limit-storm unique-storm breaker-walk fairness server-kill foreign-workers contract bad-day soak evidence
.PHONY: bench bench-quick bench-pairs bench-self examples screenshots

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1	\2/'

run: ## Start everything, with the demo handlers
	@$(DEV) run $(ARGS)

test: ## Run the checks, then the tests
	@$(DEV) test $(ARGS)

test-fast: ## The tests that need no server, without the checks: for other versions of Python, PYTHON=python3.13
	@$(DEV) test-fast $(ARGS)

check: ## Lint, formatting, types, import layers, old words, the shape of the source
	@$(DEV) check

format: ## Fix and format the code
	@$(DEV) format

shape: ## Sizes, what a job passes through, what is restated; ARGS=--list names it
	@$(DEV) exec python scripts/shape.py $(ARGS)

words: ## Count the old words; ARGS=--save writes lower counts
	@$(DEV) exec python scripts/words.py $(ARGS)

setup: ## Make .venv and install what is pinned (the others do so when needed)
	@$(DEV) setup $(ARGS)

lock: ## Write requirements-dev.txt anew; ARGS=--upgrade for the newest releases
	@$(DEV) lock $(ARGS)

schedule-run: ## Kill four schedulers at random over the nights in which clocks change: does each fire time fire once?
	@$(DEV) exec python scripts/schedule_run.py $(ARGS)

proofs: ## Let TLC check the models of proofs/ and refute their broken twins, under ten minutes; ARGS="--quick Lease" for one
	@$(DEV) exec python -m proofs.run $(ARGS)

kill-run: ## Kill workers at random under load and count what was lost; ARGS=--postgres with its server failing, too
	@$(DEV) exec python scripts/kill_run.py $(ARGS)

kill-commit: ## Kill a worker 200 times between its handler's write and the commit; ARGS=--postgres
	@$(DEV) exec python scripts/kill_commit.py $(ARGS)

power-cuts: ## Cut the power at 10,000 points of a recording of SQLite's writes: is what was acknowledged there? Needs cc
	@$(DEV) exec python scripts/power_cuts $(ARGS)

two-hosts: ## Two hosts in network namespaces of their own (needs root) on one PostgreSQL: does any job run twice?
	@$(DEV) exec python scripts/two_hosts.py $(ARGS)

move-run: ## Move 200,000 jobs to PostgreSQL, kill the move half-way, resume it, compare
	@$(DEV) exec python scripts/move_run.py $(ARGS)

bad-company: ## Crashing, hoarding, spinning, breeding and blocking jobs beside 1,000 good ones
	@$(DEV) exec python scripts/bad_company.py $(ARGS)

parallel: ## Two jobs that compute, at once and on a core each: how much longer than one alone? Needs two free cores
	@$(DEV) exec python scripts/parallel.py $(ARGS)

suspects: ## What it brings that jobs whose worker was lost twice run in children
	@$(DEV) exec python scripts/suspects.py $(ARGS)

shutdown-matrix: ## Every executor x order of signals x state of the store, then 200 random ends under load
	@$(DEV) exec python scripts/shutdown_matrix.py $(ARGS)

server-kill: ## Kill servers at random under 2,000 posts, and stop PostgreSQL for 15 s: is an accepted job ever lost?
	@$(DEV) exec python scripts/server_kill.py $(ARGS)

foreign-workers: ## A thousand jobs by workers in sh, a thousand in JavaScript, while they are killed
	@$(DEV) exec python scripts/foreign_workers.py $(ARGS)

contract: ## Thousands of requests made from the OpenAPI contract, on both stores; ARGS=--cases=500 for a quick look
	@$(DEV) exec python scripts/contract.py $(ARGS)

bad-day: ## Rolling deploys, frozen workers, lost files, shutdowns: real processes, both stores; ARGS="--only gil --store sqlite"
	@$(DEV) exec python scripts/bad_day $(ARGS)

simulate: ## A fleet on one seeded thread, with faults; ARGS="--seed=7", ARGS="--seconds=600 --coverage", ARGS="--store postgres"
	@$(DEV) exec python scripts/simulate.py $(ARGS)

simulate-mutants: ## Bugs planted one by one: does the simulator find them? Goes on where it stopped; ARGS=--again
	@$(DEV) exec python scripts/mutants.py $(ARGS)

siege: ## Attacks on a real server beside good posts, then an outage of its store, on both stores; ARGS="--only waits --store sqlite"
	@$(DEV) exec python scripts/siege $(ARGS)

soak: ## An hour of mixed load, kills, restarts and pruning: does anything get lost, or grow? ARGS=--seconds=60 for a quick look
	@$(DEV) exec python scripts/soak $(ARGS)

evidence: ## Write docs/evidence.md from the results in docs/evidence
	@$(DEV) exec python scripts/evidence $(ARGS)

churn: ## 100,000 jobs, a tenth of them bad, through one worker; draws churn.svg
	@$(DEV) exec python scripts/churn.py $(ARGS)

growth: ## Fill a PostgreSQL store and show that claims cost the same; ARGS=--scale=0.1 for a quick look
	@$(DEV) exec python scripts/growth.py $(ARGS)

at-size: ## Pages and a scrape with a million live and ten million archived jobs on PostgreSQL; ARGS=--scale=0.1 for a quick look
	@$(DEV) exec python scripts/at_size.py $(ARGS)

held-xmin: ## What a forgotten transaction does to a PostgreSQL store; ARGS=--seconds=60 for a quick look
	@$(DEV) exec python scripts/held_xmin.py $(ARGS)

limit-storm: ## Limits under kills, sampled from the store, on both stores; ARGS=--seconds=12 for a quick look
	@$(DEV) exec python scripts/limit_storm.py $(ARGS)

fairness: ## 10 jobs behind 100,000 of another tenant, one behind 200,000 paused ones, 10,000 tenants, on both stores
	@$(DEV) exec python scripts/fairness.py $(ARGS)

unique-storm: ## Never two jobs of a name at once, no name stuck, no work lost, under kills, on both stores
	@$(DEV) exec python scripts/unique_storm.py $(ARGS)

breaker-walk: ## A dependency goes down and comes back under four workers, on both stores
	@$(DEV) exec python scripts/breaker_walk.py $(ARGS)

bench: ## Side by side with the others: bench/report.md; ARGS=--minutes=20 for less time
	@$(DEV) bench run $(ARGS)

bench-quick: ## Has anything become slower since the committed results? Under five minutes
	@$(DEV) bench quick $(ARGS)

bench-pairs: ## Is this tree slower than an earlier commit? ARGS="--against COMMIT": 21 pairs in turn, on both stores
	@$(DEV) bench pairs $(ARGS)

bench-self: ## Measure this tree alone, as `windlass bench` does for users, on both stores; says which aims are met
	@$(DEV) bench self $(ARGS)

examples: ## Type the commands of each example's README in a new environment; ARGS=flask for one
	@$(DEV) exec python scripts/examples.py $(ARGS)

screenshots: ## Take the dashboard's pictures for the documentation; needs Chromium
	@$(DEV) exec python scripts/screenshots.py $(ARGS)

docs: ## Build the documentation site into site/
	@$(DEV) exec python scripts/docs.py
