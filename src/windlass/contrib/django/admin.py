"""What do a project's operators see of its jobs?"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path

from windlass.contrib.django import queue
from windlass.contrib.django.models import Job
from windlass.errors import JobNotFound, WindlassError
from windlass.job import JobState
from windlass.ops import Ops
from windlass.ops.document import encode, job_document
from windlass.store.jobs import Filter

_VERBS = ("replay", "cancel", "discard")
_A_PAGE = 50


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """Two pages over the queue's own store: the jobs, newest first, and one job's whole record."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - Django's form
        """Jobs come from code."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Records go by retention."""
        return False

    def get_urls(self) -> list[Any]:
        """The pages that stand instead of Django's own."""
        view = self.admin_site.admin_view
        return [
            path("", view(self.jobs), name="windlass_job_changelist"),
            path("<str:name>/", view(self.job), name="windlass_job_change"),
        ]

    def jobs(self, request: HttpRequest) -> HttpResponse:
        """The newest jobs, of one state or type if asked so."""
        self._demand(request, change=False)
        state, job_type = request.GET.get("state", ""), request.GET.get("type", "")
        where = Filter(
            states=(JobState(state),) if state in set(JobState) else (),
            types=(job_type,) if job_type else (),
        )
        page = queue.store.find(where, limit=_A_PAGE, cursor=request.GET.get("cursor"))
        context = {
            **self.admin_site.each_context(request),
            "title": "Jobs",
            "jobs": page.jobs,
            "next": page.next,
            "counts": Ops(queue.store).status().counts,
            "states": [each.value for each in JobState],
            "chosen": {"state": state, "type": job_type},
        }
        return TemplateResponse(request, "windlass/jobs.html", context)

    def job(self, request: HttpRequest, name: str) -> HttpResponse:
        """One job; a POST acts on it."""
        self._demand(request, change=request.method == "POST")
        try:
            found = queue.get(name)
        except JobNotFound as error:
            raise Http404(str(error)) from None
        if request.method == "POST":
            self._act(request, found.id)
            return redirect("admin:windlass_job_change", name=found.id)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Job {found.id}",
            "job": found,
            "record": encode(job_document(found, queue.store.now())),
            "verbs": _VERBS,
        }
        return TemplateResponse(request, "windlass/job.html", context)

    def _act(self, request: HttpRequest, job_id: str) -> None:
        verb = request.POST.get("verb", "")
        if verb not in _VERBS:
            raise PermissionDenied
        try:
            ops = Ops(queue.store, wakeup=queue.wakeup, by=request.user.get_username())
            acted = getattr(ops, verb)(job_id)
        except WindlassError as error:
            messages.error(request, str(error))
        else:
            messages.success(request, f"{verb}: the job is {acted.state} now")

    def _demand(self, request: HttpRequest, *, change: bool) -> None:
        may = self.has_change_permission(request) if change else self.has_view_permission(request)
        if not may:
            raise PermissionDenied
