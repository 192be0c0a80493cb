"""Do a key and a unique name belong to a caller and a tenant, beside the release before, too?"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.conformance import before
from tests.conformance.conftest import Place
from tests.conformance.contenders import at_once, won
from tests.conformance.scene import CANCELLED, DEAD, DONE, a_job, a_payload, look_up, settle, take_one
from windlass.clock import ManualClock, uuid7
from windlass.errors import AmbiguousKey, IdConflict, InvalidValue, JobNotFound, KeyConflict, UniqueConflict
from windlass.job import JobState, NewJob
from windlass.store.access import NewApiKey
from windlass.store.engine import Enqueued
from windlass.store.store import Store
from windlass.store.upkeep import Retention

KEY = "order:1"
NAME = "sync"
# Two scopes that differ in the caller, in the tenant, or in that one has none.
APART = [
    ({"tenant": "acme"}, {"tenant": "globex"}),
    ({"tenant": "acme"}, {}),
    ({}, {"tenant": "acme"}),
    ({"caller": "shop"}, {"caller": "blog"}),
    ({"caller": "shop"}, {}),
    ({"caller": "shop", "tenant": "acme"}, {"caller": "shop", "tenant": "globex"}),
    ({"caller": "shop", "tenant": "acme"}, {"caller": "shop"}),
    ({"caller": "shop", "tenant": "acme"}, {"tenant": "acme"}),
]
SCOPES = [{}, {"tenant": "acme"}, {"caller": "shop"}, {"caller": "shop", "tenant": "acme"}]


def work(**changes: Any) -> NewJob:
    """Always the same work, unless its payload is given."""
    return a_job(**{"payload": a_payload()} | changes)


def keyed(store: Store, **changes: Any) -> Enqueued:
    [answer] = store.enqueue([work(key=KEY, **changes)])
    return answer


def unique(store: Store, **changes: Any) -> Enqueued:
    [answer] = store.enqueue([work(unique=NAME, **changes)])
    return answer


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), APART)
def test_a_key_stands_for_one_job_within_each_scope(
    store: Store, one: dict[str, str], other: dict[str, str]
) -> None:
    first = keyed(store, **one)
    second = keyed(store, **other, take_existing=True, payload=a_payload(n=2))
    assert (first.created, second.created) == (True, True)
    assert keyed(store, **one).id == first.id
    assert keyed(store, **other, payload=a_payload(n=2)).id == second.id
    assert [look_up(store, first.id).tenant, look_up(store, second.id).tenant] == [
        one.get("tenant", ""),
        other.get("tenant", ""),
    ]


@pytest.mark.parametrize("scope", SCOPES)
def test_other_work_under_a_key_of_the_same_scope_is_refused(store: Store, scope: dict[str, str]) -> None:
    first = keyed(store, **scope)
    with pytest.raises(KeyConflict, match=first.id):
        keyed(store, **scope, payload=a_payload(n=2))


def test_a_batch_holds_the_same_key_for_many_scopes(store: Store) -> None:
    scopes = [*SCOPES, {"tenant": "globex"}, {"caller": "shop", "tenant": "globex"}]
    done = store.enqueue([work(key=KEY, **scope) for scope in scopes])
    assert len({each.id for each in done}) == len(scopes)
    again = store.enqueue([work(key=KEY, **scope) for scope in reversed(scopes)])
    assert [each.id for each in reversed(again)] == [each.id for each in done]
    assert not any(each.created for each in again)


def test_of_many_producers_at_once_one_makes_the_job_of_each_scope(store: Store) -> None:
    scopes = [{}, {"tenant": "acme"}, {"tenant": "globex"}] * 6
    answers = won(at_once(*(partial(keyed, store, **scope) for scope in scopes)))
    made = {answer.id for answer in answers if answer.created}
    assert len(made) == 3
    assert {answer.id for answer in answers} == made


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_is_free_when_the_record_of_its_job_is_gone(
    store: Store, clock: ManualClock, scope: dict[str, str]
) -> None:
    first = keyed(store, **scope)
    settle(store, take_one(store), DONE)
    other = keyed(store, caller="else", tenant="else")
    clock.advance(3 * 86_400)
    store.prune(Retention(ended=timedelta(days=1), dead=timedelta(days=1)))
    assert store.check() == []
    second = keyed(store, **scope)
    assert second.created
    assert second.id != first.id
    assert keyed(store, caller="else", tenant="else").id == other.id


def test_an_id_belongs_to_a_tenant(store: Store) -> None:
    name = uuid7()
    store.enqueue([a_job(id=name, own_id=True, tenant="acme")])
    with pytest.raises(IdConflict):
        store.enqueue([a_job(id=name, own_id=True, tenant="globex")])


# --- looking for a key --------------------------------------------------------------------------


def test_a_tenants_key_is_found_with_the_tenant_and_without(store: Store) -> None:
    job = keyed(store, tenant="acme")
    assert look_up(store, KEY).id == job.id
    found = store.get(KEY, tenant="acme")
    assert found is not None
    assert found.id == job.id
    assert store.get(KEY, tenant="globex") is None
    assert store.get(KEY, tenant="") is None


def test_a_key_of_several_tenants_is_told_and_none_is_picked(store: Store) -> None:
    done = [keyed(store, tenant=tenant) for tenant in ("acme", "globex", "")]
    with pytest.raises(AmbiguousKey, match=r"belongs to 3 jobs: .*tenant 'acme'.*no tenant") as refused:
        store.get(KEY)
    assert sorted(refused.value.jobs) == sorted(each.id for each in done)
    for tenant, each in zip(("acme", "globex", ""), done, strict=True):
        found = store.get(KEY, tenant=tenant)
        assert found is not None
        assert found.id == each.id


def test_keys_of_all_callers_are_found_by_who_may_see_them(store: Store) -> None:
    store.add_api_key(NewApiKey(id="a", name="shop", digest="d", roles=("producer",)), by="me")
    one = keyed(store, caller="shop")
    assert store.get(KEY) is None
    assert [job.id for job in store.named(KEY, caller=None)] == [one.id]
    other = keyed(store, caller="shop", tenant="acme")
    assert [job.id for job in store.named(KEY, caller=None)] == [one.id, other.id]
    assert [job.id for job in store.named(KEY, caller=None, tenant="acme")] == [other.id]


def test_a_job_waits_for_the_key_of_its_own_tenant(store: Store) -> None:
    parents = {tenant: keyed(store, tenant=tenant) for tenant in ("acme", "globex")}
    [child] = store.enqueue([a_job(depends_on=(KEY,), tenant="globex")])
    assert store.waits_for(child.id) == [parents["globex"].id]
    with pytest.raises(JobNotFound, match=KEY):
        store.enqueue([a_job(depends_on=(KEY,), tenant="initech")])


@pytest.mark.parametrize(("one", "other"), APART)
def test_a_job_never_waits_for_a_key_of_another_scope(
    store: Store, one: dict[str, str], other: dict[str, str]
) -> None:
    parent = keyed(store, **one)
    with pytest.raises(JobNotFound, match=KEY):
        store.enqueue([a_job(depends_on=(KEY,), **other)])
    # An id says by itself which job is meant.
    [child] = store.enqueue([a_job(depends_on=(parent.id,), **other)])
    assert store.waits_for(child.id) == [parent.id]


@pytest.mark.parametrize(("one", "other"), APART)
def test_a_key_that_is_the_id_of_anothers_job_is_found_within_its_scope(
    store: Store, one: dict[str, str], other: dict[str, str]
) -> None:
    [theirs] = store.enqueue([work(**one)])
    [ours] = store.enqueue([work(**other, key=theirs.id)])
    caller, tenant = other.get("caller", ""), other.get("tenant", "")
    found = store.get(theirs.id, caller=caller, tenant=tenant)
    assert found is not None
    assert found.id == ours.id
    [child] = store.enqueue([a_job(depends_on=(theirs.id,), **other)])
    assert store.waits_for(child.id) == [ours.id]
    # Who is asked about every caller and tenant means the job of that id.
    assert [job.id for job in store.named(theirs.id, caller=None)] == [theirs.id]


def test_the_id_of_a_job_comes_before_a_key_of_the_same_scope(store: Store) -> None:
    [job] = store.enqueue([work()])
    store.enqueue([work(key=job.id)])
    assert look_up(store, job.id).id == job.id


@pytest.mark.parametrize("scope", SCOPES)
def test_a_job_that_was_accepted_before_is_known_by_its_key_or_its_id(
    store: Store, scope: dict[str, str]
) -> None:
    job, draft = keyed(store, **scope), work()
    store.enqueue([draft])
    assert store.accepted([work(key=KEY, **scope), draft])
    assert not store.accepted([work(key=KEY, **scope), work()])
    assert not store.accepted([work(key=KEY, caller="else")])
    # A key that is the id of a job is not that job's key.
    assert not store.accepted([work(key=job.id, **scope)])


@pytest.mark.parametrize("tenant", ["a\0b", "\ud800", "a" * 129])
def test_a_tenant_that_no_job_can_have_is_told(store: Store, tenant: str) -> None:
    with pytest.raises(InvalidValue, match="tenant must be a text of 0 to 128 characters, without NUL"):
        store.get(KEY, tenant=tenant)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", ""])
def test_a_name_that_cannot_be_stored_is_no_jobs(store: Store, name: str) -> None:
    assert store.get(name) is None
    with pytest.raises(JobNotFound):
        store.cancel(name)
    assert store.batch(name) is None


# --- unique names -------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), APART)
@pytest.mark.parametrize("on_unique", ["skip", "replace"])
def test_a_unique_name_is_held_within_each_scope(
    store: Store, one: dict[str, str], other: dict[str, str], on_unique: str
) -> None:
    first = unique(store, **one)
    second = unique(store, **other, on_unique=on_unique, payload=a_payload(n=2))
    assert (first.created, second.created) == (True, True)
    assert bytes(look_up(store, first.id).payload) == a_payload()
    again = unique(store, **one, payload=a_payload(n=3))
    assert (again.id, again.created) == (first.id, False)


def test_a_replaced_job_keeps_its_tenant_and_others_keep_their_work(store: Store) -> None:
    jobs = {tenant: unique(store, tenant=tenant) for tenant in ("acme", "globex")}
    again = unique(store, tenant="globex", on_unique="replace", payload=a_payload(new=True))
    assert again.id == jobs["globex"].id
    assert bytes(look_up(store, jobs["acme"].id).payload) == a_payload()
    assert bytes(look_up(store, again.id).payload) == a_payload(new=True)
    assert look_up(store, again.id).tenant == "globex"


def test_a_dead_job_takes_its_name_back_within_its_scope(store: Store) -> None:
    dead = unique(store, tenant="acme")
    settle(store, take_one(store), DEAD)
    other = unique(store, tenant="globex")
    assert store.replay(dead.id).state is JobState.PENDING
    settle(store, take_one(store), CANCELLED)
    assert unique(store, tenant="globex").id == other.id


def test_a_dead_job_stays_dead_while_its_name_is_held_in_its_scope(store: Store) -> None:
    dead = unique(store, tenant="acme")
    settle(store, take_one(store), DEAD)
    holder = unique(store, tenant="acme")
    with pytest.raises(UniqueConflict, match=holder.id):
        store.replay(dead.id)


def test_a_request_answered_by_a_unique_name_is_repeated_within_its_scope(store: Store) -> None:
    held = {tenant: unique(store, tenant=tenant) for tenant in ("acme", "globex", "")}
    for tenant, holder in held.items():
        assert unique(store, tenant=tenant, key=KEY).id == holder.id
    for _ in held:
        settle(store, take_one(store), DONE)
    for tenant, holder in held.items():
        again = unique(store, tenant=tenant, key=KEY)
        assert (again.id, again.created) == (holder.id, False)


# --- beside the release before ------------------------------------------------------------------


@pytest.mark.parametrize("scope", SCOPES)
def test_a_job_of_the_release_before_is_found_by_a_repeat(
    store: Store, place: Place, scope: dict[str, str]
) -> None:
    old = work(key=KEY, **scope)
    assert before.enqueue(place.url, old)
    for _ in range(2):
        again = keyed(store, **scope)
        assert (again.id, again.created) == (old.id, False)
    caller = scope.get("caller", "")
    found = store.get(KEY, caller=caller, tenant=scope.get("tenant", ""))
    assert found is not None
    assert found.id == old.id
    with pytest.raises(KeyConflict, match=old.id):
        keyed(store, **scope, payload=a_payload(n=2))


@pytest.mark.parametrize("scope", SCOPES)
def test_the_release_before_makes_no_second_job_of_a_key(
    store: Store, place: Place, scope: dict[str, str]
) -> None:
    keyed(store, **scope)
    assert not before.enqueue(place.url, work(key=KEY, **scope))


def test_other_tenants_leave_a_job_of_the_release_before_its_key(store: Store, place: Place) -> None:
    old = work(key=KEY, tenant="acme")
    assert before.enqueue(place.url, old)
    for tenant in ("globex", ""):
        made = keyed(store, tenant=tenant)
        assert made.created
        assert keyed(store, tenant=tenant).id == made.id
    assert keyed(store, tenant="acme").id == old.id
    assert len(store.named(KEY)) == 3


def test_a_batch_finds_jobs_of_the_release_before(store: Store, place: Place) -> None:
    old = work(key=KEY, tenant="acme")
    assert before.enqueue(place.url, old)
    [first, second, third] = store.enqueue(
        [work(key=KEY), work(key=KEY, tenant="acme"), work(key=KEY, tenant="globex")]
    )
    assert (first.created, second.created, third.created) == (True, False, True)
    assert second.id == old.id
