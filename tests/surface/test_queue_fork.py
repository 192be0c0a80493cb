"""A queue that was used before a fork, as under a preloading server.

Each test forks in a process of its own: pytest's has threads.
"""

import subprocess
import sys
from pathlib import Path

from tests.waiting import WHOLE_RUN

START = """
import os, sys, threading
from windlass import Queue

queue = Queue("sqlite:///jobs.db")

@queue.job
def send(to: str) -> None: ...

def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            sys.stdout.flush()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0

def payloads():
    from windlass.store.jobs import Filter
    return sorted(bytes(job.payload).decode() for job in queue.store.find(Filter()).jobs)
"""


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START + script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WHOLE_RUN,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_parent_and_child_go_on_with_stores_of_their_own(tmp_path: Path) -> None:
    said = run(
        """
send.enqueue("before")
parents = queue.store
in_child(lambda: (send.enqueue("child"), print(queue.store is parents), queue.close()))
print(queue.store is parents)
send.enqueue("parent")
print(payloads(), queue.store.check())
queue.close()
""",
        tmp_path,
    )
    assert said.splitlines() == [
        "False",
        "True",
        """['{"to":"before"}', '{"to":"child"}', '{"to":"parent"}'] []""",
    ]


def test_a_lock_that_another_thread_held_at_the_fork_does_not_stop_the_child(tmp_path: Path) -> None:
    said = run(
        """
send.enqueue("before")
queue._opening._lock.acquire()
in_child(lambda: print(send.enqueue("child").state))
queue._opening._lock.release()
queue.close()
""",
        tmp_path,
    )
    assert said == "pending"


def test_a_child_that_never_uses_the_queue_leaves_the_parents_store_alone(tmp_path: Path) -> None:
    said = run(
        """
import gc
send.enqueue("before")

def forget():
    global queue, send
    del queue, send
    gc.collect()

in_child(forget)
in_child(queue.close)
send.enqueue("after")
print(len(payloads()), queue.store.check())
queue.close()
""",
        tmp_path,
    )
    assert said == "2 []"


def test_a_handle_made_before_the_fork_looks_into_the_childs_store(tmp_path: Path) -> None:
    said = run(
        """
handle = send.enqueue("before")
in_child(lambda: print(handle.state))
queue.close()
""",
        tmp_path,
    )
    assert said == "pending"


def test_a_store_in_memory_that_was_open_before_the_fork_is_refused_in_the_child(tmp_path: Path) -> None:
    """It would take jobs that nobody ever runs."""
    said = run(
        """
from windlass import StoreUnavailable
queue.stand_at("sqlite:///:memory:")
send.enqueue("before")

def child():
    for _ in range(2):
        try:
            send.enqueue("child")
        except StoreUnavailable as refusal:
            print(refusal)

in_child(child)
send.enqueue("parent")
print(payloads())
queue.close()
""",
        tmp_path,
    )
    refusal = (
        "a store in memory belongs to the process that opened it, and this process was forked off: "
        "open the queue after the fork, or use a file"
    )
    assert said.splitlines() == [refusal, refusal, """['{"to":"before"}', '{"to":"parent"}']"""]
