"""The rules of a conversation: which models a turn asks, and the presets, each with the rules of its seed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from turnwise.states import (
    AgentMessage,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Empty,
    Idle,
    Limits,
    LlmRequesting,
    ModelSettings,
    ModelSpec,
    NotifyParent,
    Opened,
    OutputField,
    OutputSchema,
    Policy,
    PolicyChanged,
    Profile,
    ProfileSelected,
    Recent,
    RequestLlm,
    Retry,
    SelectProfile,
    SubAgentRules,
    Texts,
    ToolExecuting,
    Verifying,
    presets,
)
from turnwise.states.events import AnyEvent, Event
from turnwise.states.policy import FileRules, Rules, models_of, named_models
from turnwise.states.values.messages import write_message_for_user
from turnwise.testing.strategies import NOON

from ..support.cases import holds_for
from ..support.conversation import (
    Conversation,
    asking,
    call,
    completing,
    mailing,
    question,
    responding,
    spawning,
    talking,
)
from ..support.scenarios.agents_and_flows import COOK, GUIDE, Flow, sent

# --- Which models a turn asks: its profile's own first, then the policy's.


FIRST, SECOND, OWN = ModelSpec(name="first"), ModelSpec(name="second", window=5), ModelSpec(name="own", window=7)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, (FIRST, SECOND)),
        (OWN, (OWN, FIRST, SECOND)),
        (ModelSpec(name="second"), (SECOND, FIRST)),
        (ModelSpec(name="second", window=9), (ModelSpec(name="second", window=9), FIRST)),
    ],
)
def test_the_model_of_the_profile_comes_first(own: ModelSpec | None, expected: tuple[ModelSpec, ...]) -> None:
    """Each model is asked once. The window that a profile does not give is that of the policy's model."""
    policy = Policy(models=(FIRST, SECOND), profiles=(Profile(name="one"), Profile(name="two", model=own)))

    assert models_of(policy, "two") == expected
    assert models_of(policy, "one") == models_of(policy, "") == (FIRST, SECOND)


def test_all_models_that_a_policy_names() -> None:
    """Its own and those of its profiles, each name once."""
    profiles = (Profile(name="one", model=OWN), Profile(name="two", model=ModelSpec(name="second")))

    assert named_models(Policy(models=(FIRST, SECOND), profiles=profiles)) == (FIRST, SECOND, OWN)


def test_a_name_is_enough() -> None:
    """A name stands for a model without a known window, and is written as such."""
    assert Profile(name="one", model="own").model == ModelSpec(name="own")
    assert (
        Policy.model_validate_json(Policy(profiles=(Profile(name="one", model=OWN),)).model_dump_json())
        .profiles[0]
        .model
        == OWN
    )


OUTPUT = OutputSchema(json_schema={"type": "object"})

ADDED_LATER: tuple[tuple[Rules, dict[str, object]], ...] = (
    (
        Policy(),
        {
            "describe_tools": True,
            "describe_agents": True,
            "documents": True,
            "sub_agents": SubAgentRules(depth=2),
            "relay_deadline": 60.0,
            "settings": ModelSettings(seed=1),
            "keep_thinking": 3,
            "output_retries": 0,
            "output_reply": OutputField(field="summary"),
            "files": FileRules(number=0),
            "max_result": 1_000,
            "clear_results": None,
        },
    ),
    (
        ModelSettings(),
        {
            **{"tool_choice": "required", "parallel_tool_calls": False, "stop": ("END",)},
            **{"logprobs": True, "top_logprobs": 3, "strict": True, "cache": "auto", "server_tools": ("web_search",)},
        },
    ),
    (Profile(name="one"), {"model": OWN, "description": "Cooks.", "settings": ModelSettings(seed=1), "output": OUTPUT}),
    (
        Texts(),
        {
            **{"transcription_note": "", "tool_protocol": "Call.", "tools_guidance": "Look.", "wake_up": "Now."},
            **dict.fromkeys(("too_many_children", "too_deep", "unknown_profile", "nothing_left"), "No."),
            **dict.fromkeys(("act_not_for_role", "question_not_for_role"), "No."),
            **dict.fromkeys(("claim_missing", "fallback_result", "imported", "overdue"), "Go on."),
            **{"words_withheld": "Refused.", "instructions_refused": "Refused.", "stopped": "Stopped."},
            **{"heard": "Heard.", "unheard": "Unheard."},
            **dict.fromkeys(("foreground_guidance", "background_guidance", "sub_agent_guidance"), ""),
            **dict.fromkeys(
                ("user_message_guidance", "agent_message_guidance", "transfer_guidance", "spawn_guidance"), ""
            ),
            **dict.fromkeys(("plain_text_reply", "plain_text_fallback", "plain_text_thought"), ""),
            **dict.fromkeys(("output_noted", "output_taken", "output_invalid", "output_missing"), "Noted."),
            **dict.fromkeys(("output_failed", "output_tool", "output_guidance"), "Answer."),
            **dict.fromkeys(("result_cut", "result_cleared"), "More."),
        },
    ),
    (Empty(), {"until_limit": True}),
)
"""Rules that were added after logs had been written, each with a value that is not its default."""


