"""Rows of the two tables (``docs/schema.md``) and their Arrow schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from steptp.ir.seeds import derive_seed, digest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ProgramRecord", "StepRecord", "SPLITS", "TIME_COLUMNS", "step_id", "input_seed", "arrow_schema"]

SPLITS = ("train", "validation", "test_seen_family", "test_new_family")


class ProgramRecord(BaseModel):
    """One row of ``programs``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hash: str
    shape_hash: str
    text: str
    workload: str
    root: str
    family: str
    dtype: str
    sizes: str
    flops: int
    bytes_moved: int
    bytes_compulsory: int
    intensity: float
    instances: int
    parallelism: int
    lines: int
    tir_hash: str


class StepRecord(BaseModel):
    """One row of ``steps``. Fields with defaults are filled by later stages."""

    model_config = ConfigDict(extra="forbid")

    id: str
    parent: str
    child: str
    trajectory: str
    depth: int
    role: str
    root: str
    workload: str
    family: str
    split: str = ""
    strategy: str
    site: str
    params: str
    exactness: str
    verdict: str
    tier: int
    evidence: str
    counterexample: str = ""
    inverse: list[str] = []
    changed_lines: int = 0
    rule: str = ""
    candidates: list[str] = []
    reason: str = ""
    reason_hash: str = ""
    facts: str = "[]"
    seed: int = 0
    measured: bool = False
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    label: str = ""
    parent_us: float | None = None
    child_us: float | None = None
    timing: str = ""
    best_sibling: bool = False
    host: str = ""
    versions: str = ""


TIME_COLUMNS = ("ratio", "ratio_low", "ratio_high", "label", "parent_us", "child_us", "timing", "best_sibling")


def step_id(parent: str, strategy: str, site: str, child: str) -> str:
    """Identity of a step: what was done to what."""
    return digest("step", parent, strategy, site, child)


INPUT_DRAWS = 2
"""Draws of inputs for compiled code that the steps of one root share."""


def input_seed(root: str, seed: int) -> int:
    """Seed of the inputs that compiled code gets, from the root's hash and the step's seed: few for each root, so that what the root computes on
    them serves many steps."""
    return derive_seed("inputs", root, seed % INPUT_DRAWS)


def arrow_schema(model: type[BaseModel]) -> pa.Schema:
    """The Arrow schema of a record model; floats are float64, ``flops`` and the like int64, depths int32."""
    import pyarrow as pa

    small = {"depth", "tier", "changed_lines", "lines"}
    plain: dict[Any, Any] = {
        str: pa.string(),
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
        float | None: pa.float64(),
        list[str]: pa.list_(pa.string()),
    }
    return pa.schema([(n, pa.int32() if n in small else plain[f.annotation]) for n, f in model.model_fields.items()])
