"""How does a job get into the store?"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from windlass import config
from windlass.checks import check_type
from windlass.errors import InvalidPayload, InvalidValue, KeyMissing, Refused, UnknownType, WindlassError
from windlass.job import NewJob, TypeInfo
from windlass.observe import tracing
from windlass.pace import Pace
from windlass.payload import Ring, encode, pack, parse, quick, validate
from windlass.payload.seal import SEAL, refuse_lookalikes
from windlass.payload.text import check_size
from windlass.queue import guests
from windlass.queue.admission import Admission
from windlass.queue.batch import not_found
from windlass.queue.defaults import Defaults
from windlass.queue.handle import JobHandle
from windlass.queue.lately import Lately
from windlass.queue.options import Choice
from windlass.registry import SHELL, Handler

if TYPE_CHECKING:
    from windlass.connect import Opened
    from windlass.payload.fit import Fits
    from windlass.queue.opening import Opening
    from windlass.registry import Registry
    from windlass.store.batches import BatchInfo, NewBatch
    from windlass.store.protocol import Enqueued

# As many as one transaction takes.
CHUNK = 10_000


class NotAtHand(Exception):
    """The store must be asked first."""


class Producer:
    """Makes drafts and stores them; keeps the store's catalogue of types up to date."""

    def __init__(self, opening: Opening, registry: Registry) -> None:
        self._opening = opening
        self._registry = registry
        self._defaults = Defaults(opening)
        self._admission = Admission(opening)
        self._catalogue: dict[str, TypeInfo] = {}
        self._lately = Lately(opening)
        # By type, which entry of the catalogue it was made from.
        self._quick: dict[str, tuple[TypeInfo, Fits]] = {}
        # Read when the first secret is to be kept.
        self._ring: Ring | None = None
        # Where, and which revision of the registry.
        self._published: tuple[Opened | None, int] = (None, 0)

    def draft(
        self, handler: Handler, arguments: Mapping[str, Any], choice: Choice, *, fresh: bool = False
    ) -> NewJob:
        """A job for a handler that is registered here; `fresh` if the same call stores it."""
        payload = handler.signature.encode(arguments)
        draft = choice.draft(handler.name, payload, self._defaults.of_handler(handler), fresh=fresh)
        return self._sealed(draft, handler.encrypt) if handler.encrypt or SEAL in draft.payload else draft

    def draft_by_name(
        self, name: str, payload: Mapping[str, Any], choice: Choice, *, fresh: bool = False
    ) -> NewJob:
        """A job of any type that is registered here or in the store."""
        handler = self._registry.get(check_type(name))
        if handler is not None:
            return self.draft(handler, payload, choice, fresh=fresh)
        if name == SHELL:
            raise Refused("this queue takes no shell commands; Queue(..., shell=True) switches them on")
        packed = pack(payload, name)
        return self._of_type(self._judged(name, packed), packed, choice, fresh=fresh)

    def draft_sent(self, name: str, text: bytes, choice: Choice) -> NewJob:
        """The same with a payload that came as JSON, for the call that stores it.

        What was JSON arrives as what it was sent as; so it need not be compared with itself.
        """
        payload = parse(text)
        if self._registry.get(check_type(name)) is not None or name == SHELL:
            return self.draft_by_name(name, payload, choice, fresh=True)
        packed, info = encode(payload, name), self._known(name)
        if not self._fits(info)(payload):
            info = self._judged(name, packed)
        return self._of_type(info, packed, choice, fresh=True)

    def draft_at_hand(self, name: str, text: bytes, choice: Choice) -> NewJob:
        """The same without a look at the store; NotAtHand if it takes one: something may be news."""
        info = self._catalogue.get(name)
        defaults = self._defaults.at_hand(info) if info is not None and self._lately.is_fresh() else None
        if info is None or defaults is None or name == SHELL or self._registry.get(name) is not None:
            raise NotAtHand
        payload = parse(text)
        if info.options.get("encrypt") or not self._fits(info)(payload):
            raise NotAtHand
        draft = choice.draft(name, encode(payload, name), defaults, fresh=True)
        refuse_lookalikes(draft.payload, name)
        return draft

    def _of_type(self, info: TypeInfo, packed: bytes, choice: Choice, *, fresh: bool) -> NewJob:
        draft = choice.draft(info.name, packed, self._defaults.of_type(info), fresh=fresh)
        return self._sealed(draft, info.options.get("encrypt", ()))

    def _fits(self, info: TypeInfo) -> Fits:
        known = self._quick.get(info.name)
        if known is None or known[0] is not info:
            known = self._quick[info.name] = (info, quick(info.schema))
        return known[1]

    def _judged(self, name: str, packed: bytes) -> TypeInfo:
        """The type that a payload fits; InvalidPayload tells what is wrong with it."""
        info = self._known(name)
        try:
            validate(info.schema, packed, name)
        except InvalidPayload:
            # The type may have changed since we looked.
            self._read_catalogue()
            info = self._known(name)
            validate(info.schema, packed, name)
        return info

    def enqueue(self, draft: NewJob, connection: object | None = None) -> JobHandle:
        """Store one job; with a connection, in the caller's transaction."""
        if connection is not None or tracing.on():
            return self._store([draft], connection)[0]
        [done] = self._accepted([draft])
        return JobHandle(self._opening, done.id, done.key, created=done.created)

    def enqueue_many(
        self,
        drafts: Iterable[NewJob],
        connection: object | None = None,
        max_per_second: float | None = None,
    ) -> list[JobHandle]:
        """Store many jobs, a chunk a transaction; with a pace, in as many as it takes to be even."""
        if max_per_second is not None:
            return self._store_evenly(drafts, connection, max_per_second)
        chunks = _chunks(drafts, CHUNK)
        if connection is not None:
            return [handle for chunk in chunks for handle in self._store(chunk, connection)]
        first = next(chunks, [])
        if len(first) < CHUNK:
            return self._store(first, None) if first else []
        return self._store_meanwhile(first, chunks)

    def _store_evenly(
        self, drafts: Iterable[NewJob], connection: object | None, max_per_second: float
    ) -> list[JobHandle]:
        pace = Pace(max_per_second, clock=self._opening.clock)
        handles: list[JobHandle] = []
        for chunk in _chunks(drafts, pace.step or CHUNK):
            handles += self._store(chunk, connection)
            pace.passed(len(chunk))
        return handles

    def _store_meanwhile(self, chunk: list[NewJob], following: Iterator[list[NewJob]]) -> list[JobHandle]:
        """More than a chunk: while one is being stored, the next is made."""
        handles: list[JobHandle] = []
        with ThreadPoolExecutor(1, "windlass-enqueue") as other:
            while chunk:
                storing = other.submit(self._store, chunk, None)
                try:
                    chunk = next(following, [])
                finally:
                    # Also when a draft was refused: what became of the chunk before it is said first.
                    handles += storing.result()
        return handles

    async def enqueue_async(self, make: Callable[[], NewJob], connection: object | None = None) -> JobHandle:
        """The same for async callers: making the draft and storing it takes one thread hop."""
        if connection is None:
            return await asyncio.to_thread(lambda: self.enqueue(make()))
        if not guests.is_async(connection):
            # The caller's connection belongs to the caller's thread.
            return self.enqueue(make(), connection)
        return (await self._store_async([await asyncio.to_thread(make)], connection))[0]

    async def enqueue_many_async(
        self,
        drafts: Iterable[NewJob],
        connection: object | None = None,
        max_per_second: float | None = None,
    ) -> list[JobHandle]:
        """The same for async callers."""
        if connection is None and max_per_second is None:
            return await asyncio.to_thread(self.enqueue_many, drafts)
        store = self._store_async if guests.is_async(connection) else self._store_here
        pace = Pace(max_per_second, clock=self._opening.clock)
        handles: list[JobHandle] = []
        for chunk in _chunks(drafts, pace.step or CHUNK):
            handles += await store(chunk, connection)
            pace.count(len(chunk))
            if (ahead := pace.ahead()) > 0:
                await asyncio.sleep(ahead)
        return handles

    def admit(self, drafts: Sequence[NewJob], *, soft: bool = False) -> None:
        """Refuse drafts, all of them, if too many jobs wait; with `soft`, beyond the soft limit already."""
        self._admission.check(drafts, self._opening.get().store, self._defaults.settings, soft=soft)

    def enqueue_batch(self, batch: NewBatch, drafts: Sequence[NewJob]) -> list[JobHandle]:
        """Store many jobs as one batch, in one transaction."""
        self.publish()
        opened = self._opening.get()
        self.admit(drafts)
        if tracing.on():
            with tracing.sending(drafts) as sent:
                done = opened.store.enqueue_batch(batch, sent)
        else:
            done = opened.store.enqueue_batch(batch, drafts)
        opened.wakeup.notify()
        return self._handles(done)

    def batch_status(self, batch_id: str) -> BatchInfo:
        """How far a batch has come; JobNotFound if there is none of that id."""
        found = self._opening.get().store.batch(batch_id)
        if found is None:
            raise not_found(batch_id)
        return found

    def publish(self) -> None:
        """Put the handlers registered here into the store's catalogue, as far as they are news to it."""
        self._publish(self._opening.get())

    def _publish(self, opened: Opened) -> None:
        place, revision = self._published
        if place is opened and revision == self._registry.revision:
            return
        revision = self._registry.revision
        self._read_catalogue()
        ours = [self._registry.info(handler) for handler in self._registry.handlers()]
        news = [info for info in ours if _is_news(info, self._catalogue.get(info.name))]
        if news:
            opened.store.register(news)
        self._published = (opened, revision)

    def _store(self, drafts: Sequence[NewJob], connection: object | None) -> list[JobHandle]:
        if not tracing.on():
            return self._store_all(drafts, connection)
        with tracing.sending(drafts) as sent:
            return self._store_all(sent, connection)

    def _store_all(self, drafts: Sequence[NewJob], connection: object | None) -> list[JobHandle]:
        if connection is None:
            return self._handles(self._accepted(drafts))
        opened = self._opening.get()
        self._admission.check(drafts, opened.store, self._defaults.settings, guest=True)
        # Publishing would wait for the lock that the caller's transaction holds: the next ordinary
        # enqueue, or a worker, does it.
        with guests.opened(connection, opened.wakeup.notify) as inner:
            return self._handles(opened.store.enqueue_on(inner, drafts))

    def _accepted(self, drafts: Sequence[NewJob]) -> list[Enqueued]:
        opened = self._opening.get()
        self._admission.check(drafts, opened.store, self._defaults.settings)
        self._publish(opened)
        done = opened.store.enqueue(drafts)
        for each in done:
            if each.due:
                opened.wakeup.notify()
                break
        return done

    async def _store_here(self, drafts: Sequence[NewJob], connection: object | None) -> list[JobHandle]:
        if connection is None:
            return await asyncio.to_thread(self._store, drafts, None)
        # The caller's connection belongs to the caller's thread.
        return self._store(drafts, connection)

    async def _store_async(self, drafts: Sequence[NewJob], connection: object | None) -> list[JobHandle]:
        if not tracing.on():
            return await self._store_all_async(drafts, connection)
        with tracing.sending(drafts) as sent:
            return await self._store_all_async(sent, connection)

    async def _store_all_async(self, drafts: Sequence[NewJob], connection: object | None) -> list[JobHandle]:
        opened = await asyncio.to_thread(self._opening.get)
        settings = self._defaults.settings
        await asyncio.to_thread(lambda: self._admission.check(drafts, opened.store, settings, guest=True))
        async with guests.opened_async(connection, opened.wakeup.notify) as inner:
            return self._handles(await opened.store.enqueue_on_async(inner, drafts))

    def _handles(self, done: Iterable[Enqueued]) -> list[JobHandle]:
        return [JobHandle(self._opening, each.id, each.key, created=each.created) for each in done]

    def _sealed(self, draft: NewJob, fields: Sequence[str]) -> NewJob:
        """The draft with its secret fields encrypted: in the clear they never reach the store."""
        refuse_lookalikes(draft.payload, draft.type)
        if not fields or self._opening.get().served:
            return draft
        if draft.on_unique == "replace":
            # What is encrypted belongs to one job; a waiting job that got it could never be run.
            allowed = f"skip or error for jobs of type {draft.type}, which has encrypted fields"
            raise InvalidValue("on_unique", "replace", allowed)
        if self._ring is None:
            self._ring = config.ring()
        stamp = self._ring.stamp(draft.payload)
        sealed = self._sealed_before(draft, self._ring) if draft.own_id else None
        if sealed is None:
            sealed = check_size(self._ring.seal(draft.payload, fields, draft.id), draft.type)
        return msgspec.structs.replace(draft, payload=sealed, stamp=stamp)

    def _sealed_before(self, draft: NewJob, ring: Ring) -> bytes | None:
        """The same payload as it was stored under the same id: sealed anew it would look like another one."""
        known = self._opening.get().store.get(draft.id)
        if known is None or known.id != draft.id:
            return None
        with contextlib.suppress(KeyMissing, InvalidPayload):
            if ring.open(msgspec.json.decode(known.payload), known.id) == msgspec.json.decode(draft.payload):
                return bytes(known.payload)
        return None

    def _known(self, name: str) -> TypeInfo:
        # Read anew now and then: what a type has encrypted, say, may be news even if the payload fits.
        if name not in self._catalogue or not self._lately.is_fresh():
            self._read_catalogue()
        info = self._catalogue.get(name)
        if info is None:
            raise UnknownType(name, {*self._catalogue, *self._registry.names()})
        return info

    def _read_catalogue(self) -> None:
        opened, now = self._lately.begin()
        found, known = opened.store.types(), self._catalogue
        # What has not changed stays the same object, by which others know what they made of it.
        same = {name: info for name, info in known.items() if found.get(name) == info}
        self._catalogue = found | same
        self._lately.note(opened, now)


def _is_news(ours: TypeInfo, known: TypeInfo | None) -> bool:
    if known is None:
        return True
    return ours.schema_version >= known.schema_version and _as_stored(ours) != _as_stored(known)


def _as_stored(info: TypeInfo) -> Any:
    return msgspec.json.decode(msgspec.json.encode(info))


def _chunks(drafts: Iterable[NewJob], size: int = CHUNK) -> Iterator[list[NewJob]]:
    counted, size = enumerate(drafts), min(size, CHUNK)
    while chunk := [_checked(index, draft) for index, draft in itertools.islice(_noted(counted), size)]:
        yield chunk


def _noted(counted: Iterator[tuple[int, NewJob]]) -> Iterator[tuple[int, NewJob]]:
    """The same, but an error in making a draft says which one it was."""
    index = -1
    try:
        for index, draft in counted:
            yield index, draft
    except WindlassError as error:
        error.add_note(f"in draft {index + 1} of enqueue_many, counted from 0")
        raise


def _checked(index: int, draft: object) -> NewJob:
    if not isinstance(draft, NewJob):
        raise InvalidValue(f"drafts[{index}]", draft, "a draft, as made by .draft(...)")
    return draft