@pytest.mark.parametrize(("rules", "changes"), ADDED_LATER)
def test_rules_that_were_added_later_are_left_out_where_they_hold_their_default(
    rules: Rules, changes: dict[str, object]
) -> None:
    """Rules from before are written as they were; what an application changes is written and read back."""
    changed = rules.replace(**changes)

    assert set(rules.ADDED) == set(changes)
    assert not changes.keys() & rules.model_dump().keys()
    assert changes.keys() <= changed.model_dump().keys()
    assert type(rules).model_validate_json(changed.model_dump_json()) == changed


AS_FIRST_WRITTEN = (4684, "5cd27256c83c0c67")
"""The length and the digest of the default rules, as 0.1.0 writes them."""


def test_the_default_rules_are_written_as_they_always_were() -> None:
    """To the byte: the first event of a log is written again when the log is exported, and its digest must be that of
    the log. A text or a rule that is added must therefore stand in `ADDED`."""
    written = Policy().model_dump_json().encode()

    assert (len(written), sha256(written).hexdigest()[:16]) == AS_FIRST_WRITTEN


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1}, {"temperature": math.nan}, {"max_tokens": 0}, {"top_p": 1.5}, {"reasoning_effort": ""}],
)
def test_settings_that_no_provider_takes_are_refused(wrong: dict[str, object]) -> None:
    """A parameter outside its range is refused where the profile is made."""
    with pytest.raises(ValidationError):
        Profile.model_validate({"name": "one", "settings": wrong})


def conversation_with(**rules: object) -> Conversation:
    """A conversation whose second profile has a model of its own."""
    profiles = (Profile(name="one"), Profile(name="two", model=OWN))
    return Conversation(models=(FIRST, SECOND), profiles=profiles, **rules)


def asked_models(conversation: Conversation) -> list[str]:
    """The models that were asked so far."""
    effects = [effect for entry in conversation.history.log for effect in entry.effects]
    return [effect.model for effect in effects if isinstance(effect, RequestLlm)]


def test_a_turn_asks_the_model_of_its_profile_and_falls_back_to_the_others() -> None:
    """One after the other, until none is left."""
    conversation = conversation_with(route=True, retry=Retry(attempts=1))
    conversation.says()
    conversation.happens(ProfileSelected, effect_id=conversation.flying(SelectProfile), profile="two")

    for _ in range(3):
        conversation.model_fails()

    assert asked_models(conversation) == ["own", "first", "second"]
    assert conversation.ended.status == "failed"


def test_the_first_profile_has_the_models_of_the_policy() -> None:
    """It has none of its own."""
    conversation = conversation_with()
    conversation.says()

    assert asked_models(conversation) == ["first"]


def test_the_window_is_that_of_the_model_that_is_asked() -> None:
    """The history is compacted for the small window of the profile's own model."""
    conversation = conversation_with(route=True)
    conversation.says()
    conversation.happens(ProfileSelected, effect_id=conversation.flying(SelectProfile), profile="two")

    conversation.model_calls("look", usage={"input_tokens": 7})

    assert conversation.state.type == "compacting"


# --- The presets: each holds the rules of its seed, and its story runs through the pure machine.


TEXTS = Texts()

