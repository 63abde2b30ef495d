"""The ``steptp`` command: one small file per verb. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import sys

import typer

from steptp.cli import apply as _apply
from steptp.cli import audit as _audit
from steptp.cli import build as _build
from steptp.cli import doctor as _doctor
from steptp.cli import lower as _lower
from steptp.cli import show as _show
from steptp.cli import sites as _sites
from steptp.cli import strategies as _strategies
from steptp.cli import verify as _verify
from steptp.errors import StepTPError

__all__ = ["app", "main"]

app = typer.Typer(
    name="steptp",
    help="Verified, measured single steps of tensor-program optimisation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _verb in (_build, _show, _verify, _audit, _sites, _apply, _lower, _strategies, _doctor):
    _verb.register(app)


def main() -> None:
    """Entry point. Errors for people go to standard error; the exit status is 2 for bad input, 130 for Ctrl-C."""
    try:
        app()
    except StepTPError as err:
        print(err.render(), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
