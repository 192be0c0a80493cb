"""What stands in the admin's index? A name for the jobs; Django neither makes nor reads a table for it."""

from django.db import models


class Job(models.Model):
    """A job of the queue. Asked for by the admin's pages alone, which read the queue's own store."""

    class Meta:
        """No table."""

        managed = False
        default_permissions = ("view", "change")
        verbose_name = "job"
        verbose_name_plural = "jobs"

    def __str__(self) -> str:
        return "a job"
