"""A conversation as a model's tokenizer sees it, the same in training and in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from steptp.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["Chat"]

_PROBE = "0a1b"  # stands for texts when a template is looked at


class Chat:
    """The chat template of a tokenizer. Reasoning models are asked not to think; a template that shows no system text gets it in front of the user's."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer

    def rendered(self, messages: Sequence[Mapping[str, str]], *, answering: bool = True) -> str:
        """The text of a conversation; with ``answering`` up to where the answer begins."""
        if messages[0]["role"] == "system" and not self._takes_system:
            system, user, *rest = messages
            messages = [{"role": user["role"], "content": f"{system['content']}\n\n{user['content']}"}, *rest]
        text = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=answering, enable_thinking=False)
        return str(text)

    def encoded(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of :meth:`rendered`."""
        ids: list[int] = self.tokenizer(self.rendered(messages), add_special_tokens=False, verbose=False).input_ids
        return ids

    @cached_property
    def end_of_turn(self) -> int:
        """What ends an answer: the special token that the template puts after it, else the tokenizer's end. Raises :class:`UsageError` ``usage-model``."""
        turns = [{"role": "user", "content": "-"}, {"role": "assistant", "content": _PROBE}]
        after = self.rendered(turns, answering=False).rpartition(_PROBE)[2].lstrip()
        ids: list[int] = self.tokenizer(after, add_special_tokens=False).input_ids
        if ids and ids[0] in self.tokenizer.added_tokens_decoder:
            return ids[0]
        if self.tokenizer.eos_token_id is None:
            raise UsageError("usage-model", "the tokenizer has no token that ends an answer")
        return int(self.tokenizer.eos_token_id)

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the template shows a system text; some refuse it, some leave it out."""
        from jinja2 import TemplateError

        try:
            turns = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "-"}]
            return _PROBE in str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except TemplateError:
            return False
