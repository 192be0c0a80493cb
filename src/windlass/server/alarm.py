"""Alerts to a webhook. The server sends them itself, not as jobs of the queue that it watches."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import logging
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from windlass import config
from windlass.clock import Clock, SystemClock, from_micros
from windlass.errors import StoreError
from windlass.loop import Loop
from windlass.observe import gather
from windlass.observe.alerts import BY_NAME
from windlass.observe.firing import Firing, StoreMeasures, first_noticed, holding, judge
from windlass.ops.document import plain
from windlass.ops.observing import alert_document
from windlass.store.history import LOOKED, Noticed
from windlass.store.store import Store

log = logging.getLogger("windlass.alarm")
C = TypeVar("C", bound=http.client.HTTPConnection)

EVERY = timedelta(seconds=15)
_PATIENCE_SECONDS = 5.0
_TRIES = 3
_PAUSE_SECONDS = 1.0
SIGNATURE = "X-Windlass-Signature"


class Alarm:
    """Keeps in the store which alerts hold; of several servers, one notifies the webhook of each change."""

    def __init__(self, store: Store, *, clock: Clock | None = None, pause: float = _PAUSE_SECONDS) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._pause = pause
        self._secret = config.load().alerts_secret
        self._stopping = threading.Event()
        self._webhook: str | None = None
        # How often a message is tried; less once the webhook has shown in this look that it is not well.
        self._tries = _TRIES
        self._unheard: tuple[str, str] | None = None
        # While the store is away only this process can remember that.
        self._away: Noticed | None = None
        self.loop = Loop("alarm", self.tick, every=EVERY)

    def stop(self) -> None:
        """Look no more; a message under way is given up."""
        self._stopping.set()
        self.loop.stop(1.0)

    def tick(self) -> None:
        try:
            facts = gather.read_facts(self._store)
            held = holding(StoreMeasures(self._store, facts))
            noticed = self._store.notice(held)
        except StoreError:
            self._report_absence()
            return
        self._webhook = facts.settings.value("alerts.webhook")
        self._tries = _TRIES
        self._report_return()
        # The one that could not be sent last time comes last.
        for each in sorted(noticed, key=lambda each: (each.name, each.labels) == self._unheard):
            if each.name != LOOKED and each.name in BY_NAME:
                self._compare(each, facts.now, holds=(each.name, each.labels) in held)

    def _compare(self, noticed: Noticed, now: datetime, *, holds: bool) -> None:
        """Report what began or ended since the last report."""
        firing = judge(noticed, now)
        fires = holds and firing.fires
        if fires == noticed.told or (holds and not fires):
            return
        if self._webhook is None:
            if noticed.told:
                # There is no webhook to hear that it is over; the next time it begins again.
                self._store.told(noticed.name, noticed.labels, fires=False)
            return
        # A webhook that does not answer holds nothing up: the others are sent at the next look.
        if self._tries and self._store.may_tell(noticed.name, noticed.labels, fires=fires):
            sent = self._send(firing, fires=fires)
            self._unheard = self._unheard if sent else (noticed.name, noticed.labels)
            self._store.told(noticed.name, noticed.labels, fires=fires if sent else None)

    def _report_absence(self) -> None:
        now, self._tries = from_micros(self._clock.micros()), _TRIES
        for of, value in holding(StoreMeasures(None, None)).items():
            if self._away is None:
                self._away = first_noticed(of, value, now)
            firing = judge(self._away, now)
            if firing.fires and not self._away.told and self._send(firing, fires=True):
                self._away = msgspec.structs.replace(self._away, told=True)

    def _report_return(self) -> None:
        """Report that the store is back, until the webhook that heard of its absence has got it."""
        away = self._away
        if away is not None and away.told and self._webhook is not None:
            firing = judge(away, from_micros(self._clock.micros()))
            self._away = None if self._send(firing, fires=False) else away
        else:
            self._away = None

    def _send(self, firing: Firing, *, fires: bool) -> bool:
        """Notify the webhook, a few times if need be; whether it got the message."""
        log.warning(
            "alert.fires" if fires else "alert.over",
            extra={"alert": firing.alert.name, "note": firing.summary},
        )
        if self._webhook is None:
            return False
        body = msgspec.json.encode(plain(message(firing, fires=fires)))
        error: object = None
        for number in range(self._tries):
            if number and self._stopping.wait(self._pause * 2**number):
                break
            try:
                post(self._webhook, body, self._secret)
            except (OSError, ValueError, http.client.HTTPException) as failed:
                error = failed
            else:
                return True
        # Who answers may not want this one message, so each of the others is tried once; who does not answer
        # would take its time for each of a hundred.
        self._tries = 1 if isinstance(error, urllib.error.HTTPError) else 0
        log.warning("alert.not_told", extra={"alert": firing.alert.name, "error": str(error)})
        return False


def message(firing: Firing, *, fires: bool) -> dict[str, Any]:
    """The message to a webhook."""
    return {**structs.asdict(alert_document(firing, fires=fires)), "state": "firing" if fires else "resolved"}


def post(url: str, body: bytes, secret: str | None) -> None:
    """Send a message; an OSError if no 2xx comes in time. Redirects are not followed."""
    headers = {"Content-Type": "application/json", "User-Agent": "windlass"}
    if secret:
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers[SIGNATURE] = f"sha256={digest}"
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - http or https, as the setting demands
    connections = _Connections()
    # A receiver that drips its answer must not hold up the others.
    cut = threading.Timer(_PATIENCE_SECONDS, connections.shut)
    cut.daemon = True
    cut.start()
    try:
        urllib.request.build_opener(_Stay, connections).open(request, timeout=_PATIENCE_SECONDS).close()
    except urllib.error.HTTPError as refused:
        refused.close()
        raise
    finally:
        cut.cancel()


class _Stay(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: the message would go to an address that was not configured."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections, and can shut them."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[http.client.HTTPConnection] = []

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connect, http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connect, http.client.HTTPSConnection), req)

    def _connect(self, kind: Callable[..., C], *args: Any, **options: Any) -> C:
        self._open.append(connection := kind(*args, **options))
        return connection

    def shut(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError, AttributeError):
                # Not there yet: the connection has its own timeout.
                connection.sock.shutdown(socket.SHUT_RDWR)
