import inspect

import pytest

import windlass
from windlass import errors

NAMES = {
    *("Queue", "Client", "JobType", "ContextJobType", "JobHandle", "Job", "JobState", "Context", "Retry"),
    *("RetryableError", "FatalError", "Snooze", "Cancel"),
    *("WindlassError", "InvalidValue", "WaitTimeout", "JobUnsuccessful", "ResultMissing"),
    *(
        "QueueFull",
        "Refused",
        "UnknownType",
        "InvalidPayload",
        "JobNotFound",
        "Conflict",
        "ConfirmationNeeded",
        "AmbiguousKey",
        "KeyConflict",
        "IdConflict",
    ),
    *("KeyMissing", "WrongState"),
    *("StoreError", "StoreBusy", "StoreUnavailable", "StoreMismatch", "StoreMoved"),
    *("LeaseLost", "TransactionTooLong", "UniqueConflict"),
}


# Schedules, too, are named by operators.
OF_SCHEDULES = {"ScheduleNotFound", "ScheduleConflict"}


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(windlass.__all__) == NAMES
    assert sorted(windlass.__all__) == list(windlass.__all__)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(windlass, name))


@pytest.mark.parametrize(
    "kind",
    [
        windlass.Queue,
        windlass.Client,
        windlass.JobType,
        windlass.ContextJobType,
        windlass.JobHandle,
        windlass.Context,
    ],
)
def test_everything_that_a_user_calls_is_documented(kind: type) -> None:
    public = [name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")]
    assert public
    assert [name for name in public if not inspect.getdoc(getattr(kind, name))] == []


def test_every_error_that_users_meet_is_public() -> None:
    # Verdict is a root that nobody raises; workers are named by operators, not by producers.
    known = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.WindlassError)
    }
    assert known - set(windlass.__all__) == {"Verdict", "WorkerNotFound", *OF_SCHEDULES}
