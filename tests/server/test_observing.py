"""What can be seen of the jobs over HTTP, and who is told when something is wrong?"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from tests.conformance.scene import MAIL, REPORT
from tests.observe.scene import DEAD, Stage, parsed, staged
from tests.observe.tables import Tables
from tests.server.conftest import House, serving, shop, visitor
from tests.server.messages import one_message
from tests.waiting import PATIENCE, until
from windlass import Client, Queue, connect
from windlass.errors import InvalidValue
from windlass.observe.firing import labels_text
from windlass.observe.ledger import Ledger
from windlass.payload import Ring
from windlass.server.alarm import SIGNATURE, Alarm
from windlass.worker.coroutines import Coroutines
from windlass.worker.verifier import Verifier

NOW = timedelta(0)


def values(house: House, name: str) -> dict[tuple[str, ...], float]:
    """A metric of the server's scrape, by its labels' values; what is zero is left out."""
    with visitor(house.url) as scraper:
        text = scraper.get("/metrics").text
    return {tuple(labels.values()): value for labels, value in parsed(text).get(name, ()) if value}


def test_the_first_scrape_after_a_start_tells_how_much_waits_now(store_url: str) -> None:
    with shop(store_url) as queue:
        queue.enqueue("add", {"a": 1})
        queue.store.bury(queue.enqueue("add", {"a": 2}).id)
        with serving(queue) as house:
            assert values(house, "windlass_queue_depth") == {("add", "5", "due"): 1}
            assert values(house, "windlass_dlq_depth") == {("add",): 1}


def test_a_later_acknowledgement_is_counted_once(store_url: str) -> None:
    with shop(store_url) as queue, serving(queue) as house:
        api = house.caller()
        job = api.post("/jobs", json={"type": "add", "payload": {"a": 1}}).json()["id"]
        told = [api.post(f"/jobs/{job}/confirm").json() for _ in range(2)]
        assert told == [{"id": job, "first": True}, {"id": job, "first": False}]
        assert not queue.confirm(job)
        with Client(house.url) as client:
            assert not client.confirm(job)
        assert values(house, "windlass_jobs_confirmed_total") == {("add",): 1}
        assert api.post("/jobs/none/confirm").status_code == 404
        for garbage in (b"nonsense", b'{"note": 1}', b"[]"):
            refused = api.post(
                f"/jobs/{job}/confirm", content=garbage, headers={"Content-Type": "application/json"}
            )
            assert refused.status_code == 400


def test_what_came_of_jobs_and_requests_is_counted_shown_and_kept_over_a_restart(store_url: str) -> None:
    with shop(store_url) as queue:
        with serving(queue) as house:
            api = house.caller()
            sent = [
                api.post("/jobs", json={"type": "add", "payload": {"a": n}}).status_code for n in range(3)
            ]
            assert sent == [201] * 3
            assert api.post("/jobs", json={"type": "add", "payload": {}}).status_code == 400
            leases = api.post("/leases", json={"worker": "w", "types": ["add"], "limit": 2}).json()["leases"]
            api.post(f"/leases/{leases[0]['lease']}/complete", json={"version": "1.0"})
            failed = {"message": "no", "retryable": False, "version": "1.1"}
            api.post(f"/leases/{leases[1]['lease']}/fail", json=failed)
            until(lambda: values(house, "windlass_jobs_dead_total") != {})
            queue.store.take_sample(NOW)
            seen = {
                name: values(house, f"windlass_{name}")
                for name in ("jobs_enqueued_total", "jobs_completed_total", "jobs_dead_total", "dlq_depth")
            }
            assert seen == {
                "jobs_enqueued_total": {("add",): 3},
                "jobs_completed_total": {("add",): 1},
                "jobs_dead_total": {("add",): 1},
                "dlq_depth": {("add",): 1},
            }
            assert values(house, "windlass_queue_depth") == {("add", "5", "due"): 1}
            assert values(house, "windlass_enqueue_requests_total") == {("accepted",): 3, ("invalid",): 1}
            assert values(house, "windlass_enqueue_seconds_count") == {(): 4}
            assert values(house, "windlass_release_attempts_total") == {("add", "1.0"): 1, ("add", "1.1"): 1}
            assert values(house, "windlass_release_failures_total") == {("add", "1.1"): 1}
            releases = api.get("/metrics").json()["releases"]
            assert [(each["version"], each["failed"]) for each in releases] == [("1.1", 1), ("1.0", 0)]
            attempts = api.get(f"/jobs/{leases[1]['job']['id']}").json()["history"]
            assert [each["app"] for each in attempts] == ["1.1"]
            [add] = api.get("/metrics").json()["types"]
            assert (add["type"], add["enqueued"], add["started"], add["failed"]) == ("add", 3, 2, 1)
        with serving(queue) as house:
            assert {name: values(house, f"windlass_{name}") for name in seen} == seen


def test_what_services_send_and_who_is_sent_away_is_counted(store_url: str) -> None:
    with shop(store_url) as queue, serving(queue) as house:
        viewer = house.key("prometheus", "viewer")
        shop_api = house.caller(house.key("shop", "producer"))
        # One job at once, and the next one after a quarter of an hour.
        flood = house.caller(house.key("flood", "producer", rate=0.001))
        job = {"type": "add", "payload": {"a": 1}}
        sent = [
            shop_api.post("/jobs", json={**job, "key": "once"}),
            shop_api.post("/jobs", json={**job, "key": "once"}),
            shop_api.post("/jobs", json={"type": "add", "payload": {}}),
            shop_api.post("/jobs/batch", json={"jobs": [job] * 3}),
            shop_api.post("/jobs/batch", json={"jobs": [job] * 2, "batch": "evening"}),
            *(flood.post("/jobs", json=job) for _ in range(3)),
        ]
        assert [each.status_code for each in sent] == [201, 200, 400, 201, 201, 201, 429, 429]

        def counts(name: str) -> dict[tuple[str, ...], float]:
            with visitor(house.url, headers={"Authorization": f"Bearer {viewer}"}) as scraper:
                text = scraper.get("/metrics").text
            return {tuple(each.values()): value for each, value in parsed(text)[name] if value}

        until(lambda: counts("windlass_enqueue_seconds_count") == {(): len(sent)}, "all of it is told")
        callers = Counter((row["caller"],) for row in Tables(store_url, 0).everything)
        assert callers == {("shop",): 6, ("flood",): 1}
        assert counts("windlass_service_enqueued_total") == callers
        assert counts("windlass_service_requests_total") == {
            ("shop", "accepted"): 3,
            ("shop", "existing"): 1,
            ("shop", "invalid"): 1,
            ("flood", "accepted"): 1,
            ("flood", "refused"): 2,
        }
        assert counts("windlass_http_refusals_total") == {("/api/v1/jobs", "429"): 2}
        told = house.caller(viewer).get("/metrics").json()["services"]
        assert [(each["service"], each["enqueued"], each["refused"]) for each in told] == [
            ("shop", 6, 0),
            ("flood", 1, 2),
        ]


def test_a_job_that_a_foreign_worker_claims_is_one_that_a_claim_brought(house: House) -> None:
    api = house.caller()
    api.post("/jobs/batch", json={"jobs": [{"type": "add", "payload": {"a": 1}}] * 2})
    assert len(api.post("/leases", json={"worker": "w", "types": ["add"], "limit": 2}).json()["leases"]) == 2
    assert api.post("/leases", json={"worker": "w", "types": ["add"]}).json()["leases"] == []
    until(lambda: values(house, "windlass_claim_seconds_count") == {(): 1})
    assert values(house, "windlass_claim_jobs_sum") == {(): 2}


def test_what_a_foreign_worker_completes_is_checked_by_one_that_knows_the_type(store_url: str) -> None:
    with Queue(store_url) as queue:

        @queue.job(verify=lambda: False, sample=1, verify_after="1ms")
        def lie() -> None:
            """Says that it is done."""

        @queue.job(verify=lambda: False, sample=0.0000001)
        def rarely() -> None:
            """Is hardly ever checked."""

        with serving(queue) as house:
            api, ids = house.caller(), dict[str, str]()
            for name in ("lie", "rarely"):
                job = api.post("/jobs", json={"type": name, "payload": {}}).json()
                [lease] = api.post("/leases", json={"worker": "sh", "types": [name]}).json()["leases"]
                # The answer is lost and it says so again: it is checked once.
                for _ in range(2):
                    assert api.post(f"/leases/{lease['lease']}/complete", json={}).status_code == 200
                ids[name] = job["id"]
            [waiting] = queue.store.sight(NOW).verdicts
            assert (waiting.type, waiting.waiting) == ("lie", 1)
            handler = queue.registry.get("lie")
            assert handler is not None
            ledger = Ledger(queue.store)
            verifier = Verifier(queue.store, {"lie": handler}, cast("Coroutines", None), Ring, ledger)
            until(lambda: verifier.tick() is not None, "the check is due")
            [verdict] = queue.store.sight(NOW).verdicts
            assert (verdict.mismatched, verdict.waiting, verdict.mismatch_job) == (1, 0, ids["lie"])
            assert values(house, "windlass_checks_mismatched_total") == {("lie",): 1}


def test_history_alerts_and_scale_have_their_documents(house: House, api: httpx2.Client) -> None:
    # In one step: they belong to one minute.
    counts = {"completed": 4, "started": 4, "run.sum": 8_000, "run.0": 4}
    house.queue.store.add_history(
        {("poison", "failed"): 1} | {("add", name): n for name, n in counts.items()}
    )
    document = api.get("/stats/history").json()
    assert [document["step"], [line["type"] for line in document["series"]]] == ["minute", ["add", "poison"]]
    last = [point for point in document["series"][0]["points"] if point["completed"]]
    assert [(point["completed"], point["run_ms"], point["wait_ms"]) for point in last] == [(4, 2.0, 0.0)]
    day = api.get("/stats/history", params={"step": "day", "type": "poison"}).json()
    assert sum(point["failed"] for point in day["series"][0]["points"]) == 1
    assert set(last[0]) == {
        *("at", "enqueued", "completed", "failed", "dead", "wait_ms", "run_ms", "depth", "due"),
        "oldest_due_age",
    }
    assert api.get("/alerts").json()["alerts"] == []
    scale = api.get("/autoscale").json()
    assert (scale["desired"], scale["least"], scale["headroom"]) == (1, 1, 0.3)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"step": "second"}, "step"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2030-01-02T00:00:00Z", "to": "2030-01-01T00:00:00Z"}, "from"),
        ({"from": "2020-01-01T00:00:00Z"}, "from"),
    ],
)
def test_a_wrong_question_about_history_is_refused(query: dict[str, str], field: str, tmp_path: Path) -> None:
    with shop(f"sqlite:///{tmp_path}/jobs.db") as queue, serving(queue) as house:
        answer = house.caller().get("/stats/history", params=query)
        assert answer.status_code in {400, 422}
        assert field in answer.text


def test_metrics_are_for_those_who_may_see(tmp_path: Path) -> None:
    with shop(f"sqlite:///{tmp_path}/jobs.db") as queue, serving(queue) as house:
        viewer, producer = house.key("prometheus", "viewer"), house.key("shop", "producer")

        def status(key: str) -> int:
            with visitor(house.url, headers={"Authorization": f"Bearer {key}"}) as scraper:
                return scraper.get("/metrics").status_code

        until(lambda: status("nobody") == 401)
        assert [status(viewer), status(producer)] == [200, 403]


# --- webhooks -----------------------------------------------------------------------------------


class Receiver:
    """Somebody who wants to be told, and may be out."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.signed: list[str | None] = []
        self.bodies: list[bytes] = []
        self.asked = 0
        self.answer = 204
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.asked += 1
                if receiver.answer == 204:
                    receiver.heard.append(json.loads(body))
                    receiver.bodies.append(body)
                    receiver.signed.append(self.headers[SIGNATURE])
                self.send_response(receiver.answer)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quietly."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    # Whoever tells it waits for the answer, so that nothing is told twice while the machine stalls.
    monkeypatch.setattr("windlass.server.alarm._PATIENCE_SECONDS", PATIENCE)
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.01,))
    thread.start()
    with contextlib.closing(receiver.server.socket):
        yield receiver
        receiver.server.shutdown()
        thread.join()


