"""Every text of every event is redacted, unless it is a name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from turnwise import AgentMail, Image, Redaction, RedactionRule, Speech, SubAgents, Transfer, UserQuestion, WorkComplete
from turnwise.effects.redaction.event_redaction import (
    IMAGE_LEFT_OUT,
    NAMES,
    SecretInAddress,
    content_fields,
    redacted_event,
)
from turnwise.states.events import (
    EVENTS,
    AgentMessage,
    AskUserQuestionPending,
    DetailsChanged,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    MemoryRecalled,
    Opened,
    ProfileSelected,
    ProfileTransferred,
    RecentText,
    ScheduleChanged,
    ToolApproval,
    ToolComplete,
    UserMessage,
    UserQuestionResponse,
    WakeUp,
    WorkVerified,
)
from turnwise.states.values.history import HistoryMessage
from turnwise.states.values.messages import ToolCall, ToolResult
from turnwise.states.values.questions import Annotation
from turnwise.states.values.schedule import Schedule

from ...support.secrets import SECRETS, found_in

AT = datetime(2026, 1, 1, tzinfo=UTC)
MAIL = SECRETS["email"]
PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"

CONTENT = {
    "opened": {"title", "messages", "repairs", "schedule"},
    "user_message": {"images", "text"},
    "agent_message": {"text"},
    "message_withdrawn": set(),
    "user_question_response": {"answers", "annotations"},
    "tool_approval": {"note", "arguments"},
    "user_cancel": set(),
    "retry_requested": set(),
    "policy_changed": set(),
    "tools_changed": set(),
    "details_changed": {"title"},
    "schedule_changed": {"schedule"},
    "wake_up": {"text"},
    "profile_transferred": set(),
    "compaction_requested": set(),
    "doubt_resolved": set(),
    "close_requested": set(),
    "profile_selected": set(),
    "memory_recalled": {"block", "recent", "documents"},
    "llm_response": {"content", "thinking", "opaque", "tool_calls"},
    "llm_failed": {"sentence"},
    "retry_due": set(),
    "deadline_reached": set(),
    "ask_user_question_pending": {"questions"},
    "tool_complete": {"result"},
    "tool_reconciled": {"result"},
    "tool_aborted": set(),
    "sub_agent_finished": {"outcome"},
    "work_verified": {"reason", "missing"},
    "turn_summarized": {"summary"},
    "history_compacted": {"summary"},
    "effect_failed": {"sentence"},
    "resumed": set(),
    "tool_interrupted": set(),
    "call_restricted": set(),
    "sub_agent_asked": {"questions"},
}
"""The fields of each event that hold what somebody said. A new event, or a new field, has to be added here; until
somebody says that it is a name, it is redacted."""


def kinds_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the classes of values in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for member in get_args(annotation):
        yield from kinds_in(member)


def holds_content(kind: type[BaseModel], name: str) -> bool:
    """Whether this field has a text, or values with such a field."""
    kinds = list(kinds_in(kind.__pydantic_fields__[name].annotation))
    return not kinds or any(holds_content(one, inner) for one in kinds for inner in content_fields(one))


@pytest.fixture(scope="module")
def redaction() -> Redaction:
    """The built-in rules."""
    return Redaction()


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_content_and_names_of_every_event(kind: type[Event]) -> None:
    """J1: no event, and no field, is forgotten."""
    content = {name for name in content_fields(kind) if holds_content(kind, name)}

    assert content == CONTENT[kind.__pydantic_fields__["type"].default]


def test_names_are_fields() -> None:
    """What is left alone exists."""
    assert all(name in kind.__pydantic_fields__ for kind, names in NAMES.items() for name in names)


EXAMPLES: list[Event] = [
    UserMessage(event_id="m", at=AT, text=f"I am {MAIL}", images=(Image.of(PICTURE),)),
    AgentMessage(event_id="m", at=AT, origin="kitchen", text=MAIL),
    DetailsChanged(event_id="m", at=AT, title=f"About {MAIL}"),
    ScheduleChanged(event_id="m", at=AT, schedule=Schedule(every=60, task=f"Write to {MAIL}."), next_wake=AT),
    WakeUp(event_id="m", at=AT, due=AT, text=f"Write to {MAIL}."),
    ToolApproval(event_id="m", at=AT, call_id="c", allowed=True, note=MAIL, arguments={"to": [MAIL]}),
    UserQuestionResponse(
        event_id="m",
        at=AT,
        answers={f"{MAIL}?": MAIL, "Or?": (MAIL,)},
        annotations={f"{MAIL}?": Annotation(notes=MAIL)},
    ),
    LlmResponse(
        effect_id=1,
        at=AT,
        content=MAIL,
        thinking=MAIL,
        tool_calls=(ToolCall(call_id="c", name="mail", arguments=json.dumps({"to": MAIL}), fault=f"{MAIL}?"),),
    ),
    LlmFailed(effect_id=1, at=AT, kind="network", sentence=MAIL),
    MemoryRecalled(effect_id=1, at=AT, block=MAIL, documents=MAIL, recent=(RecentText(role="user", text=MAIL),)),
    AskUserQuestionPending(effect_id=1, at=AT, questions=(UserQuestion(question=f"{MAIL}?"),)),
    ToolComplete(
        effect_id=1,
        at=AT,
        result=ToolResult(
            text=MAIL,
            acts=(
                Speech(text=MAIL),
                WorkComplete(summary=MAIL),
                AgentMail(target="kitchen", text=MAIL),
                SubAgents(tasks=(MAIL,)),
            ),
        ),
    ),
    WorkVerified(effect_id=1, at=AT, passed=False, reason=MAIL, missing=(MAIL,)),
    EffectFailed(effect_id=1, at=AT, kind="internal", sentence=MAIL),
    Opened(event_id="o", at=AT, title=MAIL, messages=(HistoryMessage(role="user", content=MAIL),), repairs=(MAIL,)),
]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.type)
def test_secrets_go(redaction: Redaction, event: Event) -> None:
    """J1: out of every text at every depth; redacted once more, the event is the same."""
    redacted = redacted_event(event, redaction)

    assert not found_in(redacted.to_json())
    assert "[EMAIL]" in redacted.to_json()
    assert redacted_event(redacted, redaction) is redacted


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.type)
def test_an_event_without_secrets_stays_the_same_object(event: Event) -> None:
    """Nothing is copied."""
    assert redacted_event(event, Redaction(rules=[RedactionRule("NEVER", "(?!)")])) is event


def test_names_are_left_alone(redaction: Redaction) -> None:
    """Others refer to them, or the application wrote them."""
    digest = SECRETS["hex"]
    call = ToolCall(call_id=digest, name=digest, provider_id=digest)
    events: list[Event] = [
        LlmResponse(effect_id=1, at=AT, tool_calls=(call,), model=digest, digest=digest),
        ProfileSelected(effect_id=1, at=AT, profile=digest),
        ProfileTransferred(event_id="m", at=AT, profile=digest),
        ScheduleChanged(event_id="m", at=AT, schedule=Schedule(cron=digest, zone=digest, task="Look.")),
        ToolComplete(effect_id=1, at=AT, result=ToolResult(text="", acts=(Transfer(profile=digest),))),
        Opened(event_id=digest, at=AT, system=MAIL, owner=MAIL, metadata={"to": MAIL}, tools=(digest,)),
        ToolComplete(effect_id=1, at=AT, result=ToolResult(text="", acts=(AgentMail(target=digest, text="Hello"),))),
    ]

    assert [redacted_event(event, redaction) for event in events] == events


def test_arguments_stay_json(redaction: Redaction) -> None:
    """J1: value by value, also where a value needs its name to be a secret."""
    arguments = json.dumps({"to": MAIL, "login": {"password": "swordfish", "retries": 3}})
    call = ToolCall(call_id="c", name="mail", arguments=arguments)

    redacted = redacted_event(LlmResponse(effect_id=1, at=AT, tool_calls=(call,)), redaction)

    assert redacted.tool_calls[0].arguments == {"to": "[EMAIL]", "login": {"password": "[PASSWORD]", "retries": 3}}


def test_answers_still_name_their_questions(redaction: Redaction) -> None:
    """The text of a question is redacted alike where it is asked and where it is answered."""
    question = f"[1] Write to {MAIL}, or call {SECRETS['phone']}?"
    asked = AskUserQuestionPending(effect_id=1, at=AT, questions=(UserQuestion(question=question),))
    answered = UserQuestionResponse(event_id="a", at=AT, answers={question: "Yes"})

    (text,) = redacted_event(answered, redaction).answers

    assert text == redacted_event(asked, redaction).questions[0].question


def test_sealed_blocks_with_a_secret_are_dropped(redaction: Redaction) -> None:
    """They are signed by the provider, so no word of them can be replaced."""
    blocks: tuple[dict[str, Any], ...] = ({"type": "thinking", "thinking": MAIL, "signature": "x"},)
    harmless: tuple[dict[str, Any], ...] = ({"type": "thinking", "thinking": "Hm.", "signature": "EqQBCkYI" * 20},)

    assert redacted_event(LlmResponse(effect_id=1, at=AT, opaque=blocks), redaction).opaque == ()
    assert redacted_event(LlmResponse(effect_id=1, at=AT, opaque=harmless), redaction).opaque == harmless


class TestImages:
    """The address of an image cannot be redacted: it would lead nowhere, and each later request would be refused."""

    address = "https://shop.test/a.png?X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027d0445342fe"

    def test_a_message_with_such_an_address_is_refused(self, redaction: Redaction) -> None:
        """The person sends the image itself."""
        with pytest.raises(SecretInAddress):
            redacted_event(UserMessage(event_id="m", at=AT, text="Look", images=(Image.of(self.address),)), redaction)

    def test_a_result_loses_such_an_image(self, redaction: Redaction) -> None:
        """And says so; the others stay."""
        images = (Image.of(PICTURE), Image.of(self.address))
        result = ToolResult(text="Two.", images=images)

        redacted = redacted_event(ToolComplete(effect_id=1, at=AT, result=result), redaction).result

        assert redacted.images == images[:1]
        assert redacted.text == f"Two.\n\n{IMAGE_LEFT_OUT}"


def test_what_is_left_must_be_valid(redaction: Redaction) -> None:
    """Two questions that differ only in their secrets cannot be told apart."""
    questions = tuple(UserQuestion(question=f"Is it {one}@posti.example?") for one in ("anna", "otto"))

    with pytest.raises(ValueError, match="twice"):
        redacted_event(AskUserQuestionPending(effect_id=1, at=AT, questions=questions), redaction)


class TestHistory:
    """Messages that a conversation begins with, in OpenAI's chat format."""

    def redacted(self, redaction: Redaction, **message: Any) -> dict[str, Any]:
        """Return the message as it is stored."""
        opened = Opened(event_id="o", at=AT, messages=(HistoryMessage(**message),))
        return redacted_event(opened, redaction).messages[0].given

    def test_texts_and_arguments_are_content(self, redaction: Redaction) -> None:
        """Ids and names are not."""
        function = {"name": "mail", "arguments": json.dumps({"to": MAIL})}
        call = {"id": SECRETS["hex"], "type": "function", "function": function}

        redacted = self.redacted(
            redaction, role="assistant", content=[{"type": "text", "text": MAIL}], tool_calls=[call]
        )

        assert redacted["content"] == [{"type": "text", "text": "[EMAIL]"}]
        assert redacted["tool_calls"] == [{**call, "function": {**function, "arguments": '{"to": "[EMAIL]"}'}}]

    def test_images_and_sealed_blocks(self, redaction: Redaction) -> None:
        """A file stays, an address with a secret leads nowhere, and a signed block with a secret is left out."""
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in (PICTURE, TestImages.address)]
        blocks = [{"type": "thinking", "thinking": MAIL, "signature": "x"}]

        redacted = self.redacted(redaction, role="assistant", content=parts, thinking_blocks=blocks)

        assert [part["image_url"]["url"] for part in redacted["content"]] == [PICTURE, "[REDACTED]"]
        assert "thinking_blocks" not in redacted
