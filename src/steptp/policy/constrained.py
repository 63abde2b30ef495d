"""Which tokens a grammar allows next, for a batch of samples.

llguidance keeps the state of each sample and fills a bit mask; its own kernel for torch compiles for seconds, so the mask is unpacked by numpy here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from steptp.errors import UsageError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

__all__ = ["Constraints"]


class Constraints:
    """Grammars over one tokenizer. ``width``: of the model's logits, which may be more than the vocabulary; ``ends``: the tokens that end an answer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, width: int, ends: Sequence[int]) -> None:
        try:
            import llguidance.hf
        except ModuleNotFoundError as err:
            raise UsageError("usage-model", f"constrained decoding needs the package llguidance ({err})", hint="pip install 'steptp[llm]', or --free") from None
        self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=width, eos_token=list(ends), slices=[])
        self._width = width
        self._compiled = lru_cache(maxsize=256)(self._compile)

    def matcher(self, grammar: str) -> Any:
        """The state before the first token of one sample. A grammar is compiled once."""
        return self._compiled(grammar).deep_copy()

    def _compile(self, grammar: str) -> Any:
        from llguidance import LLMatcher

        made = LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(grammar))
        if made.is_error():
            raise ValueError(f"llguidance does not take the grammar: {made.get_error()}")
        return made

    def allowed(self, matchers: Sequence[Any | None]) -> torch.Tensor:
        """Token by token whether it may come next, a row a sample; ``None``: any."""
        import llguidance.numpy as masks
        import numpy as np
        import torch

        bits = masks.allocate_token_bitmask(len(matchers), self._width)
        for row, matcher in enumerate(matchers):
            if matcher is not None:
                masks.fill_next_token_bitmask(matcher, bits, row)
                if matcher.is_error():
                    raise ValueError(f"llguidance gave up: {matcher.get_error()}")
        return torch.from_numpy(np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, : self._width].astype(bool))