RULES: dict[Callable[[], Policy], dict[str, Any]] = {
    # A question ends the turn when it is cancelled, its answer is JSON, calls beside it keep their place.
    presets.assistant: {
        "text": "auto",
        "ends_on": "text",
        "parallel": 1,
        "when_busy": "refuse",
        "questions.alongside": "in_order",
        "questions.answer": "json",
        "questions.cancel": "idle",
        "questions.partial": False,
        "questions.deadline": None,
        "on_failure": "fail",
        "dialogue": "transcript",
        "window": 0.9,
        "verify": 0,
        "summarize": False,
        "retry.attempts": 3,
    },
    # Redaction, a router, recall, five minutes of dialogue, eight requests with fallback prompts, markers taken out.
    presets.reply_flow: {
        "text": "auto",
        "ends_on": "text",
        "limits.requests": 8,
        "limits.last": "plain",
        "repeats.window": 8,
        "dialogue": Recent(seconds=300),
        "empty.in_a_row": 1,
        "plain_retry": 1,
        "on_failure": "reply",
        "recall": True,
        "documents": True,
        "describe_tools": True,
        "route": True,
        "fresh_context": True,
        "transcription_note": True,
        "redact": True,
        "marker": "TOOL",
        "empty.until_limit": True,
    },
    # Only what is said by tool is delivered, the last of it; text is the fallback; completion is claimed and verified.
    presets.explicit_response: {
        "text": "fallback",
        "speech.keep": "last",
        "speech.empty": "error",
        "speech.never_fail": False,
        "ends_on": "work_complete",
        "silent": "fallback",
        "nudges": 2,
        "verify": 5,
    },
    # Text is thought; each talk is delivered as it comes, an empty one too; the tool never fails; silence is allowed.
    presets.talk: {
        "text": "thought",
        "ends_on": "text",
        "speech.keep": "each",
        "speech.empty": "deliver",
        "speech.never_fail": True,
        "silent": "allow",
        "verify": 0,
        "texts.acknowledgement": "Message delivered to user",
    },
    # It has a user, and must present to that user what background agents send.
    presets.foreground: {"text": "auto", "when_busy": "queue", "relay": "nudge_then_deliver"},
    # Its text is for nobody.
    presets.background: {"text": "thought", "when_busy": "queue", "silent": "allow"},
    # It answers the turn that started it, and gets one last request without tools.
    presets.sub_agent: {
        "text": "thought",
        "when_busy": "queue",
        "limits.requests": 20,
        "limits.last": "answer_now",
        "on_failure": "reply",
    },
}
"""What the seeds and the cases say of each."""


def rule(policy: Policy, path: str) -> Any:
    """The rule at this path."""
    value: Any = policy
    for name in path.split("."):
        value = getattr(value, name)
    return value


class TestTheRules:
    """Each preset holds the rules of its seed."""

    @holds_for(
        ("preset", "path", "wanted"),
        [(preset, path, wanted) for preset, rules in RULES.items() for path, wanted in rules.items()],
    )
    def test_a_rule_is_what_the_seed_says(self, preset: Callable[[], Policy], path: str, wanted: Any) -> None:
        """Seeds 000 to 004 disagree, so each has rules of its own."""
        assert rule(preset(), path) == wanted

    def test_every_preset_is_tested(self) -> None:
        """The expected rules of every preset are listed here."""
        functions = inspect.getmembers(presets, inspect.isfunction)

        assert {function for _, function in functions if function.__module__ == presets.__name__} == RULES.keys()

    def test_no_two_presets_are_the_same(self) -> None:
        """Every two presets differ."""
        written = {preset().to_json() for preset in RULES}

        assert len(written) == len(RULES)


class TestAsData:
    """Presets are policies like any other: frozen, exact, and stored in full."""

    @pytest.mark.parametrize("preset", RULES)
    def test_a_preset_survives_being_written_and_read(self, preset: Callable[[], Policy]) -> None:
        """Law 2: a preset that is written and read is equal, with its defaults left out and in full."""
        policy = preset()

        assert Policy.model_validate_json(policy.to_json()) == policy
        assert Policy.model_validate_json(policy.model_dump_json()) == policy

    @holds_for("kind", [Opened, PolicyChanged])
    @holds_for("preset", RULES)
    def test_an_event_brings_it_whole(self, preset: Callable[[], Policy], kind: type[Opened | PolicyChanged]) -> None:
        """An event writes the policy in full, so that a default that changes later does not change the rules of a
        log. Only rules that were added since the first logs are left out where they hold their default."""
        event = kind(event_id="1", at=NOON, policy=preset())
        written = event.to_json()

        read: Event = TypeAdapter(AnyEvent).validate_json(written)

        assert read == event
        assert all(f'"{name}"' in written for name in Policy.model_fields if name not in Policy.ADDED)

    @pytest.mark.parametrize("preset", RULES)
    def test_two_hosts_never_share_one(self, preset: Callable[[], Policy]) -> None:
        """Each call returns a policy of its own."""
        with pytest.raises(ValidationError):
            preset().parallel = 2  # type: ignore[misc]

        assert preset() == preset()

    @pytest.mark.parametrize("preset", RULES)
    def test_a_conversation_holds_the_rules_it_began_with(self, preset: Callable[[], Policy]) -> None:
        """The context after the first event holds the preset."""
        flow = Flow(preset())

        assert flow.history.context.policy == preset()


