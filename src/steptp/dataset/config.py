"""The configuration of a build. Everything that decides which records come out is here; jobs and paths are not."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from steptp.ir.seeds import digest

__all__ = ["BuildConfig", "SCHEMA_VERSION"]

SCHEMA_VERSION = 1


class BuildConfig(BaseModel):
    """What to build. ``steps`` counts verified steps after all filters; ``measured`` of them are timed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workloads: tuple[str, ...]
    steps: int = Field(default=300, ge=1)
    depth: int = Field(default=6, ge=1, le=64)
    seed: int = Field(default=0, ge=0)
    measured: int | None = Field(default=None, ge=0, description="steps to time; all when None")
    variants: int = Field(default=2, ge=0, le=16, description="extra shapes of each workload, as roots of their own")
    siblings: int = Field(default=10, ge=0, le=64, description="sites tried at a chosen state")
    sibling_share: float = Field(default=0.25, ge=0, le=1, description="share of states at which siblings are tried")
    refusal_share: float = Field(default=0.1, ge=0, le=1, description="share of states at which an illegal proposal is recorded")
    cap_share: float = Field(default=0.18, gt=0, le=1, description="largest share of one strategy")
    max_lines: int = Field(default=60, ge=4, description="a walk does not go on from programs longer than this")
    target: Literal["cpu", "cuda"] = Field(default="cpu", description="'cuda' adds strategies that make GPU kernels, which nothing here times")
    wave: int = Field(default=32, ge=1, description="trajectories planned at once; quotas are updated between waves")

    @property
    def identity(self) -> str:
        """Changes exactly when the records may change."""
        return digest(SCHEMA_VERSION, self.model_dump_json())
