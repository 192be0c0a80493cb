#!/usr/bin/env python3
"""Is a job ever claimed by two hosts?

Makes hosts of network and process namespaces, each with an address of its own, and one PostgreSQL that they
reach over that network alone. Their workers empty a queue whose jobs record each execution. Exit 1 if a job
ran twice or not at all, 2 if namespaces cannot be made here.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import two_hosts_app

from tests.history import result  # found only by the line above
from tests.history.check import Rules, check
from tests.history.end import look
from tests.history.record import Reader, Recorder, Verb
from tests.servers import netns, postgres, standby
from tests.waiting import WHOLE_RUN, until

APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
CHUNK = 10_000


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in all (default 20000)")
    parser.add_argument("--hosts", type=int, default=2, help="hosts (default 2)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes on each (default 2)")
    parser.add_argument("--slots", type=int, default=10, help="jobs at once in each (default 10)")
    parser.add_argument("--major", type=int, default=15, help="PostgreSQL's major version (default 15)")
    result.add_option(parser)
    options = parser.parse_args()
    why = netns.cannot()
    if why is not None:
        print(why, file=sys.stderr)
        return 2
    with ExitStack() as closing:
        hosts = closing.enter_context(netns.Hosts(options.hosts))
        server = postgres.Server(postgres.majors()[options.major], listen_addresses=hosts.address)
        closing.callback(server.close)
        with (server.folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {hosts.network} trust\n")
        server.start()
        return run(options, hosts, server)


def run(options: argparse.Namespace, hosts: netns.Hosts, server: postgres.Server) -> int:
    """Fill the queue, let the hosts empty it, judge."""
    local = server.new_database()
    os.environ["WINDLASS_DATABASE_URL"] = local
    recorder = Recorder(server.folder / "history")
    queue, note = two_hosts_app.queue, two_hosts_app.note
    queue.publish()
    for first in range(0, options.jobs, CHUNK):
        numbers = range(first, min(first + CHUNK, options.jobs))
        recorder.enqueue(queue.store, [note.draft(number) for number in numbers])
    go, begun, history = server.folder / "go", time.monotonic(), Reader(recorder.path)
    os.environ["GO_FILE"] = str(go)
    address = f"postgresql://postgres@{hosts.address}/{standby.name_of(local)}"
    workers = start(options, hosts, recorder, address)
    try:
        # Jobs wait for it: else the first host may have emptied the queue before the second has started.
        until(lambda: history.read() and len(history.running()) == len(hosts.names), "every host has jobs")
        go.touch()
        codes = [worker.wait(WHOLE_RUN) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    shown = result.Result("two-hosts", local)
    shown.promise("workers end with exit code 0", codes, held=not any(codes))
    check(history.read(), look(queue.store, local), Rules()).add_to(shown)
    queue.close()
    at = Counter(run.process for run in history.of(Verb.RUN))
    print(f"{options.jobs} jobs in {time.monotonic() - begun:.1f} s, by host: {dict(at)}")
    shown.promise("every job ran once", at.total(), held=at.total() == options.jobs)
    shown.promise("every host worked", f"{len(at)} of {len(hosts.names)}", held=set(at) == set(hosts.names))
    return 0 if shown.close(options.json) else 1


def start(
    options: argparse.Namespace, hosts: netns.Hosts, recorder: Recorder, url: str
) -> list[subprocess.Popen[bytes]]:
    """Start the workers of every host."""
    windlass = str(Path(sys.executable).with_name("windlass"))
    command = [windlass, "worker", "start", "two_hosts_app:queue", "--until-empty"]
    command += ["--concurrency", str(options.slots)]
    return [
        subprocess.Popen(
            [*hosts.enter(host), *APART, *command],
            cwd=Path(__file__).parent,
            env={**os.environ, "WINDLASS_DATABASE_URL": url, **recorder.environment(host)},
            stdout=subprocess.DEVNULL,
        )
        for host in hosts.names
        for _ in range(options.workers)
    ]


if __name__ == "__main__":
    sys.exit(main())
