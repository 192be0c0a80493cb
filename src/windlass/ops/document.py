"""What does a job look like in JSON, on every surface?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from windlass.job import Attempt, Change, Error, Job
from windlass.ops.overview import WorkerHealth
from windlass.payload import seal
from windlass.store.access import ApiKey, AuditPage
from windlass.store.chains import BatchInfo
from windlass.store.jobs import Page

if TYPE_CHECKING:
    from windlass.ops.jobs import Ties


def job_document(job: Job, now: datetime) -> dict[str, Any]:
    """A job as plain values: times are datetimes in UTC, the payload is its own JSON."""
    return {
        "id": job.id,
        "seq": job.seq,
        "type": job.type,
        "state": job.state,
        "view": job.view(now),
        "priority": job.priority,
        "payload": payload_shown(job),
        "key": job.key,
        "tenant": job.tenant or None,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "created_at": job.created_at,
        "run_at": job.run_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "worker": job.worker,
        "error": _error(job.error),
        "result": job.result,
        "result_missing": job.result_missing,
        "request": job.request,
        "lease_until": job.lease_until,
        "claims": job.claims,
        "snoozes": job.snoozes,
        "interruptions": job.interruptions,
        "losses": job.losses,
        "replay_count": job.replay_count,
        "enqueued_at": job.enqueued_at,
        "updated_at": job.updated_at,
        "schema_version": job.schema_version,
        "caller": job.caller or None,
        "traceparent": job.traceparent,
        "payload_ref": job.payload_ref,
        "rerun_of": job.rerun_of,
        "history": [_attempt(attempt) for attempt in job.history],
        "changes": [change_shown(change) for change in job.changes],
    }


def payload_shown(job: Job) -> msgspec.Raw:
    """A job's payload as people may see it: what is encrypted stays hidden, also from who has the key."""
    if not seal.has_seal(job.payload):
        return job.payload
    return msgspec.Raw(msgspec.json.encode(seal.shown(msgspec.json.decode(job.payload))))


def change_shown(change: Change) -> Change:
    """A change with what was encrypted before it left hidden."""
    return change if change.before is None else structs.replace(change, before=seal.shown(change.before))


def told_document(job: Job, ties: Ties, now: datetime) -> dict[str, Any]:
    """A job with what ties it to others."""
    return job_document(job, now) | {
        "progress": ties.progress,
        "batch": ties.batch,
        "waits_for": list(ties.waits_for),
    }


def batch_document(batch: BatchInfo) -> dict[str, Any]:
    """A batch: how many of its jobs stand in which state."""
    return {
        "id": batch.id,
        "name": batch.name or None,
        "total": batch.total,
        "ended": batch.ended,
        "states": {state.value: count for state, count in sorted(batch.counts.items())},
        "then": batch.then_id,
        "created_at": batch.created_at,
        "finished_at": batch.finished_at,
    }


def worker_document(each: WorkerHealth) -> dict[str, Any]:
    """A worker and how it is."""
    info = each.info
    return {
        "id": info.id,
        "state": info.state,
        "alive": each.alive,
        "beat_at": info.beat_at,
        "started_at": info.started_at,
        "host": info.host,
        "pid": info.pid,
        "version": info.version,
        "app": info.app,
        "types": info.types,
        "slots": info.slots,
        "busy": info.busy,
        "held": info.held,
        "done": info.done,
        "failed": info.failed,
        "late": info.late,
        "deaf": info.deaf,
        "resident_bytes": info.resident_bytes,
        "pools": {name: structs.asdict(pool) for name, pool in info.pools.items()},
    }


def api_key_document(key: ApiKey) -> dict[str, Any]:
    """An API key, without what would let anybody use it."""
    shown = structs.asdict(key)
    del shown["digest"]
    return shown


def audit_document(page: AuditPage) -> dict[str, Any]:
    """A page of the audit log and the cursor of the next one."""
    return {"entries": [structs.asdict(entry) for entry in page.entries], "next": page.next}


def page_document(page: Page, now: datetime) -> dict[str, Any]:
    """A page of jobs and the cursor of the next one."""
    return {"jobs": [job_document(job, now) for job in page.jobs], "next": page.next}


def encode(document: object) -> str:
    """JSON for machines, indented for whoever looks all the same. Times end in Z, durations are seconds."""
    return msgspec.json.format(msgspec.json.encode(plain(document)), indent=2).decode()


def plain(value: Any) -> Any:
    """A document without our own classes: durations are seconds, Structs are objects."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, msgspec.Struct):
        return plain(
            {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
        )
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "claim": attempt.claim,
        "worker": attempt.worker,
        "app": attempt.app,
        "started_at": attempt.started_at,
        "finished_at": attempt.finished_at,
        "outcome": attempt.outcome,
        "error": _error(attempt.error, traceback=True),
        "output": attempt.output,
        "result_missing": attempt.result_missing,
    }


def _error(error: Error | None, *, traceback: bool = False) -> dict[str, Any] | None:
    if error is None:
        return None
    told: dict[str, Any] = {"reason": error.reason, "class": error.kind, "message": error.message}
    return {**told, "traceback": error.traceback} if traceback else told
