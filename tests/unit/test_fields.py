"""A field of a job reaches every surface, or is named here as one that does not."""

from __future__ import annotations

import click

from windlass.cli import produce
from windlass.cli.main import cli
from windlass.job import Job, NewJob
from windlass.ops.document import JobDocument
from windlass.queue.jobs import JobOptions
from windlass.server.schemas import JobForm

# Said with other words, or not for everyone.
OTHER_WORDS = {"at": "run_at"}
NOT_OVER_HTTP = {"connection"}
NOT_IN_JSON = {"connection", "on_conflict", "traceparent"}
NOT_A_COMMAND_OPTION = {"connection", "traceparent", "id", "on_conflict"}
NOT_STORED_IN_THE_JOB = {"at", "delay", "connection", "on_conflict", "depends_on", "on_dead", "payload_ref"}
NOT_SHOWN = {"unread"}


def test_what_producers_may_say_is_said_over_http_as_well() -> None:
    said = {OTHER_WORDS.get(name, name) for name in JobOptions.__annotations__}
    assert said - NOT_OVER_HTTP <= set(JobForm.__struct_fields__)


def test_it_is_said_in_a_file_and_on_the_command_line() -> None:
    said = {OTHER_WORDS.get(name, name) for name in JobOptions.__annotations__}
    assert said - NOT_IN_JSON <= set(produce.OPTIONS)
    command = cli.get_command(click.Context(cli), "enqueue")
    assert command is not None
    options = {each.name for each in command.params}
    assert set(JobOptions.__annotations__) - NOT_A_COMMAND_OPTION <= options, sorted(map(str, options))


def test_what_a_producer_says_is_kept_in_the_job() -> None:
    said = set(JobOptions.__annotations__) & set(NewJob.__struct_fields__)
    assert said - NOT_STORED_IN_THE_JOB - set(Job.__struct_fields__) <= {"unique", "until", "on_unique"}


def test_every_field_of_a_job_is_shown() -> None:
    assert set(Job.__struct_fields__) - set(JobDocument.__struct_fields__) <= NOT_SHOWN
