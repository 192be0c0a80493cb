"""Make jobs and store them: the producing half of a Queue, and its batches."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from windlass import config, connect, errors
from windlass.checks import check_text, check_type
from windlass.clock import uuid7
from windlass.errors import InvalidPayload, JobNotFound, Refused, must_be
from windlass.job import MAX_BATCH_NAME, NewJob, Shape, TypeInfo
from windlass.loop import Pace
from windlass.observe import names, tracing
from windlass.observe.ledger import Ledger
from windlass.payload import Ring, encode, pack, parse, problem_of, quick, validate_for
from windlass.payload.codec import check_size
from windlass.payload.seal import SEAL, refuse_lookalikes
from windlass.queue import guests
from windlass.queue.backend import Admission, Catalogue, Defaults
from windlass.queue.jobs import Choice, JobHandle, JobOptions, choose, without_connection
from windlass.registry import SHELL, Handler
from windlass.store.chains import BatchInfo, NewBatch
from windlass.store.engine import StoreClosed

if TYPE_CHECKING:
    from windlass.connect import Opened
    from windlass.payload.validate import Fits
    from windlass.queue.backend import Opening
    from windlass.registry import Registry
    from windlass.store.engine import Enqueued

# As many as one transaction takes.
CHUNK = 10_000
_MOST_IN_BATCH = 10_000
# So often a process that enqueues reports that its release is live.
SEEN_SECONDS = 60.0


class NotAtHand(Exception):
    """The store must be asked first."""


class Producer:
    """The half of a Queue that makes jobs and stores them, and keeps the catalogue of types up to date."""

    def __init__(self, opening: Opening, registry: Registry) -> None:
        self.registry = registry
        self._opening = opening
        self._defaults = Defaults(opening)
        self._admission = Admission(opening, self._defaults)
        self._catalogue = Catalogue(opening)
        # By type, which entry of the catalogue it was made from.
        self._quick: dict[str, tuple[TypeInfo, Fits]] = {}
        # Read when the first secret is to be kept.
        self._ring: Ring | None = None
        # Where and in which file, which revision of the registry, and until when that need not be said again.
        self._published: tuple[Opened | None, int, int, float] = (None, 0, 0, 0.0)
        # How long calls took, for the store that is open; over HTTP the server measures.
        self._calls: tuple[Opened | None, Ledger | None] = (None, None)

    # --- drafts ---

    def draft(self, name: str, payload: Mapping[str, Any], **options: Unpack[JobOptions]) -> NewJob:
        """A checked job that is not stored yet, by its type's name."""
        return self._draft_by_name(name, payload, without_connection(choose(options)))

    def draft_sent(self, name: str, text: bytes, options: Mapping[str, Any]) -> NewJob:
        """A checked job whose payload came as JSON, to be stored by the same call; for servers."""
        choice = without_connection(choose(options))
        return self._draft_by_name(name, parse(text), choice, fresh=True)

    def draft_at_hand(self, name: str, text: bytes, options: Mapping[str, Any]) -> NewJob:
        """The same without a look at the store; NotAtHand if it takes one: a server's loop must not wait."""
        choice, info = without_connection(choose(options)), self._catalogue.at_hand(name)
        defaults = None if info is None else self._defaults.at_hand(info)
        if info is None or defaults is None or name == SHELL or self.registry.get(name) is not None:
            raise NotAtHand
        payload = parse(text)
        if info.options.get("encrypt") or not self._fits(info)(payload):
            raise NotAtHand
        draft = choice.draft(name, encode(payload, name), defaults, fresh=True)
        refuse_lookalikes(draft.payload, name)
        return draft

    def _draft_for(
        self, handler: Handler, arguments: Mapping[str, Any], choice: Choice, *, fresh: bool = False
    ) -> NewJob:
        """A job for a handler that is registered here; `fresh` if the same call stores it."""
        payload = handler.signature.encode(arguments)
        defaults, made_for = self._defaults.of(handler), 0 if fresh else self._opening.number
        draft = choice.draft(handler.name, payload, defaults, fresh=fresh, made_for=made_for)
        return self._sealed(draft, handler.encrypt) if handler.encrypt or SEAL in draft.payload else draft

    def _draft_by_name(
        self, name: str, payload: Mapping[str, Any], choice: Choice, *, fresh: bool = False
    ) -> NewJob:
        """A job of any type that is registered here or in the store."""
        handler = self.registry.get(check_type(name))
        if handler is not None:
            try:
                return self._draft_for(handler, payload, choice, fresh=fresh)
            except InvalidPayload:
                found = self._in_another_release(handler, payload)
                if found is None:
                    raise
            return self._of_type(*found, choice, fresh=fresh)
        if name == SHELL:
            raise Refused("this queue takes no shell commands; Queue(..., shell=True) switches them on")
        packed = pack(payload, name)
        return self._of_type(self._judged(name, packed), packed, choice, fresh=fresh)

    def _of_type(self, info: TypeInfo, packed: bytes, choice: Choice, *, fresh: bool) -> NewJob:
        defaults, made_for = self._defaults.of(info), 0 if fresh else self._opening.number
        draft = choice.draft(info.name, packed, defaults, fresh=fresh, made_for=made_for)
        return self._sealed(draft, info.options.get("encrypt", ()))

    def _in_another_release(
        self, handler: Handler, payload: Mapping[str, Any]
    ) -> tuple[TypeInfo, bytes] | None:
        """The type as another live release has it that takes a payload which ours refuses, and its bytes.

        During a roll producers of both releases run: this process may be the older one, or the newer one.
        """
        if self._opening.opened is None and connect.is_new_file(self._opening.url):
            return None
        try:
            packed = pack(payload, handler.name)
            self._catalogue.read()
            info = self._catalogue.get(handler.name, ())
        except (InvalidPayload, errors.UnknownType):
            return None
        own = Shape(schema_version=handler.version, schema=handler.info().schema)
        for shape in (Shape(schema_version=info.schema_version, schema=info.schema), *info.others):
            if shape != own and problem_of(shape.schema, packed, handler.name) is None:
                return info.of_shape(shape), packed
        return None

    def _fits(self, info: TypeInfo) -> Fits:
        known = self._quick.get(info.name)
        if known is None or known[0] is not info:
            known = self._quick[info.name] = (info, quick(info.schema))
        return known[1]

    def _judged(self, name: str, packed: bytes) -> TypeInfo:
        """The type that a payload fits; InvalidPayload tells what is wrong with it."""
        try:
            return validate_for(self._catalogue.get(name, self.registry.names()), packed)
        except InvalidPayload:
            # The type may have changed since we looked.
            self._catalogue.read()
            return validate_for(self._catalogue.get(name, self.registry.names()), packed)

    # --- storing ---

    def enqueue(self, name: str, payload: Mapping[str, Any], **options: Unpack[JobOptions]) -> JobHandle:
        """Store a job by its type's name; the handler may be here, or only known to the store."""
        choice = choose(options)
        return self._put(self._draft_by_name(name, payload, choice, fresh=True), choice.connection)

    async def enqueue_async(
        self, name: str, payload: Mapping[str, Any], **options: Unpack[JobOptions]
    ) -> JobHandle:
        """For async callers; `connection=` may be an async one."""
        choice = choose(options)
        return await self._put_async(
            lambda: self._draft_by_name(name, payload, choice, fresh=True), choice.connection
        )

    def _put(self, draft: NewJob, connection: object | None) -> JobHandle:
        """Store one job; with a connection, in the caller's transaction."""
        if connection is not None or tracing.on():
            return self._store([draft], connection)[0]
        [done] = self._accepted([draft])
        return JobHandle(self._opening, done.id, done.key, created=done.created)

    async def _put_async(self, make: Callable[[], NewJob], connection: object | None) -> JobHandle:
        """The same for async callers: making the draft and storing it takes one thread hop."""
        if connection is None:
            return await asyncio.to_thread(lambda: self._put(make(), None))
        if not guests.is_async(connection):
            # The caller's connection belongs to the caller's thread.
            return self._put(make(), connection)
        return (await self._store_async([await asyncio.to_thread(make)], connection))[0]

    def enqueue_many(
        self,
        drafts: Iterable[NewJob],
        *,
        connection: object | None = None,
        max_per_second: float | None = None,
    ) -> list[JobHandle]:
        """Store drafts in their order: all or none up to 10,000, beyond that all or none of each 10,000.

        With `max_per_second` they are stored little by little. If a draft is refused, what was stored before
        it stays: the error has the draft's `index` in your list, and how many were `stored`. Sending the same
        drafts again stores none of them twice. With `connection` your transaction decides about all of them.
        """
        handles: list[JobHandle] = []
        pace = Pace(max_per_second, clock=self._opening.clock)
        chunks = _chunks(self._ours(drafts), pace.step or CHUNK)
        # What is stored in the caller's transaction is not stored yet.
        with _counting(handles if connection is None else []):
            if connection is None and max_per_second is None:
                self._store_meanwhile(chunks, handles)
            for chunk in chunks:
                handles += self._store(chunk, connection, len(handles))
                pace.passed(len(chunk))
        return handles

    def _store_meanwhile(self, chunks: Iterator[list[NewJob]], handles: list[JobHandle]) -> None:
        """If there is more than a chunk: while one is being stored, the next is made."""
        chunk = next(chunks, [])
        if len(chunk) < CHUNK:
            handles += self._store(chunk, None, 0) if chunk else []
            return
        with ThreadPoolExecutor(1, "windlass-enqueue") as other:
            while chunk:
                storing = other.submit(self._store, chunk, None, len(handles))
                try:
                    chunk = next(chunks, [])
                finally:
                    # Also when a draft was refused: what became of the chunk before it is said first.
                    handles += storing.result()

    async def enqueue_many_async(
        self,
        drafts: Iterable[NewJob],
        *,
        connection: object | None = None,
        max_per_second: float | None = None,
    ) -> list[JobHandle]:
        """For async callers; `connection=` may be an async one."""
        if connection is None and max_per_second is None:
            return await asyncio.to_thread(self.enqueue_many, drafts)
        store = self._store_async if guests.is_async(connection) else self._store_here
        pace = Pace(max_per_second, clock=self._opening.clock)
        handles: list[JobHandle] = []
        with _counting(handles if connection is None else []):
            for chunk in _chunks(self._ours(drafts), pace.step or CHUNK):
                handles += await store(chunk, connection, len(handles))
                pace.count(len(chunk))
                if (ahead := pace.ahead()) > 0:
                    await asyncio.sleep(ahead)
        return handles

    def _check_ours(self, draft: object, field: str) -> NewJob:
        """A draft that belongs into this store, of a type that is known here or was when it was made."""
        ours = self._check_made_here(draft, field)
        if ours.made_for != self._opening.number and self.registry.get(ours.type) is None:
            self._catalogue.get(ours.type, self.registry.names())
        return ours

    def _check_made_here(self, draft: object, field: str) -> NewJob:
        """A draft that was made for this store; the store is not asked."""
        if not isinstance(draft, NewJob):
            raise must_be(field, draft, "a draft, as made by .draft(...)")
        if draft.made_for != self._opening.number and not self._opening.shares(draft.made_for):
            raise Refused(
                f"{field} is a job of type {draft.type} that another queue made, for another store: "
                "give it to that queue"
            )
        return draft

    def _ours(self, drafts: Iterable[NewJob]) -> Iterator[NewJob]:
        for index, draft in _noted(drafts):
            if not isinstance(draft, NewJob):
                raise must_be(f"drafts[{index}]", draft, "a draft, as made by .draft(...)")
            try:
                yield self._check_ours(draft, "the draft")
            except Refused as error:
                error.index = index
                raise

    def admit(self, drafts: Sequence[NewJob]) -> None:
        """Refuse drafts with QueueFull if too many jobs wait, at soft_depth already; for servers."""
        self._admission.check(drafts, self._opening.get(), soft=True)

    # --- batches ---

    def batch(self, name: str = "") -> Batch:
        """`with queue.batch() as batch: batch.add(...)`: jobs stored together, with progress to ask for."""
        return Batch(self, check_text("name", name, MAX_BATCH_NAME, least=0))

    def batch_status(self, batch_id: str) -> BatchInfo:
        """How many jobs of a batch are in which state; JobNotFound if there is none of that id."""
        found = self._opening.use(lambda opened: opened.front.batch(batch_id))
        if found is None:
            raise JobNotFound(batch_id, "batch")
        return found

    def _put_batch(self, batch: NewBatch, drafts: Sequence[NewJob]) -> list[JobHandle]:
        """Store many jobs as one batch, in one transaction."""

        def put(opened: Opened) -> list[JobHandle]:
            self.publish()
            self._admission.check(drafts, opened)
            with _traced(drafts) as sent:
                done = opened.front.enqueue_batch(batch, sent)
            opened.wakeup.notify()
            return self._handles(done)

        return self._opening.use(put)

    # --- the catalogue ---

    def publish(self) -> None:
        """Enter this process's handlers in the catalogue, as the first enqueue and every worker do."""
        opened, now = self._opening.get(), self._opening.monotonic()
        if not self._is_published(opened, now):
            self._publish(opened, now)

    def _publish(self, opened: Opened, now: float) -> None:
        """Enter the handlers of this process, and each minute that their release is live."""
        revision, generation = self.registry.revision, opened.store.generation
        opened.store.register(self._infos(), self._release())
        self._published = (opened, generation, revision, now + SEEN_SECONDS)
        # Also how long calls took; what the store does not take now it gets the next time.
        place, ledger = self._calls
        if ledger is not None and place is opened:
            with contextlib.suppress(errors.StoreError):
                ledger.tick()

    def _prepare_guest(self, drafts: Sequence[NewJob]) -> tuple[Opened, list[TypeInfo], str]:
        """Before jobs are stored in a caller's transaction: may they be, and what does the catalogue lack?"""
        opened, now, revision = self._opening.get(), self._opening.monotonic(), self.registry.revision
        self._admission.check(drafts, opened, guest=True)
        if self._is_published(opened, now):
            return opened, [], ""
        infos, generation = self._infos(), opened.store.generation
        if not opened.store.registered(infos):
            # Given again until it is seen to be there: the transaction may never be committed.
            return opened, infos, self._release()
        self._published = (opened, generation, revision, now + SEEN_SECONDS)
        return opened, [], ""

    def _is_published(self, opened: Opened, now: float) -> bool:
        place, generation, revision, until = self._published
        # Workers register types with a server: who only produces does not know better than they.
        return opened.served or (
            place is opened
            and revision == self.registry.revision
            and now < until
            and generation == opened.front.generation
        )

    def _infos(self) -> list[TypeInfo]:
        return [self.registry.info(handler) for handler in self.registry.handlers()]

    def _release(self) -> str:
        return config.app_version() or self.registry.app_version

    def _store(
        self, drafts: Sequence[NewJob], connection: object | None, first: int | None = None
    ) -> list[JobHandle]:
        """`first` is the number of the first of them in the caller's list, if they are of one."""
        with _numbered(drafts, first), _traced(drafts) as sent:
            if connection is None:
                return self._handles(self._accepted(sent))
            opened, news, app = self._prepare_guest(sent)
            with guests.opened(connection, opened.wakeup.notify) as inner:
                return self._handles(opened.store.enqueue_on(inner, sent, news, app))

    def _accepted(self, drafts: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in a transaction of our own."""
        opening = self._opening
        while True:
            opened, begun = opening.get(), opening.monotonic()
            try:
                self._admission.check(drafts, opened)
                if not self._is_published(opened, begun):
                    self._publish(opened, begun)
                done = opened.front.enqueue(drafts)
            except StoreClosed:
                # By another thread: try again. Every draft has its id, so none is stored twice.
                if opening.opened is opened:
                    raise
                continue
            if self._calls[0] is not opened:
                self._calls = (opened, None if opened.served else Ledger(opened.store))
            if (ledger := self._calls[1]) is not None:
                ledger.measure(names.ENQUEUE_CALL, opening.monotonic() - begun)
            for each in done:
                if each.due:
                    opened.wakeup.notify()
                    break
            return done

    async def _store_here(
        self, drafts: Sequence[NewJob], connection: object | None, first: int
    ) -> list[JobHandle]:
        if connection is None:
            return await asyncio.to_thread(self._store, drafts, None, first)
        # The caller's connection belongs to the caller's thread.
        return self._store(drafts, connection, first)

    async def _store_async(
        self, drafts: Sequence[NewJob], connection: object | None, first: int | None = None
    ) -> list[JobHandle]:
        with _numbered(drafts, first), _traced(drafts) as sent:
            opened, news, app = await asyncio.to_thread(self._prepare_guest, sent)
            async with guests.opened_async(connection, opened.wakeup.notify) as inner:
                return self._handles(await opened.store.enqueue_on_async(inner, sent, news, app))

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
            raise must_be("on_unique", "replace", allowed)
        if self._ring is None:
            self._ring = config.ring()
        stamp = self._ring.stamp(draft.payload)
        sealed = self._sealed_before(draft, self._ring) if draft.own_id else None
        if sealed is None:
            sealed = check_size(self._ring.seal(draft.payload, fields, draft.id), draft.type)
        return msgspec.structs.replace(draft, payload=sealed, stamp=stamp)

    def _sealed_before(self, draft: NewJob, ring: Ring) -> bytes | None:
        """The same payload as it was stored under the same id: sealed anew it would look like another one."""
        known = self._opening.get().front.get(draft.id, caller=None)
        if known is None or known.id != draft.id:
            return None
        with contextlib.suppress(errors.KeyMissing, InvalidPayload):
            if ring.open(msgspec.json.decode(known.payload), known.id) == msgspec.json.decode(draft.payload):
                return bytes(known.payload)
        return None


def _chunks(drafts: Iterator[NewJob], size: int) -> Iterator[list[NewJob]]:
    while chunk := list(itertools.islice(drafts, min(size, CHUNK))):
        yield chunk


def _traced(drafts: Sequence[NewJob]) -> AbstractContextManager[Sequence[NewJob]]:
    return tracing.sending(drafts) if tracing.on() else contextlib.nullcontext(drafts)


@contextlib.contextmanager
def _numbered(drafts: Sequence[NewJob], first: int | None) -> Iterator[None]:
    """Let a refusal name its job by its number in the caller's list, of which these begin with `first`."""
    try:
        yield
    except Refused as error:
        if first is not None:
            if len(drafts) == 1 and isinstance(error, errors.Conflict | JobNotFound):
                error.index = 0
            error.moved(first)
        raise


@contextlib.contextmanager
def _counting(handles: list[JobHandle]) -> Iterator[None]:
    """Let a refusal say how many jobs were stored before it."""
    try:
        yield
    except Refused as error:
        error.stored = len(handles)
        raise


def _noted(drafts: Iterable[NewJob]) -> Iterator[tuple[int, NewJob]]:
    """Drafts by number; an error in making one says which one it was."""
    index = -1
    try:
        for index, draft in enumerate(drafts):
            yield index, draft
    except errors.WindlassError as error:
        if isinstance(error, Refused) and error.index is None:
            error.index = index + 1
        else:
            error.add_note(f"in draft {index + 1} of enqueue_many, counted from 0")
        raise


class Batch:
    """Jobs that are stored together when the block ends, all or none, and whose progress can be asked for."""

    def __init__(self, queue: Producer, name: str) -> None:
        self.id = uuid7()
        self.name = name
        self.jobs: list[JobHandle] = []
        self._queue = queue
        self._then: NewJob | None = None
        self._drafts: list[NewJob] = []
        self._stored = False

    def add(self, *drafts: NewJob) -> None:
        """Put drafts into the batch; they are stored when the block ends."""
        self._check_open()
        self._drafts += [self._queue._check_ours(draft, "draft") for draft in drafts]
        if len(self._drafts) > _MOST_IN_BATCH:
            raise must_be("batch", f"{len(self._drafts)} jobs", f"at most {_MOST_IN_BATCH} jobs")

    def then(self, draft: NewJob) -> None:
        """Enqueue this draft when all jobs of the batch have ended: completed, dead, cancelled or discarded.

        Give it the batch's id, and it can ask `queue.batch_status(id)` how many did which.
        """
        self._check_open()
        self._queue._check_ours(draft, "then")
        if draft.key is not None or draft.unique is not None or draft.depends_on:
            # What could be refused then would keep the last job of the batch from ending.
            allowed = "a draft without key, unique and depends_on: it is stored later"
            raise must_be("then", draft.type, allowed)
        self._then = draft

    def status(self) -> BatchInfo:
        """How many of its jobs are in which state."""
        return self._queue.batch_status(self.id)

    def _check_open(self) -> None:
        if self._stored:
            raise Refused("the batch is stored already; make another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            batch = NewBatch(id=self.id, name=self.name, then=self._then)
            self.jobs = self._queue._put_batch(batch, self._drafts)
            self._stored = True
