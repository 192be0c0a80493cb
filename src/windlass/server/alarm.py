"""Who tells people that something is wrong? The server itself: never a job of the queue that it watches."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import urllib.error
import urllib.request
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass import config
from windlass.clock import Clock, SystemClock, from_micros
from windlass.errors import StoreError
from windlass.loop import Loop
from windlass.observe import gather
from windlass.observe.alerts import BY_NAME, Firing, first_noticed, holding, judge
from windlass.observe.sources import StoreSource
from windlass.ops.document import plain
from windlass.ops.observing import alert_document
from windlass.store.observing import LOOKED, Noticed
from windlass.store.protocol import Store

log = logging.getLogger("windlass.alarm")

EVERY = timedelta(seconds=15)
_PATIENCE_SECONDS = 5.0
_TRIES = 3
_PAUSE_SECONDS = 1.0
SIGNATURE = "X-Windlass-Signature"


class Alarm:
    """Looks every few seconds, keeps in the store which alerts hold, and tells a webhook what changes.

    Several servers look at the same store; of each change one of them tells.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        every: timedelta = EVERY,
        pause: float = _PAUSE_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._pause = pause
        self._secret = config.load().alerts_secret
        self._stopping = threading.Event()
        self._webhook: str | None = None
        # While the store is away nobody but this process can remember that.
        self._away: Noticed | None = None
        self.loop = Loop("alarm", self.tick, every=every)

    def stop(self) -> None:
        """Look no more; a message under way is given up."""
        self._stopping.set()
        self.loop.stop(1.0)

    def tick(self) -> None:
        """Look once."""
        try:
            facts = gather.read_facts(self._store)
            held = holding(StoreSource(self._store, facts))
            noticed = self._store.notice(held)
        except StoreError:
            self._tell_of_absence()
            return
        self._webhook = facts.settings.value("alerts.webhook")
        self._tell_of_return()
        for each in noticed:
            if each.name != LOOKED and each.name in BY_NAME:
                self._compare(each, facts.now, holds=(each.name, each.labels) in held)

    def _compare(self, noticed: Noticed, now: datetime, *, holds: bool) -> None:
        """Tell of what began or ended since somebody was last told."""
        firing = judge(noticed, now)
        fires = holds and firing.fires
        if fires == noticed.told or self._webhook is None:
            return
        if not holds or fires:
            mine = self._store.tell(noticed.name, noticed.labels, fires=fires)
            if mine and not self._send(firing, fires=fires):
                # Nobody has heard of it: whoever looks next tries again.
                self._store.tell(noticed.name, noticed.labels, fires=not fires)

    def _tell_of_absence(self) -> None:
        now = from_micros(self._clock.micros())
        for of, value in holding(StoreSource(None, None)).items():
            if self._away is None:
                self._away = first_noticed(of, value, now)
            firing = judge(self._away, now)
            if firing.fires and not self._away.told and self._send(firing, fires=True):
                self._away = msgspec.structs.replace(self._away, told=True)

    def _tell_of_return(self) -> None:
        if self._away is not None and self._away.told:
            self._send(judge(self._away, from_micros(self._clock.micros())), fires=False)
        self._away = None

    def _send(self, firing: Firing, *, fires: bool) -> bool:
        """Tell the webhook, a few times if need be; whether it has heard."""
        log.warning(
            "alert.fires" if fires else "alert.over",
            extra={"alert": firing.alert.name, "note": firing.summary},
        )
        if self._webhook is None:
            return False
        body = msgspec.json.encode(plain(message(firing, fires=fires)))
        error: object = None
        for number in range(_TRIES):
            if number and self._stopping.wait(self._pause * 2**number):
                return False
            try:
                post(self._webhook, body, self._secret)
            except (OSError, ValueError) as failed:
                error = failed
            else:
                return True
        log.warning("alert.not_told", extra={"alert": firing.alert.name, "error": str(error)})
        return False


def message(firing: Firing, *, fires: bool) -> dict[str, Any]:
    """What a webhook is told."""
    return {**alert_document(firing, fires=fires), "state": "firing" if fires else "resolved"}


def post(url: str, body: bytes, secret: str | None) -> None:
    """Send a message; an answer other than 2xx is an OSError. Redirects are not followed."""
    headers = {"Content-Type": "application/json", "User-Agent": "windlass"}
    if secret:
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers[SIGNATURE] = f"sha256={digest}"
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - http or https, as the setting demands
    try:
        _OPENER.open(request, timeout=_PATIENCE_SECONDS).close()
    except urllib.error.HTTPError as refused:
        refused.close()
        raise


class _Stay(urllib.request.HTTPRedirectHandler):
    """An answer that points elsewhere is no answer: the message would go where nobody has asked for it."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)
