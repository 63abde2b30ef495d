"""TVM MetaSchedule on a naive program: a tuned function of NumPy arrays, built and timed in this process.

MetaSchedule's own builder and runner need ``cloudpickle``, its default cost model ``xgboost``. Where ``xgboost`` is missing, the search ranks candidates at random (TVM's
MLP model fails on a single task); :func:`cost_model` names the one in use.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from steptp.ir import Program  # noqa: E402
from steptp.lower.compile import host_cpu, limit_threads  # noqa: E402  (sets TVM's environment before TVM loads)
from tensorir_blocks import blocks  # noqa: E402

import tvm  # noqa: E402  isort: skip
from tvm.ir.utils import derived_object  # noqa: E402  isort: skip
from tvm.s_tir import meta_schedule as ms  # noqa: E402  isort: skip

__all__ = ["cost_model", "tuned"]

_REPEAT_MS = 20
_BUILT: dict[str, Any] = {}


def cost_model() -> str:
    """The cost model that ranks candidates here."""
    return "xgb" if importlib.util.find_spec("xgboost") else "random"


@derived_object
class _Builder(ms.builder.PyBuilder):  # type: ignore[misc]
    """Builds in this process; an artefact's path is its key in ``_BUILT``."""

    def build(self, inputs: list[Any]) -> list[Any]:
        out = []
        for one in inputs:
            key = str(len(_BUILT))
            try:
                _BUILT[key] = tvm.compile(one.mod, one.target)
                out.append(ms.builder.BuilderResult(key, None))
            except Exception as err:  # noqa: BLE001 - a candidate that does not build is data for the search
                out.append(ms.builder.BuilderResult(None, str(err)))
        return out


@derived_object
class _Done(ms.runner.PyRunnerFuture):  # type: ignore[misc]
    def __init__(self, seconds: list[float] | None, message: str | None) -> None:
        super().__init__()
        self.seconds, self.message = seconds, message

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return ms.runner.RunnerResult(self.seconds, self.message)


@derived_object
class _Runner(ms.runner.PyRunner):  # type: ignore[misc]
    """Times in this process, on random arguments."""

    def run(self, inputs: list[Any]) -> list[Any]:
        out = []
        for one in inputs:
            try:
                function = _BUILT.pop(one.artifact_path)
                info = [a.as_json() for a in one.args_info]
                arguments = ms.runner.local_runner.default_alloc_argument(tvm.cpu(), info, 1)[0]
                timer = function.mod.time_evaluator("main", tvm.cpu(), number=1, repeat=3, min_repeat_ms=_REPEAT_MS)
                out.append(_Done(list(timer(*arguments).results), None))
            except Exception as err:  # noqa: BLE001 - a candidate that fails is data for the search
                out.append(_Done(None, str(err)))
        return out


def tuned(program: Program, trials: int, threads: int, seed: int = 0) -> Any | None:
    """The best function that ``trials`` candidates gave (arguments: inputs, then outputs, as TVM tensors), or ``None``."""
    limit_threads(threads)
    target = tvm.target.Target({"kind": "llvm", "mcpu": host_cpu(), "num-cores": threads})
    module = tvm.IRModule({"main": blocks(program)})
    with tempfile.TemporaryDirectory() as folder:
        database = ms.tune_tir(
            module, target, folder, trials, num_trials_per_iter=min(trials, 16), builder=_Builder(), runner=_Runner(), cost_model=cost_model(),
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],  # the default also deletes artefacts' folders
            num_tuning_cores=threads, seed=seed,
        )  # fmt: skip
        schedule = ms.tir_integration.compile_tir(database, module, target)
    _BUILT.clear()
    return None if schedule is None else tvm.compile(schedule.mod, target)["main"]
