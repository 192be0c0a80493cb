"""Does a tenant ever get, or lose, another tenant's work? The same names, by Python and over HTTP."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

from bad_day.stage import Scenario, Stage, StageBroken

_APP = """
from windlass import Queue

queue = Queue()


@queue.job
def send(to: str) -> str:
    return to
"""
_PRODUCER = """
import json
import sys

from names_app import queue, send
from windlass import WindlassError


def enqueue(job):
    try:
        handle = queue.enqueue("send", {"to": job.pop("to")}, **job)
        return {"id": handle.id, "created": handle.created}
    except WindlassError as error:
        return {"error": f"{type(error).__name__}: {error}"}


print(json.dumps([enqueue(job) for job in json.loads(sys.argv[1])]))
"""
_TENANTS = ("acme", "globex")
# Id, tenant and payload.
Accepted = tuple[str, str, str]


def tenants(stage: Stage) -> None:
    """Two tenants use the same key, and the same unique name with replace; then a worker runs everything."""
    stage.write("names_app.py", _APP)
    stage.write("names_producer.py", _PRODUCER)
    accepted = [*_by_python(stage), *_by_http(stage)]
    # Some are due only after a delay, during which others could replace them.
    stage.worker("names_app:queue")
    stage.until(lambda: stage.states().get("completed", 0) >= len(accepted), 30)
    jobs = {job["id"]: job for job in stage.jobs()}
    ran = {
        (job_id, job["tenant"], job["payload"]["to"])
        for job_id, job in jobs.items()
        if job["state"] == "completed"
    }
    lost = [each for each in accepted if each not in ran]
    stage.promise(
        "each accepted job ran for its tenant with its payload",
        held=not lost and len(set(accepted)) == len(accepted),
        seen=f"lost: {lost}" if lost else f"{len(ran)} ran, {len(accepted)} were accepted",
    )


def _by_python(stage: Stage) -> list[Accepted]:
    asked: list[dict[str, Any]] = []
    for tenant in _TENANTS:
        asked.append({"to": "python-key", "tenant": tenant, "key": "order:1"})
        unique = {"unique": "sync", "on_unique": "replace", "delay": 2}
        asked.append({"to": f"python-unique-{tenant}", "tenant": tenant, **unique})
    done = stage.python("names_producer.py", json.dumps(asked))
    if done.returncode:
        raise StageBroken(done.stderr)
    answers = json.loads(done.stdout)
    made = [answer.get("created", False) for answer in answers]
    stage.promise("by Python each tenant's request makes its own job", held=all(made), seen=made)
    again = json.loads(stage.python("names_producer.py", json.dumps(asked)).stdout)
    same = [one.get("id") == other.get("id") for one, other in zip(answers, again, strict=True)]
    stage.promise("a repeat finds the job of its own tenant", held=all(same), seen=same)
    return _accepted(asked, answers)


def _by_http(stage: Stage) -> list[Accepted]:
    keys = {
        tenant: stage.json("keys", "create", "shop", "--role", "producer", "--tenant", tenant)["key"]
        for tenant in _TENANTS
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stage.start("-m", "windlass", "serve", "--port", str(port), log="server.log")
    url = f"http://127.0.0.1:{port}/api/v1/jobs"
    if not stage.until(lambda: _post(url, keys["acme"], {})[0], 60):
        raise StageBroken(f"the server did not start:\n{stage.log('server.log')[-2000:]}")
    asked: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for tenant in _TENANTS:
        key = {"to": "http-key", "key": "order:2"}
        unique = {"to": f"http-unique-{tenant}", "unique": "sync", "on_unique": "replace", "delay": 2}
        for job in (key, unique):
            sent = {"type": "send", **job, "payload": {"to": job["to"]}}
            asked.append({"to": sent.pop("to"), "tenant": tenant, "key": job.get("key")})
            status, answer = _post(url, keys[tenant], sent)
            answers.append({"status": status, **answer})
    made = [answer.get("created", False) for answer in answers]
    stage.promise("over HTTP each tenant's request makes its own job", held=all(made), seen=made)
    return _accepted(asked, answers)


def _accepted(asked: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[Accepted]:
    """Which job was promised to which request."""
    pairs = zip(asked, answers, strict=True)
    return [(answer["id"], job["tenant"], job["to"]) for job, answer in pairs if "id" in answer]


def _post(url: str, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


SCENARIOS = [
    Scenario("13", "tenants", "two tenants use the same key and the same unique name", tenants),
]
