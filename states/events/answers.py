"""The events that answer effects: the outcomes of models, tools, sub-agents and timers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from ..values.failures import FailureKind
from ..values.messages import ProviderFields, ToolCall, ToolResult, Usage
from ..values.questions import QuestionSet
from ..values.value import Block, Text, Value
from ..values.withheld import Suspect
from .family import Answer


class ProfileSelected(Answer):
    """The router chose a profile. A name that the policy does not know stands for the policy's first profile."""

    type: Literal["profile_selected"] = "profile_selected"
    profile: Text
    usage: Usage = Usage()


class RecentText(Value):
    """A text of the last minutes, from any conversation of the same owner."""

    role: Literal["user", "assistant"]
    text: Text


class MemoryRecalled(Answer):
    """What was found for a turn: a block of older conversations and a block of documents, both for the system message,
    and the dialogue of the last minutes. `left_out` says what could not be looked up, in sentences for people."""

    type: Literal["memory_recalled"] = "memory_recalled"
    block: Text = ""
    recent: tuple[RecentText, ...] = ()
    documents: Text = ""
    usage: Usage = Usage()
    left_out: tuple[Text, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The block of older conversations, then the block of documents. `Pure.`"""
        return (self.block, self.documents)


class LlmResponse(Answer):
    """The model's response: its text, its thinking, and the tools that it calls.

    `opaque` holds the provider's sealed thinking blocks, and `provider` what else only its family of models reads; both
    are sent back unchanged, and no state has them. `digest` identifies the request that was sent. `speaks` says whether
    it offered a tool that speaks to the user. The performer makes the ids of the calls unique.
    """

    type: Literal["llm_response"] = "llm_response"
    content: Text = ""
    thinking: Text = ""
    opaque: tuple[Block, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: Text = "stop"
    usage: Usage = Usage()
    model: Text = ""
    digest: Text = ""
    speaks: bool = False
    provider: ProviderFields | None = None

    @field_validator("tool_calls")
    @classmethod
    def _ids_differ(cls, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        if len({call.call_id for call in calls}) < len(calls):
            raise PydanticCustomError("call_ids_repeat", "the ids of the calls in one response must differ")
        return calls

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of the response, then the fault of each call. `Pure.`"""
        calls = self.tool_calls
        return (self.content, *(call.fault or "" for call in calls)) if calls else (self.content,)


class LlmFailed(Answer):
    """The model request failed. `retry_after` is the wait in seconds that the provider asked for, and `usage` what was
    spent before the answer broke off.

    `held` says of a request that was refused for its content what in it may be what was refused. It is empty for every
    other failure, and in the events that were stored before anything was withheld.
    """

    type: Literal["llm_failed"] = "llm_failed"
    kind: FailureKind
    sentence: Text
    retry_after: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    held: tuple[Suspect, ...] = ()
    usage: Usage = Usage()


class RetryDue(Answer):
    """The wait before the next attempt is over."""

    type: Literal["retry_due"] = "retry_due"


class DeadlineReached(Answer):
    """The time to wait for something is over."""

    type: Literal["deadline_reached"] = "deadline_reached"


class AskUserQuestionPending(Answer):
    """A tool asks a person. The answers become the result of its call; or, if the call `suspends`, it has not ended: it
    waits for the answers and then goes on."""

    type: Literal["ask_user_question_pending"] = "ask_user_question_pending"
    questions: QuestionSet
    suspends: bool = False


class ToolComplete(Answer):
    """A tool returned a result, which may be an error."""

    type: Literal["tool_complete"] = "tool_complete"
    result: ToolResult

    @property
    def texts(self) -> tuple[str, ...]:
        """The text that the model reads, then the texts of the acts. `Pure.`"""
        return self.result.texts


class ToolReconciled(Answer):
    """A tool says whether a call that a crash interrupted ran, and with which result, if that is known."""

    type: Literal["tool_reconciled"] = "tool_reconciled"
    verdict: Literal["ran", "did_not_run", "unknown"]
    result: ToolResult | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the result, if it is known. `Pure.`"""
        return () if self.result is None else self.result.texts


class SubAgentFinished(Answer):
    """A sub-agent ended, with its last text and its status."""

    type: Literal["sub_agent_finished"] = "sub_agent_finished"
    outcome: Text
    status: Literal["completed", "incomplete", "failed", "cancelled"] = "completed"
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """The last text of the sub-agent. `Pure.`"""
        return (self.outcome,)


class WorkVerified(Answer):
    """The claim that the work is complete was checked: whether it holds, why, and what is missing."""

    type: Literal["work_verified"] = "work_verified"
    passed: bool
    reason: Text = ""
    missing: tuple[Text, ...] = ()
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """The reason, and what is missing. `Pure.`"""
        return ("\n".join((self.reason, *(f"- {one}" for one in self.missing))).strip(),)


class TurnSummarized(Answer):
    """A summary of the turn, for display."""

    type: Literal["turn_summarized"] = "turn_summarized"
    summary: Text
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """The summary. `Pure.`"""
        return (self.summary,)


class HistoryCompacted(Answer):
    """The summary that replaces the history."""

    type: Literal["history_compacted"] = "history_compacted"
    summary: Annotated[Text, Field(min_length=1)]
    usage: Usage = Usage()

    @property
    def texts(self) -> tuple[str, ...]:
        """The summary. `Pure.`"""
        return (self.summary,)


class ToolAborted(Answer):
    """A tool was stopped before it ended, or before it began."""

    type: Literal["tool_aborted"] = "tool_aborted"


class EffectFailed(Answer):
    """An effect ended without an answer of its own kind. Every performer can fall back to this answer."""

    type: Literal["effect_failed"] = "effect_failed"
    kind: FailureKind
    sentence: Text

    @property
    def texts(self) -> tuple[str, ...]:
        """The reason. `Pure.`"""
        return (self.sentence,)
