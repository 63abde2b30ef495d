"""Finding a workload by what the user typed.

============================================= =====================================================================
``model.py:Model``                            a class in a file
``package.module:Model``                      a class in an importable module
``einsum:ij,jk->ik@i=64,j=32,k=16``           an equation and the extent of each letter
``einsum:bij,bjk->bik@8x64x32,8x32x16``       an equation and the shape of each operand
``program.leir``                              a LEIR text
``zoo:softmax``                               an entry of the built-in zoo
============================================= =====================================================================

A class is built with ``get_init_inputs()`` of its module (or no arguments) and captured on ``get_inputs()`` (KernelBench's
convention), on a module function or class attribute ``example_inputs``, a function or a tuple of tensors.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from steptp.errors import FrontendError, Place, StepTPError
from steptp.frontend.workload import InputsMaker, Workload, from_module, from_program
from steptp.ir import parse
from steptp.ir.seeds import digest

if TYPE_CHECKING:
    import torch

__all__ = ["inputs_maker", "load_class", "load_kernel", "load_workload"]

_CACHE: dict[tuple[object, ...], Workload] = {}


def load_workload(spec: str, *, sizes: str = "auto", cache: bool = True) -> Workload:
    """The workload that ``spec`` names (see the module's text).

    ``sizes``: ``auto`` names every independent dim of inputs and parameters, ``static`` keeps them as numbers. A result is kept for the
    life of the process unless ``cache`` is false; files are read again when they change. Raises :class:`FrontendError`
    (``frontend-spec``, ``frontend-file``, ``frontend-class``, ``frontend-constructor``, ``frontend-inputs``, and those of the capture).
    """
    kind, _, rest = spec.partition(":")
    if kind == "einsum":
        from steptp.frontend.einsum import einsum_workload

        return _kept(("einsum", rest), cache, lambda: einsum_workload(rest))
    if kind == "zoo":
        zoo = importlib.import_module("steptp.frontend.zoo")
        found: Workload = zoo.get(rest, sizes=sizes)
        return found
    if spec.endswith(".leir"):
        path, text = _read(spec)
        return _kept(("leir", str(path), digest(text)), cache, lambda: from_program(parse(text, str(path)), path.stem, text))
    place, colon, name = spec.rpartition(":")
    if spec.endswith(".py"):
        raise FrontendError("frontend-spec", f"{spec} does not say which class", hint=f"add its name, as in {spec}:Model")
    if not colon or not place or not name:
        raise FrontendError(
            "frontend-spec", f"cannot tell what workload {spec!r} means",
            hint="use file.py:Class, package.module:Class, einsum:ij,jk->ik@i=64,j=32,k=16, program.leir or zoo:name",
        )  # fmt: skip
    if place.endswith(".py") or "/" in place:
        path, text = _read(place)
        return _kept((str(path.resolve()), name, digest(text), sizes), cache, lambda: load_class(_run_file(path, text), name, text, sizes=sizes))
    return _kept((place, name, sizes), cache, lambda: load_class(_import(place), name, sizes=sizes))


def load_kernel(spec: str) -> Callable[..., object]:
    """The function that ``file.py:name`` or ``package.module:name`` names, or the module that a class of that name makes.

    Raises :class:`FrontendError` as :func:`load_workload` does.
    """
    import torch

    from steptp.frontend.tensors import seeded

    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise FrontendError("frontend-spec", f"cannot tell what kernel {spec!r} means", hint="use file.py:name or package.module:name")
    module = _run_file(*_read(place)) if place.endswith(".py") or "/" in place else _import(place)
    made = vars(module).get(name)
    if inspect.isclass(made) and issubclass(made, torch.nn.Module):
        with torch.random.fork_rng(devices=[]):
            seeded(0, name)
            return _construct(module, made, name)
    if not callable(made):
        found = [k for k, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        raise FrontendError("frontend-class", f"{place} has no function or class {name}", hint=f"there are: {', '.join(found) or 'none'}")
    return made


def _kept(key: tuple[object, ...], cache: bool, make: Callable[[], Workload]) -> Workload:
    if not cache:
        return make()
    if key not in _CACHE:
        _CACHE[key] = make()
    return _CACHE[key]


def _file(text: str) -> Path:
    path = Path(text).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise FrontendError("frontend-file", f"{text} is a folder, not a file")
    folder = path.parent
    near = difflib.get_close_matches(path.name, [p.name for p in folder.iterdir()], 1) if folder.is_dir() else []
    hint = f"did you mean {folder / near[0]}?" if near else f"the folder {folder} does not exist" if not folder.is_dir() else ""
    raise FrontendError("frontend-file", f"there is no file {text}", hint=hint)


def _read(text: str) -> tuple[Path, str]:
    path = _file(text)
    try:
        return path, path.read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise FrontendError("frontend-file", f"{text} is not a text file: byte {err.start} is not UTF-8") from None
    except OSError as err:
        raise FrontendError("frontend-file", f"cannot read {text}: {err.strerror}") from None


def _run_file(path: Path, text: str) -> ModuleType:
    """Execute a Python file as a module of its own (under a name that depends on its content)."""
    name = f"steptp_user_{path.stem}_{digest(str(path.resolve()), text)}"
    if name in sys.modules:
        return sys.modules[name]
    made = importlib.util.spec_from_file_location(name, path)
    if made is None or made.loader is None:
        raise FrontendError("frontend-file", f"{path} is not a Python file")
    module = importlib.util.module_from_spec(made)
    sys.modules[name] = module
    try:
        made.loader.exec_module(module)
    except StepTPError:
        sys.modules.pop(name, None)
        raise
    except Exception as err:  # noqa: BLE001 - a user's file may fail in any way when it is run
        sys.modules.pop(name, None)
        raise _raised("frontend-file", f"running {path} failed", err) from None
    return module


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as err:  # noqa: BLE001 - importing runs user code
        hint = f"give the file itself: {name.replace('.', '/')}.py:Class" if isinstance(err, ModuleNotFoundError) else ""
        raise _raised("frontend-file", f"importing {name} failed", err, hint) from None


def _raised(code: str, what: str, err: Exception, hint: str = "") -> FrontendError:
    from steptp.frontend.errors import traceback_place

    if isinstance(err, SyntaxError) and err.text is not None and err.lineno is not None:
        lines = [""] * (err.lineno - 1) + [err.text.rstrip("\n")]
        place: Place | None = Place("\n".join(lines), err.lineno, err.offset or 1, filename=err.filename or "")
        return FrontendError(code, f"{what}: {type(err).__name__}: {err.msg}", place=place, hint=hint)
    return FrontendError(code, f"{what}: {type(err).__name__}: {str(err).strip()[:300]}", place=traceback_place(err), hint=hint)


def load_class(module: ModuleType, name: str, source: str = "", *, sizes: str = "auto") -> Workload:
    """Build, seed and capture class (or factory function) ``name`` of a Python module."""
    import torch

    from steptp.frontend.tensors import seeded

    classes = {
        k: v for k, v in vars(module).items() if inspect.isclass(v) and issubclass(v, torch.nn.Module) and v.__module__ == module.__name__ and v.__name__ == k
    }
    made = vars(module).get(name)
    if made is None or not (inspect.isclass(made) or inspect.isfunction(made)):
        near = difflib.get_close_matches(name, classes, 1)
        listed = f"classes there: {', '.join(classes) or 'none'}"
        raise FrontendError(
            "frontend-class",
            f"{Path(module.__file__ or module.__name__).name} has no class {name}",
            hint=f"did you mean {near[0]}? {listed}" if near else listed,
        )
    if not source:
        file = inspect.getsourcefile(made)
        source = Path(file).read_text(encoding="utf-8") if file else ""
    make = inputs_maker(module, made, name)
    with torch.random.fork_rng(devices=[]):
        seeded(0, name)
        instance = _construct(module, made, name)
    return from_module(instance, make, name, source=source, sizes=sizes)


def _construct(module: ModuleType, made: Callable[..., object], name: str) -> torch.nn.Module:
    import torch

    maker = vars(module).get("get_init_inputs") or getattr(made, "get_init_inputs", None)
    try:
        given = list(maker()) if callable(maker) else []
        if len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], dict):  # KernelBench's (args, kwargs)
            instance = made(*given[0], **given[1])
        else:
            instance = made(*given)
    except Exception as err:  # noqa: BLE001 - a user's constructor may fail in any way
        hint = "" if callable(maker) else "define get_init_inputs() in the file: the list of constructor arguments"
        raise _raised("frontend-constructor", f"building {name} failed", err, hint) from None
    if not isinstance(instance, torch.nn.Module):
        raise FrontendError("frontend-class", f"{name} is not a torch.nn.Module", hint="name a subclass of torch.nn.Module, or a function that returns one")
    return instance


def inputs_maker(module: ModuleType, made: Callable[..., object], name: str) -> InputsMaker:
    """Example inputs from ``get_inputs`` or ``example_inputs``, of the class or its module."""
    import torch

    from steptp.frontend.tensors import seeded

    source = next((s for holder in (made, module) for key in ("example_inputs", "get_inputs") if (s := getattr(holder, key, None)) is not None), None)
    if source is None:
        raise FrontendError(
            "frontend-inputs", f"no example inputs are known for {name}",
            hint="define get_inputs() in the file, returning the list of input tensors of forward()",
        )  # fmt: skip

    def make(seed: int) -> Sequence[object]:
        with torch.random.fork_rng(devices=[]):
            seeded(seed, name, "inputs")
            try:
                found = source() if callable(source) else source
            except Exception as err:  # noqa: BLE001 - user code
                raise _raised("frontend-inputs", f"the example inputs of {name} failed", err) from None
        if isinstance(found, torch.Tensor):
            return (found,)
        if not isinstance(found, (list, tuple)):
            raise FrontendError(
                "frontend-inputs",
                f"the example inputs of {name} are a {type(found).__name__}",
                hint="return a list or tuple, one entry for each argument of forward()",
            )
        return tuple(found)

    return make
