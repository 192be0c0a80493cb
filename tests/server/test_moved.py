"""Do API keys and the audit log come along when a store moves?"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.conformance.conftest import NEW
from windlass import connect
from windlass.move import move
from windlass.ops import Ops
from windlass.ops.access import KeyWish

ENGINE = next(name for name in NEW if name != "sqlite")


def test_keys_and_the_audit_log_move_and_go_on(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/jobs.db"
    with NEW[ENGINE]() as target:
        with closing(connect.open(source)) as before:
            ops = Ops(before.store, by="ann")
            ops.create_key(
                KeyWish(name="billing", roles=("producer",), types=("add",), tenant="acme", rate=2.5)
            )
            ops.set_settings({"timeout": "10m"}, why="slow\tdisks\n")
            keys, log = ops.keys(), ops.audit()
            with closing(connect.source(source)) as one, closing(connect.target(target)) as other:
                move(one, other, ops)
        with closing(connect.open(target)) as after:
            ops = Ops(after.store, by="bob")
            assert (ops.keys(), ops.audit()) == (keys, log)
            ops.set_settings({"timeout": "20m"})
            assert [entry.who for entry in ops.audit().entries] == ["bob", "ann", "ann"]
