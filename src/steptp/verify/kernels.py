"""``steptp.verify``: a verdict on anybody's kernel.

A candidate that is LEIR climbs the whole ladder. Everything else (a function on tensors or arrays, a module, compiled TVM code) can only be
run: it is judged by tiers 4 and 3 on the reference's side, and 5 on request (:mod:`steptp.verify.kernel_judge`). Candidates run in a forked
process (:mod:`steptp.verify.forked`); the reference is computed here, after them. A bad candidate is a verdict, a bad reference or bad inputs an error.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steptp.errors import StepTPError, UsageError
from steptp.frontend import Workload, from_module, from_program, load_workload, sizes_for
from steptp.ir.nodes import Program
from steptp.ir.sizes import rebind
from steptp.rewrite.base import Exactness
from steptp.verify.forked import Ended, Forked, Frames
from steptp.verify.kernel_calls import Caller, Kernel, Slot, calls_numpy, calls_torch, calls_tvm, server, slots
from steptp.verify.kernel_judge import Subject, judge
from steptp.verify.ladder import verify_step
from steptp.verify.verdict import TierReport, Verdict, VerdictKind

if TYPE_CHECKING:
    import torch

__all__ = ["verify"]


def verify(
    reference: Any,
    candidate: Any,
    *,
    inputs: Any = None,
    seed: int = 0,
    bitwise: bool = False,
    timeout: float = 60.0,
    memory: int = 4 << 30,
    arrays: str | None = None,
) -> Verdict:
    """The verdict on ``candidate`` as an implementation of ``reference``.

    ``reference``: a ``torch.nn.Module``, a LEIR :class:`Program`, or a spec as :func:`steptp.frontend.load_workload` takes it. ``inputs`` are example
    arguments (a tensor, or a list of them) of a module that has no ``get_inputs``, or inputs of a program, by name or in order, whose sizes
    are then judged; they become a regime of their own. ``candidate``: a LEIR program or ``x.leir``; a module; a function, or ``file.py:name`` of one; a TVM
    PrimFunc, IRModule or compiled module, which takes the program's inputs and then its outputs.

    Modules whose parameters have the reference's names and shapes are run with drawn weights. A function gets the arguments of forward() when
    the reference is a module object, whose weights then keep their values; otherwise the program's inputs in their order, weights among them.
    ``arrays``: ``torch`` or ``numpy``, what a function takes (default: NumPy where its first argument is annotated so). ``bitwise`` asks for the reference's
    bits. All calls together may take ``timeout`` seconds; ``memory`` bounds the private bytes of the process that they run in.

    Raises :class:`StepTPError` for a reference that cannot be captured or built, and ``verify-inputs``, ``verify-state``, ``verify-arrays``.
    """
    if arrays not in (None, "torch", "numpy"):
        raise UsageError("verify-arrays", f"arrays is {arrays!r}", hint="use torch or numpy")
    subject, own = _reference(reference, inputs)
    if isinstance(candidate, Path):
        candidate = str(candidate)
    program = _leir(candidate)
    if program is not None:
        return _climb(subject.root, program, seed, bitwise, timeout, memory)
    named = slots(subject.root, subject.root.inputs), slots(subject.root, subject.root.outputs)
    subject, opened = _opened(subject, own, candidate, named[0], arrays)
    if opened is None:
        message = f"a {type(candidate).__name__} cannot be called as a kernel"
        return Verdict(VerdictKind.MALFORMED, 4, (TierReport(4, VerdictKind.MALFORMED, message),))
    with Forked(server(_forgetting(opened), *named), timeout=timeout, memory=memory) as process:
        return judge(subject, Kernel(process, *named), seed=seed, bitwise=bitwise)


def _reference(reference: Any, inputs: Any) -> tuple[Subject, bool]:
    """What to compare with, and whether the reference is a module object of the caller's."""
    own = not isinstance(reference, (Program, str, Path))
    workload = (
        _captured(reference, inputs) if own else from_program(reference, "reference") if isinstance(reference, Program) else load_workload(str(reference))
    )
    root = workload.program
    if workload.mutated:
        raise UsageError(
            "verify-state", f"{workload.name} changes its own state ({', '.join(workload.mutated)}), which a kernel cannot return",
            hint="put the module into eval mode",
        )  # fmt: skip
    given: dict[str, np.ndarray] | None = None
    if inputs is not None and workload.module is None:
        given = _named(root, inputs)
        root = _at(root, given)
    elif inputs is not None and not own:
        raise UsageError("verify-inputs", f"{workload.name} brings its own example inputs", hint="pass the module itself to choose others")
    elif inputs is not None:
        names = {b.name for b in root.inputs}
        given = {k: v for k, v in workload.example_inputs(0).items() if k in names}
    return Subject(root, workload if workload.module is not None else None, {}, given), own


