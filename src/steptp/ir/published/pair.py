"""Two texts side by side: the reference shows the interface, the candidate must offer it."""

from __future__ import annotations

from dataclasses import dataclass

from steptp.errors import LeirError
from steptp.ir.published.convert import Interface, Reading, convert, interface_of
from steptp.ir.published.reader import read_tree, too_deep
from steptp.ir.published.scan import Scan, scan

__all__ = ["Pair", "read_pair"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two readings with one interface. ``matched`` says how tensors were matched where names alone did not."""

    reference: Reading
    candidate: Reading
    matched: tuple[str, ...] = ()


def read_pair(reference: str, candidate: str, filenames: tuple[str, str] = ("<reference>", "<candidate>")) -> Pair:
    """Read both texts under the reference's interface.

    Tensors match by name. Where one name of the reference's outputs is missing in the candidate and the candidate has exactly one output of its own
    with that dtype and shape, these two match. Inputs are as large as the farther reach of the two. Raises :class:`LeirError` as
    :func:`steptp.ir.published.read` does, and ``published-interface``, ``-input`` or ``-output`` where the candidate does not offer the interface.
    """
    first, second = (_scanned(text, name) for text, name in zip((reference, candidate), filenames, strict=True))
    face = interface_of(first)
    matched = _outputs(face, second)
    _inputs(face, first, second)
    wide = {}
    for name, (dtype, shape) in face.inputs.items():
        other = second.tensors.get(name)
        wide[name] = (dtype, shape if other is None else tuple(max(a, b) for a, b in zip(shape, other.box, strict=True)))
    own = Interface(wide, face.outputs)
    theirs = Interface(wide, {matched.get(n, n): d for n, d in face.outputs.items()})
    a = convert(first.text, own, first)
    b = convert(second.text, theirs, second, {new: old for old, new in matched.items()})
    return Pair(a, b, tuple(f"{new} of the candidate is {old} of the reference" for old, new in matched.items()))


def _scanned(source: str, filename: str) -> Scan:
    text = read_tree(source, filename)
    try:
        return scan(text)
    except RecursionError:
        raise too_deep(text) from None


def _outputs(face: Interface, second: Scan) -> dict[str, str]:
    """Outputs of the reference that bear another name in the candidate."""
    text = second.text
    out: dict[str, str] = {}
    for name, (dtype, shape) in face.outputs.items():
        found = second.tensors.get(name)
        if found is not None and found.writes:
            _same_kind("output", name, (dtype, len(shape)), second)
            continue
        own = [t for t in map(second.tensors.__getitem__, second.outputs) if t.name not in face.outputs and t.name not in face.inputs]
        spare = [t.name for t in own if (t.dtype, t.box) == (dtype, shape)]
        if len(spare) == 1 and spare[0] not in out.values():
            out[name] = spare[0]
        elif spare:
            place = second.tensors[spare[0]].first.span
            raise text.error("published-interface", f"output {name} may be any of {', '.join(spare)}", place, "give the output its name")
        else:
            hint = f"the reference writes {name} and reads it nowhere, so {name} is its result"
            raise text.error("published-output", f"output {name} is never written", text.nests[-1].span, hint)
    return out


def _inputs(face: Interface, first: Scan, second: Scan) -> None:
    text = second.text
    for name in face.inputs:
        if name in second.tensors:
            _same_kind("input", name, (face.inputs[name][0], len(face.inputs[name][1])), second)
            if second.tensors[name].writes:
                place = second.tensors[name].writes[0].statement.target.span
                raise text.error("published-input", f"{name} is an input of the reference and is written here", place, "write to another tensor")
    for name in second.inputs:
        if name not in face.inputs:
            known = "an intermediate tensor of the reference" if name in first.tensors else "unknown to the reference"
            raise text.error("published-interface", f"{name} is read but never written, and is {known}", second.tensors[name].first.span)


def _same_kind(role: str, name: str, kind: tuple[object, int], second: Scan) -> None:
    tensor = second.tensors[name]
    if (tensor.dtype, tensor.rank) != kind:
        found = f"{tensor.dtype} with {tensor.rank} dimension(s) instead of {kind[0]} with {kind[1]}"
        error: LeirError = second.text.error("published-interface", f"{role} {name} is {found}", tensor.first.span)
        raise error
