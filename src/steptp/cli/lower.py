"""``steptp lower X``: LEIR, TVMScript, LLVM IR, assembly or CUDA source."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

__all__ = ["register"]


class Form(str, Enum):
    LEIR = "leir"
    TVMSCRIPT = "tvmscript"
    LLVM = "llvm"
    ASM = "asm"
    CUDA = "cuda"


def register(app: typer.Typer) -> None:
    @app.command("lower")
    def lower(
        program: Annotated[str, typer.Argument(help="x.leir, file.py:Class, module:Class, einsum:… or zoo:name")],
        emit: Annotated[Form, typer.Option("--emit", "-e", help="What to print.")] = Form.TVMSCRIPT,
        fma: Annotated[bool, typer.Option(help="Allow FMA contraction (release builds do; bit comparison does not).")] = True,
        preset: Annotated[str | None, typer.Option(help="Preset of a zoo workload.")] = None,
    ) -> None:
        """Print a program lowered to TVMScript, LLVM IR, assembly or CUDA."""
        from steptp.cli.common import read_program
        from steptp.ir import print_program

        subject = read_program(program, preset)
        if emit is Form.LEIR:
            typer.echo(print_program(subject))
            return
        from steptp.lower import BuildOptions, assembly, cuda_source, llvm_ir, tvmscript

        options = BuildOptions(fma=fma)
        if emit is Form.CUDA:
            typer.echo(cuda_source(subject))
        elif emit is Form.TVMSCRIPT:
            typer.echo(tvmscript(subject))
        else:
            typer.echo((llvm_ir if emit is Form.LLVM else assembly)(subject, options))