def _captured(reference: Any, inputs: Any) -> Workload:
    import torch

    from steptp.frontend.loaders import inputs_maker

    if not isinstance(reference, torch.nn.Module):
        hint = "build it first" if inspect.isclass(reference) else "use a torch.nn.Module, a LEIR program, or a spec such as file.py:Model"
        raise UsageError("verify-reference", f"a {type(reference).__name__} cannot be a reference", hint=hint)
    name = type(reference).__name__
    if inputs is None:
        home = inspect.getmodule(type(reference))
        if home is None:
            raise UsageError("verify-inputs", f"no example inputs are known for {name}", hint="pass inputs=")
        try:
            make: Callable[[int], Sequence[object]] = inputs_maker(home, type(reference), name)
        except StepTPError as err:
            raise UsageError("verify-inputs", err.message, hint="pass inputs=") from None
    else:
        several = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)

        def make(seed: int) -> Sequence[object]:
            return several

    return from_module(reference, make, name, randomise=False)


def _named(root: Program, inputs: Any) -> dict[str, np.ndarray]:
    from steptp.frontend.tensors import to_numpy

    several = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    names = list(inputs) if isinstance(inputs, Mapping) else [b.name for b in root.inputs]
    if len(several) != len(root.inputs) or set(names) != {b.name for b in root.inputs}:
        raise UsageError("verify-inputs", f"{len(several)} inputs where the program has {', '.join(b.name for b in root.inputs)}")
    return {name: to_numpy(value) if hasattr(value, "detach") else np.asarray(value) for name, value in zip(names, several, strict=True)}


def _at(root: Program, given: Mapping[str, np.ndarray]) -> Program:
    """The program at the sizes of these inputs; raises :class:`UsageError` ``verify-inputs`` where there are none."""
    try:
        bound = rebind(root, {k: v for k, v in sizes_for(root, {k: v.shape for k, v in given.items()}).items() if root.size_env[k] != v})
    except (StepTPError, ValueError) as err:
        raise UsageError("verify-inputs", f"the inputs do not fit the program: {getattr(err, 'message', err)}") from None
    for slot in slots(bound, bound.inputs):
        if given[slot.name].shape != slot.shape:
            raise UsageError("verify-inputs", f"{slot.name} has shape {given[slot.name].shape}, expected {slot.shape}")
    return bound


def _leir(candidate: Any) -> Program | str | None:
    """The candidate as a program or its text, if it is one."""
    if isinstance(candidate, Program):
        return candidate
    if not isinstance(candidate, str):
        return None
    if candidate.endswith(".leir"):
        try:
            return Path(candidate).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise UsageError("usage-file", f"cannot read {candidate}: {err}") from None
    return load_workload(candidate).program if candidate.startswith(("zoo:", "einsum:")) else None


def _climb(root: Program, candidate: Program | str, seed: int, bitwise: bool, timeout: float, memory: int) -> Verdict:
    """The ladder; its compiled tiers in a forked process."""
    claim = Exactness.BITWISE if bitwise else Exactness.ALGEBRAIC
    first = verify_step(root, candidate, exactness=claim, seed=seed, build_tiers=False)
    if not first.ok:
        return first

    def compiled(_: Frames) -> Frames:
        return [pickle.dumps(verify_step(root, candidate, exactness=claim, seed=seed, tiers=(4, 5)))]

    with Forked(compiled, timeout=timeout, memory=memory) as process:
        try:
            then: Verdict = pickle.loads(process.ask([])[0])
        except Ended as err:
            then = Verdict(err.kind, 4, (TierReport(4, err.kind, err.message, {"log": err.log} if err.log else {}),))
    return Verdict(then.kind, then.tier, (*first.reports, *then.reports))


