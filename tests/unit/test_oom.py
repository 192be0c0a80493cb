"""Does a kill by the kernel explain one death, and is nothing claimed where the system does not tell?"""

from __future__ import annotations

from windlass.worker.children.process_tree import OomWatch, kills


def test_each_kill_that_the_kernel_counts_explains_one_death() -> None:
    counted = [3]
    watch = OomWatch(lambda: counted[0])
    assert not watch.explains()
    counted[0] = 5
    assert [watch.explains() for _ in range(3)] == [True, True, False]


def test_where_the_system_does_not_tell_nothing_is_explained() -> None:
    assert not OomWatch(lambda: None).explains()


def test_what_the_system_tells_is_a_number_or_nothing() -> None:
    found = kills()
    assert found is None or found >= 0
