"""PyTorch modules, einsum equations and LEIR files → workloads (a LEIR program with its inputs and reference).

Nothing here imports torch until a workload is loaded.
"""

from __future__ import annotations

from steptp.frontend.loaders import load_workload
from steptp.frontend.workload import Workload, from_module, from_program, sizes_for

__all__ = ["Workload", "from_module", "from_program", "load_workload", "sizes_for"]
