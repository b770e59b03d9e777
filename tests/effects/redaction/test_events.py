"""Every text of every event is redacted, unless it is the engine's own or the application's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields as fields_of
from datetime import UTC, datetime
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import AwareDatetime, BaseModel, JsonValue

from turnwise import (
    AgentMail,
    FileReference,
    Policy,
    Redaction,
    RedactionRule,
    Speech,
    SubAgents,
    Transfer,
    UserQuestion,
    WorkComplete,
)
from turnwise.effects.redaction.events import (
    FILE_LEFT_OUT,
    GIVEN,
    NAME_HOLDS_SECRET,
    OWN,
    GivenKind,
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
    LlmStopped,
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
from turnwise.states.values.acts import Schedule, SubAgentTask
from turnwise.states.values.messages import HistoryMessage, ProviderFields, ToolCall, ToolResult
from turnwise.states.values.questions import Annotation
from turnwise.states.values.value import Record

from ...support.cases import holds_for
from ...support.secrets import SECRETS, found_in

AT = datetime(2026, 1, 1, tzinfo=UTC)
MAIL = SECRETS["email"]
PICTURE = FileReference(sha256="a" * 64, media_type="image/png", name="menu.png")

CONTENT = {
    "opened": {"title", "messages", "repairs", "schedule"},
    "user_message": {"files", "heard", "settings", "text"},
    "agent_message": {"text"},
    "message_withdrawn": set(),
    "user_question_response": {"answers", "annotations"},
    "tool_approval": {"note", "arguments"},
    "user_cancel": {"heard"},
    "rewound": set(),
    "branch_switched": set(),
    "retry_requested": set(),
    "policy_changed": set(),
    "tools_changed": set(),
    "details_changed": {"title"},
    "schedule_changed": {"schedule"},
    "wake_up": {"text"},
    "profile_transferred": {"profile"},
    "compaction_requested": set(),
    "doubt_resolved": set(),
    "close_requested": set(),
    "profile_selected": {"profile"},
    "memory_recalled": {"block", "recent", "documents", "left_out"},
    "llm_response": {
        "content",
        "thinking",
        "opaque",
        "provider",
        "citations",
        "logprobs",
        "output",
        "tool_calls",
        "finish_reason",
        "model",
    },
    "llm_stopped": {"content", "thinking", "model"},
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
"""The fields of each event that come from outside. A new event, or a new field, has to be added here; until somebody
says that it is the engine's own or the application's own, it is redacted."""

CONTENT["message_edited"] = CONTENT["user_message"]


def kinds_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the classes of values in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for member in get_args(annotation):
        yield from kinds_in(member)


def holds_content(kind: type[BaseModel], name: str) -> bool:
    """Whether this field has a text, or values with such a field."""
    kinds = list(kinds_in(kind.model_fields[name].annotation))
    return not kinds or any(holds_content(one, inner) for one in kinds for inner in content_fields(one))


@pytest.fixture(scope="module")
def redaction() -> Redaction:
    """The built-in rules."""
    return Redaction()


@holds_for("kind", EVENTS)
def test_content_of_every_event(kind: type[Event]) -> None:
    """J1: no event, and no field, is forgotten."""
    content = {name for name in content_fields(kind) if holds_content(kind, name)}

    assert content == CONTENT[kind.model_fields["type"].default]


def test_own_and_given_texts_are_fields() -> None:
    """What is left alone exists."""
    assert all(name in kind.model_fields for kind, names in OWN.items() for name in names)
    assert all(name in content_fields(kind) for kind, name in GIVEN)


EXAMPLES: list[Event] = [
    UserMessage(event_id="m", at=AT, text=f"I am {MAIL}", files=(PICTURE,)),
    AgentMessage(event_id="m", at=AT, origin="kitchen", text=MAIL),
    DetailsChanged(event_id="m", at=AT, title=f"About {MAIL}", system="You are brief."),
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
    LlmStopped(effect_id=1, at=AT, content=MAIL, thinking=MAIL),
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


@holds_for("event", EXAMPLES)
def test_secrets_go(redaction: Redaction, event: Event) -> None:
    """J1: out of every text at every depth; redacted once more, the event is the same."""
    redacted = redacted_event(event, redaction)

    assert not found_in(redacted.to_json())
    assert "[EMAIL]" in redacted.to_json()
    assert redacted_event(redacted, redaction) is redacted


@holds_for("event", EXAMPLES)
def test_an_event_without_secrets_stays_the_same_object(event: Event) -> None:
    """Nothing is copied."""
    assert redacted_event(event, Redaction(rules=[RedactionRule("NEVER", "(?!)")])) is event


def test_own_texts_are_left_alone(redaction: Redaction) -> None:
    """The engine made them, or the application wrote them, and others refer to them."""
    digest = SECRETS["hex"]
    call = ToolCall(call_id=digest, name="look")
    events: list[Event] = [
        LlmResponse(effect_id=1, at=AT, tool_calls=(call,), digest=digest),
        ScheduleChanged(event_id="m", at=AT, schedule=Schedule(cron=digest, zone=digest, task="Look.")),
        Opened(event_id=digest, at=AT, system=MAIL, owner=MAIL, metadata={"to": MAIL}, tools=(digest,)),
        ToolComplete(effect_id=1, at=AT, result=ToolResult(text="", acts=(AgentMail(target=digest, text="Hello"),))),
    ]

    assert [redacted_event(event, redaction) for event in events] == events


NAMED: list[Event] = [
    LlmResponse(effect_id=1, at=AT, model=MAIL, tool_calls=(ToolCall(call_id="c", name=MAIL, fault="There is none."),)),
    LlmStopped(effect_id=1, at=AT, model=MAIL),
    ProfileSelected(effect_id=1, at=AT, profile=MAIL),
    ProfileTransferred(event_id="m", at=AT, profile=MAIL),
    ToolComplete(effect_id=1, at=AT, result=ToolResult(text="", acts=(Transfer(profile=MAIL),))),
    ToolComplete(
        effect_id=1,
        at=AT,
        result=ToolResult(text="", acts=(SubAgents(tasks=(SubAgentTask(text="Go", profile=MAIL, tools=(MAIL,)),)),)),
    ),
]


@pytest.mark.parametrize("event", NAMED, ids=lambda event: event.type)
def test_a_name_stays_only_if_the_application_gave_it(redaction: Redaction, event: Event) -> None:
    """A model may invent a name with a secret in it. The names of the application's own tools, profiles and models are
    not changed, since the calls and choices that name them would lead nowhere."""

    def given(kind: GivenKind, name: str) -> bool:
        return name == MAIL

    assert redacted_event(event, redaction, given) is event
    assert MAIL not in redacted_event(event, redaction).to_json()


def test_a_call_of_a_tool_whose_name_holds_a_secret_has_a_fault(redaction: Redaction) -> None:
    """A server may give a tool such a name. What is left of the name is no tool, so the call says why it never runs;
    a call that has a fault keeps it."""
    calls = (ToolCall(call_id="a", name=f"files:{MAIL}"), ToolCall(call_id="b", name=MAIL, fault="There is none."))

    redacted = redacted_event(LlmResponse(effect_id=1, at=AT, tool_calls=calls), redaction).tool_calls

    assert [call.call_id for call in redacted] == ["a", "b"]
    assert [call.fault for call in redacted] == [NAME_HOLDS_SECRET, "There is none."]


# --- every text field, found by reflection

PLANT = "planted-7391"
PLANTED = Redaction(rules=[RedactionRule("PLANT", PLANT)])

CALL = {"id": PLANT, "type": PLANT, "function": {"name": PLANT, "arguments": PLANT}}
GIVEN_MESSAGE = {"role": "assistant", "content": PLANT, "name": PLANT, "tool_calls": [CALL], PLANT: [PLANT]}

LEAVES: dict[Any, Any] = {
    **{str: PLANT, Any: PLANT, JsonValue: PLANT, AwareDatetime: AT, bool: True, int: 1, float: 1.0, type(None): None},
    Policy: Policy(),
    FileReference: PICTURE,  # an address is tested by itself
    HistoryMessage: HistoryMessage(**GIVEN_MESSAGE),
}
"""What stands in a field of each type."""

COMPOUNDS: dict[Any, Callable[..., list[Any]]] = {
    Literal: lambda first, *_: [first],
    Annotated: lambda kind, *_: planted(kind),
    UnionType: lambda *kinds: [one for kind in kinds for one in planted(kind)],
    Union: lambda *kinds: [one for kind in kinds for one in planted(kind)],
    tuple: lambda *kinds: [tuple(one for kind in kinds if kind is not ... for one in planted(kind))],
    dict: lambda name, member: [{planted(name)[0]: one} for one in planted(member)],
}


def planted(annotation: Any) -> list[Any]:
    """Return values for an annotation that have the plant in every text, at every depth, at least one of each kind.
    They are not validated: a text is looked for whatever value it makes. Fails for a type that is not known here."""
    if annotation in LEAVES:
        return [LEAVES[annotation]]
    if isinstance(annotation, type) and issubclass(annotation, Record):
        kinds = get_type_hints(annotation, include_extras=True)
        return [annotation(**{one.name: planted(kinds[one.name])[0] for one in fields_of(annotation)})]
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return COMPOUNDS[get_origin(annotation)](*get_args(annotation))
    fields = {name: planted(field.annotation) for name, field in annotation.model_fields.items()}
    most = max(map(len, fields.values()), default=1)
    return [
        annotation.model_construct(**{name: values[index % len(values)] for name, values in fields.items()})
        for index in range(most)
    ]


def places_of_plant(value: Any, place: str = "") -> Iterator[str]:
    """Yield where the plant stands: the class and the field that hold it."""
    if isinstance(value, str) and PLANT in value:
        yield place
    elif isinstance(value, HistoryMessage):
        yield from places_of_plant(value.given, "HistoryMessage.given")
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from places_of_plant(getattr(value, name), f"{type(value).__name__}.{name}")
    elif isinstance(value, Record):
        yield from places_of_plant(list(vars(value).values()), place)
    elif isinstance(value, dict | tuple | list):
        for one in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from places_of_plant(one, place)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_no_text_field_of_any_event_keeps_a_secret(kind: type[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text of every event at every depth, whatever it is called, but for the closed list of the engine's and the
    application's own. What the list lets through is let through by name."""
    monkeypatch.setattr("turnwise.effects.redaction.events.exact", lambda event: event)
    own = {f"{one.__name__}.{name}" for one in kinds_of(kind) for base in one.__mro__ for name in OWN.get(base, ())}
    events = planted(kind)

    left = {place for event in events for place in places_of_plant(redacted_event(event, PLANTED))}

    assert left <= own
    assert {place for event in events for place in places_of_plant(event)} - own or not CONTENT[events[0].type]


