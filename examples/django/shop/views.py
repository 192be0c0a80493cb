"""The shop's pages."""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from shop.jobs import confirm


@csrf_exempt
def place(request: HttpRequest, number: int) -> JsonResponse:
    """Accept an order."""
    job = confirm.options(key=f"order:{number}").enqueue(number)
    return JsonResponse({"job": job.id}, status=202 if request.method == "POST" else 200)
