#!/usr/bin/env python3
"""Is a job ever claimed by two hosts?

Makes hosts of network and process namespaces, each with an address of its own, and one PostgreSQL that they
reach over that network alone. Their workers empty a queue whose jobs write each run into a table. Exit 1 if a
job ran twice or not at all, 2 if namespaces cannot be made here.
"""

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import two_hosts_app

from tests.servers import netns, postgres, standby  # found only by the line above

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
    """Fill the queue, let the hosts empty it, count."""
    local = server.new_database()
    name = standby.name_of(local)
    server.run("create table runs (number integer, job uuid, host text, pid integer)", name)
    os.environ["WINDLASS_DATABASE_URL"] = local
    for start in range(0, options.jobs, CHUNK):
        numbers = range(start, min(start + CHUNK, options.jobs))
        two_hosts_app.queue.enqueue_many(two_hosts_app.note.draft(number) for number in numbers)
    begun = time.monotonic()
    codes = work(options, hosts, f"postgresql://postgres@{hosts.address}/{name}")
    seconds = time.monotonic() - begun
    problems = two_hosts_app.queue.store.check()
    two_hosts_app.queue.close()
    [(runs, jobs)] = server.run("select count(*), count(distinct number) from runs", name)
    twice = server.run("select number, count(*) from runs group by number having count(*) > 1", name)
    print(f"jobs            {options.jobs}, in {seconds:.1f} s")
    print(f"runs            {runs}, of {jobs} jobs")
    for host, count in server.run("select host, count(*) from runs group by host order by host", name):
        print(f"  at {host:<12} {count}")
    print(f"run twice       {len(twice)} {twice[:5] or ''}")
    print(f"exit codes      {codes}")
    held = not (twice or problems or any(codes)) and runs == jobs == options.jobs
    print("no job was claimed twice" if held else f"A JOB WAS LOST OR CLAIMED TWICE {problems}")
    return 0 if held else 1


def work(options: argparse.Namespace, hosts: netns.Hosts, url: str) -> list[int]:
    """Start the workers of every host; their exit codes, once the queue is empty."""
    windlass = str(Path(sys.executable).with_name("windlass"))
    command = [windlass, "worker", "start", "two_hosts_app:queue", "--until-empty"]
    command += ["--concurrency", str(options.slots)]
    workers = [
        subprocess.Popen(
            [*hosts.enter(host), *APART, *command],
            cwd=Path(__file__).parent,
            env={**os.environ, "WINDLASS_DATABASE_URL": url, "HOST_NAME": host},
            stdout=subprocess.DEVNULL,
        )
        for host in hosts.names
        for _ in range(options.workers)
    ]
    try:
        return [worker.wait() for worker in workers]
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()


if __name__ == "__main__":
    sys.exit(main())