def kinds_of(kind: type[BaseModel]) -> set[type[BaseModel]]:
    """Return the class and the classes of the values in it."""
    found = {kind}
    for field in kind.model_fields.values():
        for inner in set(kinds_in(field.annotation)) - found:
            found |= kinds_of(inner)
    return found


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


def test_what_a_provider_wrote_for_itself_is_whole_or_not_there(redaction: Redaction) -> None:
    """Fields of the message, those of each call, and the ids of calls."""
    calls = {"call_1_0": {"note": MAIL}, "call_1_1": {"seal": "EqQBCkYI" * 20}}
    made = (ToolCall(call_id="call_1_0", name="a", provider_id=MAIL), ToolCall(call_id="call_1_1", name="a"))
    fields = ProviderFields(family=MAIL, message={"details": [{"text": MAIL}]}, calls=calls)

    redacted = redacted_event(LlmResponse(effect_id=1, at=AT, tool_calls=made, provider=fields), redaction)

    assert redacted.provider == ProviderFields(family=MAIL, calls={"call_1_1": calls["call_1_1"]})
    assert [one.provider_id for one in redacted.tool_calls] == ["", ""]


class TestFiles:
    """The address of a file cannot be redacted: it would lead nowhere, and each later request would be refused."""

    address = "https://shop.test/a.png?X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027d0445342fe"
    file = FileReference(url=address, media_type="image/png")

    def test_a_message_with_such_an_address_is_refused(self, redaction: Redaction) -> None:
        """The person sends the file itself."""
        with pytest.raises(SecretInAddress):
            redacted_event(UserMessage(event_id="m", at=AT, text="Look", files=(self.file,)), redaction)

    def test_the_name_of_a_file_loses_its_secrets(self, redaction: Redaction) -> None:
        """Its digest and its media type stay."""
        file = PICTURE.replace(name=f"{MAIL} menu.png")

        (redacted,) = redacted_event(UserMessage(event_id="m", at=AT, text="", files=(file,)), redaction).files

        assert redacted == file.replace(name="[EMAIL] menu.png")

    def test_a_result_loses_such_a_file(self, redaction: Redaction) -> None:
        """And says so; the others stay."""
        files = (PICTURE, self.file)
        result = ToolResult(text="Two.", files=files)

        redacted = redacted_event(ToolComplete(effect_id=1, at=AT, result=result), redaction).result

        assert redacted.files == files[:1]
        assert redacted.text == f"Two.\n\n{FILE_LEFT_OUT}"


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

    def test_texts_names_and_arguments_are_content(self, redaction: Redaction) -> None:
        """J1: and the ids, which come from elsewhere."""
        function = {"name": "mail", "arguments": json.dumps({"to": MAIL})}
        call = {"id": SECRETS["hex"], "type": "function", "function": function}

        redacted = self.redacted(
            redaction, role="assistant", content=[{"type": "text", "text": MAIL}], tool_calls=[call]
        )

        assert redacted["content"] == [{"type": "text", "text": "[EMAIL]"}]
        function["arguments"] = '{"to": "[EMAIL]"}'
        assert redacted["tool_calls"] == [{**call, "id": "[HEX]"}]

    def test_ids_stay_paired_and_different(self, redaction: Redaction) -> None:
        """A call and its result have the same id; two ids that differ only in their secrets, or look like a label, stay
        two. Redacted once more, they are the same."""
        ids = [f"call-{name}@posti.example" for name in ("anna", "otto")] + ["[EMAIL]"]
        calls = [{"id": one, "type": "function", "function": {"name": MAIL, "arguments": "{}"}} for one in ids]
        results = [{"role": "tool", "tool_call_id": one, "content": "x"} for one in ids]
        messages = ({"role": "assistant", "content": None, "tool_calls": calls}, *results)
        opened = Opened(event_id="o", at=AT, messages=tuple(HistoryMessage(**one) for one in messages))

        redacted = redacted_event(opened, redaction)

        called, *answers = (message.given for message in redacted.messages)
        assert [call["id"] for call in called["tool_calls"]] == [answer["tool_call_id"] for answer in answers]
        assert [call["id"] for call in called["tool_calls"]] == ["[EMAIL] 2", "[EMAIL] 3", "[EMAIL]"]
        assert "posti" not in redacted.to_json()
        assert redacted_event(redacted, redaction) is redacted

    def test_files_and_sealed_blocks(self, redaction: Redaction) -> None:
        """A file stays, an address with a secret leads nowhere, and a signed block with a secret is left out."""
        stored = {"type": "image_url", "image_url": {}, "stored_file": {"sha256": "a" * 64, "name": f"{MAIL} menu.png"}}
        parts = [stored, {"type": "image_url", "image_url": {"url": TestFiles.address}}]
        blocks = [{"type": "thinking", "thinking": MAIL, "signature": "x"}]

        redacted = self.redacted(redaction, role="assistant", content=parts, thinking_blocks=blocks)

        assert redacted["content"] == [
            {**stored, "stored_file": {"sha256": "a" * 64, "name": "[EMAIL] menu.png"}},
            {"type": "image_url", "image_url": {"url": "[REDACTED]"}},
        ]
        assert "thinking_blocks" not in redacted