class TestTheAssistant:
    """The preset of seed 002."""

    def test_it_reads_asks_and_writes(self) -> None:
        """P13: one response with a question in the middle gives one round with a result for each call, and a text ends
        the turn."""
        flow = Flow(presets.assistant())
        flow.says("A table for two?")
        flow.model_calls("find_tables", asking(), "book", content="Let me see.")
        flow.tool_ends("find_tables", "6:30 PM, 8:15 PM")
        flow.tool_asks("ask", question("When?", "6:30 PM", "8:15 PM"))
        flow.rests_in(AwaitingUserResponse)
        flow.answers({"When?": "6:30 PM"})
        flow.tool_ends("book", "Booked")

        flow.model_says("Booked for 6:30 PM.")

        assert list(flow.results()) == ["find_tables", "ask", "book"]
        assert flow.delivered() == ["Booked for 6:30 PM."]


class TestTheReplyFlow:
    """J18: the three flows of seed 001."""

    def begun(self, text: str) -> Flow:
        """A reply flow in its first request, with a profile chosen and something recalled."""
        flow = Flow(presets.reply_flow(), profiles=(GUIDE, COOK))
        flow.begins(text, block="They live in London.")
        return flow

    def search(self, flow: Flow, query: str, result: str, thinking: str = "") -> None:
        """The model searches the web."""
        made = call("webSearch", call_id=query, arguments=f'{{"query": "{query}"}}')
        flow.model_calls(made, thinking=thinking)
        flow.tool_ends(query, result)

    def test_a_single_tool(self) -> None:
        """J18: for the weather, one search and one answer take two requests."""
        flow = self.begun("How is the weather?")
        self.search(flow, "London weather today", "18 degrees, sunny")

        flow.model_says("It is 18 degrees and sunny.")

        assert flow.delivered() == ["It is 18 degrees and sunny."]
        assert len(flow.requests()) == 2
        assert {(request.profile, *flow.words(request.memory)) for request in flow.requests()} == {
            ("cook", "They live in London.")
        }

    def test_planning_in_several_steps(self) -> None:
        """J18: a table at seven is taken, so another time is offered in a text, which ends the turn."""
        flow = self.begun("Sushi for two at seven")
        flow.model_calls(call("check", arguments='{"time": "19:00"}'), thinking="First see what is free.")
        flow.tool_ends("check", "fully booked; free at 18:30 and 20:15")

        flow.model_says("Seven is taken. 6:30 or 8:15?", thinking="Offer the others.")

        flow.rests_in(Idle)
        assert flow.delivered() == ["Seven is taken. 6:30 or 8:15?"]
        assert "Offer" not in "".join(flow.delivered())

    def test_research_in_several_rounds(self) -> None:
        """J18: three searches for different things, with thinking in between, take four requests."""
        flow = self.begun("Compare the phones")
        for query in ("comparison", "price", "reviews"):
            self.search(flow, query, f"about {query}", thinking=f"I need the {query}.")

        flow.model_says("Here is how they compare.")

        assert list(flow.results().values()) == ["about comparison", "about price", "about reviews"]
        assert (len(flow.requests()), flow.delivered()) == (4, ["Here is how they compare."])


class TestExplicitResponses:
    """The preset of seed 000."""

    def test_read_me_it(self) -> None:
        """S6: the speech is delivered, and the status text after it is not."""
        flow = Flow(presets.explicit_response())
        flow.says("Read me it")
        flow.model_calls(responding(), content="I will read all seven.")
        flow.tool_responds("respond", "One. Two. Three. Four. Five. Six. Seven.")
        flow.model_calls(completing())
        flow.tool_claims("complete", "Read the thread aloud.")
        flow.rests_in(Verifying)
        assert flow.delivered() == []

        flow.verifier_says(True)

        assert flow.delivered() == ["One. Two. Three. Four. Five. Six. Seven."]
        assert flow.ended.status == "completed"

    def test_work_that_is_never_claimed(self) -> None:
        """S10: after two reminders the turn ends with the fallback text."""
        flow = Flow(presets.explicit_response())
        flow.says("Read me it")

        nudges = []
        for _ in range(3):
            flow.model_says("Here it is.")
            nudges.append(flow.nudge() if isinstance(flow.state, LlmRequesting) else "ended")

        assert nudges == [TEXTS.nudge, TEXTS.nudge, "ended"]
        assert (flow.ended.status, flow.delivered()) == ("incomplete", ["Here it is."])


