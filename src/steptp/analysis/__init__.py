"""Analyses of LEIR programs: polyhedral model, dependences, safety, features, host facts."""

from __future__ import annotations

from steptp.analysis.dependence import Dependence, carried_by, dependences, is_parallel
from steptp.analysis.features import Features, features
from steptp.analysis.host import HostInfo
from steptp.analysis.mapping import check_order
from steptp.analysis.model import Access, LoopRef, Model, Statement
from steptp.analysis.order import Order, Violation, can_reorder, swap_headers, violated
from steptp.analysis.problems import BudgetExceeded, Problem, budget
from steptp.analysis.safety import safety_problems

__all__ = [
    "Access", "BudgetExceeded", "Dependence", "Features", "HostInfo", "LoopRef", "Model", "Order", "Problem", "Statement", "Violation",
    "budget", "can_reorder", "carried_by", "check_order", "dependences", "features", "is_parallel", "safety_problems", "swap_headers",
    "violated",
]  # fmt: skip