@contextlib.contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE)
    assert not thread.is_alive()


def states(receiver: Receiver) -> list[tuple[str, str]]:
    return [(each["name"], each["state"]) for each in receiver.heard]


def an_alarm(stage: Stage) -> Alarm:
    return Alarm(stage.store, clock=stage.clock, pause=0.0)


def test_a_webhook_is_told_once_when_an_alert_begins_and_when_it_is_over(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ALERTS_SECRET", "s3cret")
    with staged(tmp_path) as stage:
        stage.ops.set_settings({"alerts.webhook": receiver.url})
        first, second = an_alarm(stage), an_alarm(stage)
        stage.enqueue(1)
        stage.work(1, DEAD)
        stage.look()
        for alarm in (first, second, first):
            alarm.tick()
        assert states(receiver) == [("WindlassDeadLetters", "firing")]
        told = receiver.heard[0]
        assert (told["labels"], told["severity"], told["value"]) == ({"type": "mail.send"}, "warning", 1.0)
        assert told["runbook"] == "docs/runbook.md#there-are-dead-letters"
        digest = hmac.new(b"s3cret", receiver.bodies[0], hashlib.sha256).hexdigest()
        assert receiver.signed == [f"sha256={digest}"]
        [job] = stage.ops.find(stage.dead).jobs
        stage.store.discard(job.id)
        stage.look()
        for alarm in (second, first):
            alarm.tick()
        assert states(receiver)[1:] == [("WindlassDeadLetters", "resolved")]


def test_a_condition_must_last_before_anybody_is_told_and_a_silent_webhook_is_told_later(
    tmp_path: Path, receiver: Receiver
) -> None:
    with staged(tmp_path) as stage:
        stage.ops.set_settings({"alerts.webhook": receiver.url})
        stage.enqueue(1, type="orphaned")
        stage.look()
        alarm = an_alarm(stage)
        alarm.tick()
        assert receiver.asked == 0
        stage.clock.advance(61)
        stage.look()
        receiver.answer = 503
        alarm.tick()
        assert (receiver.asked, receiver.heard) == (3, [])
        receiver.answer = 204
        alarm.tick()
        assert states(receiver) == [("WindlassNoWorkers", "firing")]


def test_nobody_is_sent_elsewhere_by_a_redirect(tmp_path: Path, receiver: Receiver) -> None:
    with staged(tmp_path) as stage:
        stage.ops.set_settings({"alerts.webhook": receiver.url})
        stage.enqueue(1)
        stage.work(1, DEAD)
        stage.look()
        receiver.answer = 302
        an_alarm(stage).tick()
        assert (receiver.asked, receiver.heard) == (3, [])


def _two_alerts(stage: Stage) -> None:
    for name in (MAIL, REPORT):
        stage.enqueue(1, type=name)
        stage.work(1, DEAD)
    stage.look()


def test_a_webhook_that_answers_nonsense_is_told_later(tmp_path: Path, receiver: Receiver) -> None:
    with staged(tmp_path) as stage, socket.create_server(("127.0.0.1", 0)) as nonsense:
        stage.enqueue(1)
        stage.work(1, DEAD)
        stage.look()
        stage.ops.set_settings({"alerts.webhook": f"http://127.0.0.1:{nonsense.getsockname()[1]}/"})

        def answer() -> None:
            for _ in range(3):
                with nonsense.accept()[0] as caller:
                    one_message(caller)
                    caller.sendall(b"what?\r\n\r\n")

        with in_thread(answer):
            an_alarm(stage).tick()
        stage.ops.set_settings({"alerts.webhook": receiver.url})
        an_alarm(stage).tick()
        assert states(receiver) == [("WindlassDeadLetters", "firing")]


def test_a_webhook_that_drips_its_answer_is_cut_off_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.server.alarm._PATIENCE_SECONDS", 0.2)
    with staged(tmp_path) as stage, socket.create_server(("127.0.0.1", 0)) as slow:
        _two_alerts(stage)
        stage.ops.set_settings({"alerts.webhook": f"http://127.0.0.1:{slow.getsockname()[1]}/"})
        asked: list[int] = []
        pause = threading.Event()

        def drip() -> None:
            for number in range(3):
                with slow.accept()[0] as caller, contextlib.suppress(OSError):
                    asked.append(number)
                    one_message(caller)
                    caller.sendall(b"HTTP/1.1 ")
                    while caller.send(b"."):
                        pause.wait(0.05)

        with in_thread(drip):
            an_alarm(stage).tick()
        # Three tries for one of the two alerts; the other one waits for the next look.
        assert len(asked) == 3


def test_one_message_that_is_refused_does_not_keep_others_back(tmp_path: Path, receiver: Receiver) -> None:
    with staged(tmp_path) as stage:
        _two_alerts(stage)
        stage.ops.set_settings({"alerts.webhook": receiver.url})
        receiver.answer = 400
        alarm = an_alarm(stage)
        alarm.tick()
        assert receiver.asked == 4
        receiver.answer = 204
        alarm.tick()
        assert {each["labels"]["type"] for each in receiver.heard} == {MAIL, REPORT}


def test_a_server_that_is_killed_while_it_tells_is_followed_by_another(
    tmp_path: Path, receiver: Receiver
) -> None:
    with staged(tmp_path) as stage:
        stage.enqueue(1)
        stage.work(1, DEAD)
        stage.look()
        stage.ops.set_settings({"alerts.webhook": receiver.url})
        [held] = stage.ops.alerts().alerts
        stage.store.notice({(held.name, labels_text(held.labels)): 1.0})
        assert stage.store.may_tell(held.name, labels_text(held.labels), fires=True)
        # Killed here.
        an_alarm(stage).tick()
        assert receiver.asked == 0
        stage.clock.advance(61)
        an_alarm(stage).tick()
        assert ("WindlassDeadLetters", "firing") in states(receiver)


def test_an_alert_that_ends_while_there_is_no_webhook_begins_anew(tmp_path: Path, receiver: Receiver) -> None:
    with staged(tmp_path) as stage:
        alarm = an_alarm(stage)
        for webhook in (receiver.url, "none", receiver.url):
            stage.ops.set_settings({"alerts.webhook": webhook})
            if webhook == "none":
                [job] = stage.ops.find(stage.dead).jobs
                stage.store.discard(job.id)
            else:
                stage.enqueue(1)
                stage.work(1, DEAD)
            stage.look()
            alarm.tick()
        assert states(receiver) == [("WindlassDeadLetters", "firing")] * 2


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://host:port/", "http://host:99999/", "https://ann:secret@host/", "file:///etc/x"],
)
def test_what_is_no_webhook_is_refused(url: str, tmp_path: Path) -> None:
    with staged(tmp_path) as stage, pytest.raises(InvalidValue, match=r"alerts\.webhook"):
        stage.ops.set_settings({"alerts.webhook": url})


def test_a_store_that_is_away_is_told_of_without_it(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path) as stage:
        stage.ops.set_settings({"alerts.webhook": receiver.url})
        stage.look()
        alarm = an_alarm(stage)
        alarm.tick()
        stage.hide()
        alarm.tick()
        assert receiver.asked == 0
        stage.clock.advance(31)
        alarm.tick()
        alarm.tick()
        assert states(receiver) == [("WindlassStoreAway", "firing")]
        # It is back, and that is told until somebody hears it.
        with contextlib.closing(connect.open(f"sqlite:///{tmp_path}/jobs.db", clock=stage.clock)) as back:
            monkeypatch.setattr(alarm, "_store", back.store)
            for receiver.answer in (503, 204, 204):
                alarm.tick()
        assert states(receiver)[1:] == [("WindlassStoreAway", "resolved")]


def test_without_a_webhook_alerts_are_kept_all_the_same(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.enqueue(1)
        stage.work(1, DEAD)
        stage.look()
        an_alarm(stage).tick()
        stage.clock.advance(15)
        report = stage.ops.alerts()
        assert report.watched
        assert [each.name for each in report.firing] == ["WindlassDeadLetters"]
        assert report.now is not None
        assert report.now - report.firing[0].since == timedelta(seconds=15)