class TestTalking:
    """The preset of seed 004."""

    def test_talk_work_talk(self) -> None:
        """B1, B2: speech is delivered at once and in order, and the text is not delivered."""
        flow = Flow(presets.talk())
        flow.says("Clean up")
        flow.model_calls(talking("first"), "bash", talking("second"), content="I will tell them.")
        flow.tool_talks("first", "I begin.")
        assert flow.delivered() == ["I begin."]
        flow.tool_ends("bash", "removed 3 files")
        flow.tool_talks("second", "Three files are gone.")

        flow.model_says("They know now.")

        flow.rests_in(Idle)
        assert flow.delivered() == ["I begin.", "Three files are gone."]
        assert not flow.ended.silent

    def test_a_turn_without_a_word(self) -> None:
        """B6: a turn without speech delivers nothing and is silent."""
        flow = Flow(presets.talk())
        flow.says("Clean up")

        flow.model_says("I would rather not.")

        assert (flow.delivered(), flow.ended.silent) == ([], True)


class TestForegroundAndBackground:
    """The presets of seed 003: an agent with a user, and one that works for it."""

    def test_a_message_finds_its_way_to_the_user(self) -> None:
        """D1, D7, D12: a message of the background agent begins a turn of the foreground agent, which passes it on in
        its own words."""
        front, back = Flow(presets.foreground()), Flow(presets.background(), role="background")
        front.says("Build it, please")
        back.agent_says("Build it.", origin="front")
        back.model_calls(mailing())

        back.tool_mails("mail", "3 files changed: a, b, c", "front", audience="user")
        back.model_says("I told the foreground.")
        (mail,) = back.mail()
        (text,) = back.words(mail.said)
        front.happens(AgentMessage, origin="back", text=text, audience=mail.audience, silent=mail.silent)
        front.model_says("It is being built.")
        assert sent(front)[-1] == write_message_for_user("3 files changed: a, b, c", "back")
        front.model_says("Three files have changed.")

        assert back.delivered() == []
        assert front.delivered() == ["It is being built.", "Three files have changed."]


class TestReplace:
    """An application changes single rules of a preset."""

    def test_it_is_the_preset_but_for_that(self) -> None:
        """The result equals a policy that was written so from the beginning, with the same fields set."""
        changed = presets.talk().replace(silent="nudge", limits=Limits().replace(requests=3))

        assert changed == Policy(**{**dict(presets.talk()), "silent": "nudge", "limits": Limits(requests=3)})
        assert changed.model_fields_set == presets.talk().model_fields_set | {"silent", "limits"}

    @pytest.mark.parametrize(
        "change",
        [lambda: presets.talk().replace(silnt="nudge"), lambda: presets.talk().replace(silent="shout"),
         lambda: Limits().replace(requests=0), lambda: Texts().replace(nudge=1)],
    )  # fmt: skip
    def test_what_is_no_rule_is_refused(self, change: Callable[[], Any]) -> None:
        """An unknown rule is refused, by the name of the field."""
        with pytest.raises(ValidationError, match=r"silnt|silent|requests|nudge"):
            change()


class TestSubAgents:
    """P24, P25: a task that a turn hands to a sub-agent."""

    def test_a_task_finds_its_way_back(self) -> None:
        """P25: the sub-agent's last text is its result, and part of the result of the call that started it."""
        parent, child = Flow(presets.assistant()), Flow(presets.sub_agent(), role="sub_agent")
        parent.says("What is the weather?")
        parent.model_calls(spawning())
        parent.tool_spawns("spawn", "Look up the weather.")
        parent.rests_in(AwaitingSubAgents)
        (task,) = parent.children()

        child.says(task)
        child.model_calls("look")
        child.rests_in(ToolExecuting)
        child.tool_ends("look", "18 degrees")
        child.model_says("It is 18 degrees.")
        (told,) = (effect for effect in child.step.effects if isinstance(effect, NotifyParent))
        parent.child_finishes(task, *child.words(told.said), status=told.status)

        assert RequestLlm in parent.wanted()
        assert "It is 18 degrees." in parent.results()["spawn"]
        assert child.delivered() == []