def _opened(subject: Subject, own: bool, candidate: Any, inputs: Sequence[Slot], arrays: str | None) -> tuple[Subject, Callable[[], Caller] | None]:
    """The subject with the inputs that this candidate leaves fixed, and what makes its caller in the child."""
    workload = subject.workload
    if type(candidate).__module__.split(".")[0] in ("tvm", "tvm_ffi"):
        return subject, lambda: calls_tvm(candidate)
    if isinstance(candidate, str):
        return subject, lambda: _of_spec(candidate, workload, inputs, arrays)
    if not callable(candidate):
        return subject, None
    if arrays == "numpy" or (arrays is None and _takes_numpy(candidate)):
        if own and workload is not None and workload.params:
            return _keeping(subject, workload.params), lambda: calls_numpy(candidate, [s for s in inputs if s.name not in workload.params])
        return subject, lambda: calls_numpy(candidate, inputs)
    if workload is None or not (own or _is_module(candidate)):
        return subject, lambda: calls_torch(lambda tensors: candidate(*tensors.values()), inputs)
    if _is_module(candidate) and _same_state(candidate, workload):
        constants = {k: v for k, v in workload.params.items() if k not in workload.state}
        return _keeping(subject, constants), lambda: calls_torch(_with_state(candidate, workload), inputs)
    return _keeping(subject, workload.params), lambda: calls_torch(lambda tensors: candidate(*workload.arguments(tensors)), inputs)


def _keeping(subject: Subject, values: Mapping[str, np.ndarray]) -> Subject:
    names = {b.name for b in subject.root.inputs}
    return replace(subject, fixed={k: v for k, v in values.items() if k in names})


def _of_spec(spec: str, workload: Workload | None, inputs: Sequence[Slot], arrays: str | None) -> Caller:
    """The caller of ``file.py:name``; runs in the child, as the file may do anything."""
    from steptp.frontend.loaders import load_kernel

    try:
        found: Any = load_kernel(spec)
    except StepTPError as err:
        raise Ended(VerdictKind.MALFORMED, f"{err.code}: {err.message}") from None
    if not _is_module(found):
        if arrays == "numpy" or (arrays is None and _takes_numpy(found)):
            return calls_numpy(found, inputs)
        return calls_torch(lambda tensors: found(*tensors.values()), inputs)
    if workload is None:
        return calls_torch(lambda tensors: found(*tensors.values()), inputs)
    if workload.state and not _same_state(found, workload):
        raise Ended(VerdictKind.MALFORMED, f"{spec} lacks parameters of the reference: {', '.join(workload.state.values())}")
    return calls_torch(_with_state(found, workload), inputs)


def _is_module(candidate: Any) -> bool:
    import torch

    return isinstance(candidate, torch.nn.Module)


def _same_state(module: torch.nn.Module, workload: Workload) -> bool:
    """Whether the module has parameters and buffers of the reference's names, shapes and dtypes."""
    assert workload.module is not None
    theirs, ours = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (module, workload.module))
    return all(p in theirs and theirs[p].shape == ours[p].shape and theirs[p].dtype == ours[p].dtype for p in workload.state.values())


def _with_state(module: torch.nn.Module, workload: Workload) -> Callable[[dict[str, torch.Tensor]], Any]:
    import torch

    paths = workload.state

    def call(tensors: dict[str, torch.Tensor]) -> Any:
        state = {path: tensors[name] for name, path in paths.items() if name in tensors}
        return torch.func.functional_call(module, state, workload.arguments(tensors))

    return call


def _takes_numpy(function: Callable[..., Any]) -> bool:
    """Whether the first argument is annotated as a NumPy array."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    return first is not None and any(name in str(first.annotation) for name in ("ndarray", "NDArray"))


def _forgetting(opened: Callable[[], Caller]) -> Callable[[], Caller]:
    """In the child: nothing that earlier checks of this process have computed is left lying about."""

    def call() -> Caller:
        from steptp.verify import compiled, tier4_oracle

        tier4_oracle.clear_references()
        compiled.clear_runs()
        return opened()

    return call
