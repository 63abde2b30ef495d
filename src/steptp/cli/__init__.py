"""The ``steptp`` command: one small file per verb. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from steptp import __version__
from steptp.cli import apply as _apply
from steptp.cli import audit as _audit
from steptp.cli import build as _build
from steptp.cli import doctor as _doctor
from steptp.cli import evaluate as _evaluate
from steptp.cli import lower as _lower
from steptp.cli import mutate as _mutate
from steptp.cli import optimize as _optimize
from steptp.cli import report as _report
from steptp.cli import saturate as _saturate
from steptp.cli import show as _show
from steptp.cli import sites as _sites
from steptp.cli import strategies as _strategies
from steptp.cli import train as _train
from steptp.cli import verify as _verify
from steptp.errors import StepTPError

__all__ = ["app", "main"]

TRACEBACK_VARIABLE = "STEPTP_TRACEBACK"
"""With this variable set to 1, an internal error prints its traceback."""

app = typer.Typer(
    name="steptp",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"steptp {__version__}")
        raise typer.Exit


@app.callback(epilog="A program is x.leir, file.py:Class, module:Class, einsum:ij,jk->ik@64x32,32x16 or zoo:name.")
def _top(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    """Verified, measured single steps of tensor-program optimisation."""


for _verb in (_build, _show, _verify, _mutate, _audit, _sites, _apply, _saturate, _train, _evaluate, _optimize, _report, _lower, _strategies, _doctor):
    _verb.register(app)


def main() -> None:
    """Entry point. Errors go to standard error; the exit status is 2 for bad input, 130 for Ctrl-C, 70 for a bug in Step-TP."""
    try:
        app()
    except StepTPError as err:
        _stop(err.render(), 2)
    except KeyboardInterrupt:
        _stop("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush into
        sys.exit(1)
    except OSError as err:
        if os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        _stop(f"error[usage-file]: {err.strerror or err}{f': {err.filename}' if err.filename else ''}", 2)
    except Exception as err:
        if os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        first = (str(err).strip().splitlines() or [""])[0]
        _stop(f"error[internal]: {type(err).__name__}: {first}\nhint: this is a bug in Step-TP, please report it; {TRACEBACK_VARIABLE}=1 shows where", 70)


def _stop(text: str, status: int) -> None:
    print(text, file=sys.stderr)
    sys.exit(status)
