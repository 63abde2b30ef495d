"""Analyses of LEIR programs: polyhedral model, dependences, safety, features, host facts."""

from __future__ import annotations

from steptp.analysis.dependence import Dependence, carried_by, dependences, is_parallel
from steptp.analysis.mapping import check_order
from steptp.analysis.model import Access, LoopRef, Model, Statement
from steptp.analysis.order import Order, Violation, can_reorder, swap_headers, violated

__all__ = [
    "Access", "Dependence", "LoopRef", "Model", "Order", "Statement", "Violation", "can_reorder", "carried_by", "check_order", "dependences",
    "is_parallel", "swap_headers", "violated",
]  # fmt: skip
