"""Grounded chains of thought: facts with evidence → text, and a checker that re-derives every sentence (``docs/reasoning.md``)."""

from __future__ import annotations

from steptp.reason.explain import Explanation, explain

__all__ = ["Explanation", "explain"]
