"""How fast is it on this machine?"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click
import msgspec

from windlass import connect
from windlass.bench.run import Figure, measure, steps
from windlass.cli.commands import Command
from windlass.cli.screen import Cell, progress
from windlass.cli.session import session
from windlass.ops.document import encode


@click.command(
    cls=Command,
    examples="""
        windlass bench
        windlass bench --scale 0.1                  a quick look
        windlass bench --folder .                   on the disk that counts
        windlass bench --db postgresql://...        on new databases of that server
        windlass bench http                         the server, beside a bare one
    """,
)
@click.argument("what", required=False, type=click.Choice(["http"]), metavar="[http]")
@click.option("--scale", type=float, default=1.0, show_default=True, help="More or fewer jobs than usual.")
@click.option(
    "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where to measure."
)
def bench(what: str | None, scale: float, folder: Path | None) -> None:
    """Measure throughput, latency and idle cost on new stores, beside what the database itself can do."""
    here = session()
    if not 0 < scale <= _LARGEST_SCALE:
        raise click.BadParameter(f"must be above 0 and at most {_LARGEST_SCALE}", param_hint="--scale")
    begun = itertools.count()
    url = here.config.database_url
    count = steps(http=what is not None, on_server=connect.is_postgres(url))
    with progress("measuring", count) as advance:
        figures = measure(
            url, http=what is not None, scale=scale, folder=folder, step=lambda _: advance(next(begun))
        )
    if here.json:
        click.echo(encode({"figures": [_with_verdict(figure) for figure in figures]}))
    else:
        head = ("WHAT", "MEDIAN", "UNIT", "SHARE", "OF", "AIM", "")
        click.echo("\n".join(here.screen.table(head, [_row(figure) for figure in figures])))


COMMANDS = (bench,)


def _row(figure: Figure) -> list[Cell | str | int]:
    exact = f"{figure.median:.2f}"
    return [
        figure.name,
        exact if figure.median < _WHOLE_FROM else round(figure.median),
        figure.unit,
        "" if figure.share is None else f"{figure.share:.2f}",
        figure.share_of or "",
        figure.aim or "",
        _VERDICTS[figure.reached],
    ]


def _with_verdict(figure: Figure) -> dict[str, Any]:
    return {**msgspec.structs.asdict(figure), "reached": figure.reached}


_VERDICTS = {None: "", True: "reached", False: "missed"}
_LARGEST_SCALE = 100
# Below this a figure has something to say behind its point.
_WHOLE_FROM = 100
