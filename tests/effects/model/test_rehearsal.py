"""The rehearsal model as an engine meets it: an `Llm` without a client library, a key or a network, which replies to
any request by rules, without a script.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, LiteLlm, ModelSpec
from turnwise.effects.model.performers.verification import read_verdict
from turnwise.effects.model.port import Llm, ModelAnswer, ModelRequest, Purpose, Token
from turnwise.effects.model.rehearsal import (
    AFTER_SPEAKING,
    ASK,
    CONDENSED,
    INTRODUCTION,
    SUMMARY,
    RehearsalLlm,
    fill_parameters,
    options_in,
    reply_to,
    says,
)
from turnwise.states.policy import Texts
from turnwise.states.values.questions import AskUserQuestionInput

from ...support.cases import holds_for
from ...support.scenarios.rehearsals import Talk, calls_of, tool
from ...support.servers.openai_server import violations

HELLO = ({"role": "user", "content": "Hello"},)
WEATHER = {
    "type": "function",
    "function": {"name": "check_weather", "description": "What the weather will be like.", "parameters": {}},
}


async def answer_to(purpose: Purpose) -> ModelAnswer:
    """What it answers to a request for this purpose."""
    return await RehearsalLlm(delay=0).complete(ModelRequest("rehearsal", HELLO, purpose=purpose), lambda _: None)


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
FIND_TABLE = tool("find_table", "Look for a free table.", cuisine=TEXT, time=TEXT, party=NUMBER)
CHECK_WEATHER = tool("check_weather", "What the weather will be like.", day=TEXT)
QUESTION = tool(ASK, "Ask the user.", questions={"type": "array", "items": {"type": "object"}})
DINNER = "A table for two tonight, somewhere Japanese, and will I need an umbrella?"
TABLES = '["Sakura, 6:30 PM", "Koi, 8:00 PM"]'

SERVER_FORECAST = tool("weather_forecast_cbf1ea3f", "Look up the weather.", place=TEXT)


def offered(*names: str) -> list[dict[str, Any]]:
    """Tools of these names, as a request lists them."""
    return [{"type": "function", "function": {"name": name, "description": "", "parameters": {}}} for name in names]


class TestThePort:
    """It is a model like any other."""

    def test_it_fills_the_port(self) -> None:
        """Its name is the one by which an engine chooses it."""
        assert isinstance(RehearsalLlm(), Llm)
        assert RehearsalLlm().name == "rehearsal"

    async def test_it_streams_word_by_word(self) -> None:
        """The tokens, joined, are the content, and the usage counts them."""
        shown: list[Token] = []

        answer = await RehearsalLlm(delay=0).complete(ModelRequest("rehearsal", HELLO), shown.append)

        assert len(shown) > 10
        assert "".join(token.text for token in shown) == answer.content
        assert answer.usage.output_tokens == len(shown)

    async def test_a_call_has_an_id_and_json_arguments(self) -> None:
        """As every provider sends them."""
        request = ModelRequest("rehearsal", ({"role": "user", "content": "The weather?"},), (WEATHER,))

        answer = await RehearsalLlm(delay=0).complete(request, lambda _: None)

        (call,) = answer.tool_calls
        assert (call.id, call.name, call.arguments) == ("call_0", "check_weather", "{}")
        assert answer.finish_reason == "tool_calls"

    async def test_it_calls_nothing_when_calls_are_not_allowed(self) -> None:
        """`tool_choice="none"` lists the tools and allows no call."""
        request = ModelRequest("rehearsal", ({"role": "user", "content": "The weather?"},), (WEATHER,), "none")

        answer = await RehearsalLlm(delay=0).complete(request, lambda _: None)

        assert answer.tool_calls == ()

    async def test_it_can_be_cancelled_between_two_words(self) -> None:
        """A cancel does not wait for the end of the answer."""
        spoke = asyncio.Event()
        model = RehearsalLlm(delay=0.01)
        task = asyncio.create_task(model.complete(ModelRequest("rehearsal", HELLO), lambda _: spoke.set()))
        await spoke.wait()

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_half_a_character_is_replaced(self) -> None:
        """A lone surrogate, as a tool's JSON may hold one, could be neither stored nor shown."""
        shown: list[Token] = []
        request = ModelRequest("rehearsal", ({"role": "user", "content": "half \ud83d"},))

        await RehearsalLlm(delay=0).complete(request, shown.append)

        assert "half �" in "".join(token.text for token in shown)


class TestPurposes:
    """Requests of the engine itself are recognised by their purpose."""

    async def test_it_accepts_every_claim_and_says_so(self) -> None:
        """S11: the answer to a check is a verdict that can be read."""
        verdict = read_verdict((await answer_to("check")).content)

        assert verdict.passed
        assert "rehearsal" in (verdict.reason or "")

    @pytest.mark.parametrize(("purpose", "text"), [("summarize", SUMMARY), ("condense", CONDENSED)])
    async def test_it_says_that_it_cannot_summarize(self, purpose: Purpose, text: str) -> None:
        """S12: in a sentence, for a turn as for a long history."""
        assert (await answer_to(purpose)).content == text


class TestTheEngine:
    """How an engine chooses it."""

    async def test_it_is_chosen_by_name_also_in_a_spec(self, database: str) -> None:
        """A `ModelSpec` gives it a window."""
        async with Engine.open(database, model=ModelSpec(name="rehearsal", window=50_000)) as engine:
            conversation = await engine.create()

            assert conversation.policy.models == (ModelSpec(name="rehearsal", window=50_000),)

    def test_litellm_does_not_know_it(self) -> None:
        """It is no provider of litellm's."""
        with pytest.raises(ConfigurationError):
            LiteLlm("rehearsal").check()

    @pytest.mark.slow
    def test_a_conversation_with_it_imports_no_client_library(self) -> None:
        """A program that uses it starts at once: litellm's import takes seconds."""
        program = (
            "import asyncio, sys\n"
            "from turnwise import Engine\n"
            "async def talk():\n"
            "    async with Engine.open('sqlite://') as engine:\n"
            "        await engine.check()\n"
            "        turn = await (await engine.create()).send('Hello')\n"
            "        assert turn.status == 'completed', turn\n"
            "asyncio.run(talk())\n"
            "assert not sys.modules.keys() & {'litellm', 'openai', 'httpx', 'aiohttp'}\n"
        )

        subprocess.run([sys.executable, "-c", program], check=True, timeout=200)


class TestADinner:
    """Two tools, a question, an answer, a reply: the first conversation of a new user."""

    def test_the_tool_of_a_server_is_called_by_its_name_without_the_fingerprint(self) -> None:
        """J17: in what the model writes; the call has the name that was offered."""
        talk = Talk(SERVER_FORECAST)

        called, told = talk.say("The weather in Turku?"), talk.give("Rain.")

        assert called.content.endswith("Let me use weather_forecast.")
        assert called.tool_calls[0].name == "weather_forecast_cbf1ea3f"
        assert told.content == "Forecast: Rain."

    def test_it_calls_the_tools_that_the_user_mentions(self) -> None:
        """Both in one response, in the order in which they were mentioned."""
        reply = Talk(CHECK_WEATHER, FIND_TABLE, QUESTION).say(DINNER)

        assert calls_of(reply) == [
            ("find_table", {"cuisine": "Japanese", "time": "tonight", "party": 2}),
            ("check_weather", {"day": "tonight"}),
        ]

    def test_it_asks_which_result_the_user_wants(self) -> None:
        """With a valid question whose options are taken from the result."""
        talk = Talk(FIND_TABLE, CHECK_WEATHER, QUESTION)
        talk.say(DINNER)

        reply = talk.give(TABLES, "Rain from nine; take an umbrella.")

        ((name, arguments),) = calls_of(reply)
        (question,) = AskUserQuestionInput.model_validate(arguments).questions
        assert (name, question.header) == (ASK, "Table")
        assert [option.label for option in question.options] == ["Sakura, 6:30 PM", "Koi, 8:00 PM"]

    @pytest.mark.parametrize(
        "answered",
        [
            '{"answers": {"Which table would you like?": "Koi, 8:00 PM"}}',
            "Question: Which table would you like?\nAnswer: Koi, 8:00 PM\nNotes: By the window",
        ],
        ids=["json", "readable"],
    )
    def test_it_reports_the_choice_and_the_other_results(self, answered: str) -> None:
        """In either of the shapes in which a model receives an answer; every request on the way is valid."""
        talk = Talk(FIND_TABLE, CHECK_WEATHER, QUESTION)
        talk.say(DINNER)
        talk.give(TABLES, "Rain from nine; take an umbrella.")

        reply = talk.give(answered)

        assert reply == says("You chose Koi, 8:00 PM.\nWeather: Rain from nine; take an umbrella.")
        assert violations({"model": "rehearsal", "messages": talk.messages, "tools": list(talk.tools)}) == []

    def test_it_goes_on_when_the_user_declines_to_answer(self) -> None:
        """P17: the result of a declined question holds no choice."""
        talk = Talk(FIND_TABLE, CHECK_WEATHER, QUESTION)
        talk.say(DINNER)
        talk.give(TABLES, "Dry.")

        reply = talk.give("The user declined to answer. Use your own judgment and go on.")

        assert reply.content == "You left the choice open.\nWeather: Dry."

    def test_it_lists_the_options_when_it_cannot_ask(self) -> None:
        """Without the tool for questions."""
        talk = Talk(FIND_TABLE)
        talk.say(DINNER)

        reply = talk.give(TABLES)

        assert reply.content == "Table: Sakura, 6:30 PM; Koi, 8:00 PM"

    def test_the_next_message_starts_over(self) -> None:
        """Earlier results do not keep it from calling tools again."""
        talk = Talk(FIND_TABLE, CHECK_WEATHER)
        talk.say(DINNER)
        talk.give(TABLES, "Dry.")

        reply = talk.say("And the weather tomorrow?")

        assert calls_of(reply) == [("check_weather", {"day": "tomorrow"})]
        assert INTRODUCTION not in reply.content


class TestAnyConversation:
    """The rules work for any tools and any message."""

    def test_the_first_reply_says_that_it_is_a_rehearsal(self) -> None:
        """And how to use a real model; later replies do not repeat it."""
        talk = Talk()

        first, second = talk.say("Hello"), talk.say("And now?")

        assert first.content.startswith(INTRODUCTION)
        assert "OPENAI_API_KEY" in INTRODUCTION and "--model openai/gpt-4.1-mini" in INTRODUCTION
        assert INTRODUCTION not in second.content

    def test_without_tools_it_repeats_the_message(self) -> None:
        """In any script."""
        assert "“Grüße, 世界 😀”" in Talk().say("Grüße, 世界 😀").content

    def test_it_names_the_tools_that_it_could_use(self) -> None:
        """When the user mentions none of them."""
        reply = Talk(CHECK_WEATHER, QUESTION).say("Tell me a joke")

        assert calls_of(reply) == []
        assert "check_weather" in reply.content and ASK not in reply.content

    def test_it_names_the_parameters_that_are_still_needed(self) -> None:
        """When the user mentions a tool and leaves one of its parameters open."""
        talk = Talk(CHECK_WEATHER, FIND_TABLE)

        vague, complete = talk.say("table for 2 please"), talk.say("A Thai table for 2, at noon")

        assert calls_of(vague) == []
        assert "To use find_table I also need to know: time." in vague.content
        assert calls_of(complete) == [("find_table", {"cuisine": "Thai", "time": "noon", "party": 2})]


class TestSpeakingByTool:
    """A tool for speaking to the user is used where one is offered."""

    @pytest.mark.parametrize(
        ("tools", "wanted"),
        [
            (["talk"], [("talk", "message")]),
            (["respond_to_user"], [("respond_to_user", "text")]),
            (["speak_to_user", "mark_work_complete"], [("speak_to_user", "text"), ("mark_work_complete", "summary")]),
        ],
    )
    def test_the_reply_is_the_argument_of_the_tool(self, tools: list[str], wanted: list[tuple[str, str]]) -> None:
        """With a claim of completed work behind it where that is offered; the text beside the calls is a thought."""
        reply = reply_to([{"role": "user", "content": "hello"}], offered(*tools))

        assert [(name, *arguments) for name, arguments in calls_of(reply)] == wanted
        assert "You said: “hello”" in next(iter(calls_of(reply)[0][1].values()))
        assert "hello" not in reply.content

    @pytest.mark.parametrize(
        "name", ["nudge", "speak", "answer_missing", "relay", "fallback", "claim_missing", "fallback_result"]
    )
    def test_a_reminder_is_not_taken_for_the_users_words(self, name: str) -> None:
        """S10: it answers the user's own message, and the results since that message still count."""
        result = {"role": "tool", "tool_call_id": "1", "content": "a bird"}
        call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        hello, nudge = {"role": "user", "content": "hello"}, {"role": "user", "content": getattr(Texts(), name)}

        plain = reply_to([hello, {"role": "assistant", "content": "Hm."}, nudge], ())
        looked = reply_to([hello, {"role": "assistant", "content": "", "tool_calls": [call]}, result, nudge], ())

        assert plain.content.startswith("You said: “hello”")
        assert looked.content == "Look: a bird"

    def test_after_speaking_it_ends_the_turn(self) -> None:
        """It does not repeat by text what it said by tool."""
        call = {"id": "1", "type": "function", "function": {"name": "talk", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "ok"},
        ]

        assert reply_to(messages, offered("talk")) == says(AFTER_SPEAKING)

    def test_a_speaking_tool_is_never_called_because_the_user_mentions_it(self) -> None:
        """It would be called without anything to say."""
        reply = reply_to([{"role": "user", "content": "Talk about work complete"}], offered("talk", "respond_to_user"))

        assert "There is no tool I could use." in str(calls_of(reply))


class TestParameters:
    """Arguments for a JSON schema."""

    @holds_for(
        ("schema", "said", "value"),
        [
            ({"type": "integer"}, "for twelve at 8 pm", 12),
            ({"type": "integer"}, "4 of us, at 6:30", 4),
            ({"type": "integer"}, "for many", None),
            ({"type": "string", "enum": ["red", "white"]}, "A glass of White, please", "white"),
            ({"type": "string", "enum": ["red", "white"]}, "A glass of water", None),
            ({"type": "boolean"}, "with a quiet corner", True),
            ({"type": "boolean"}, "not a quiet corner", False),
            ({"type": "boolean"}, "anywhere", False),
            ({"type": "string"}, "I live in Łódź now", "Łódź"),
            ({"type": "string"}, "a place called “The Blue Door”", "The Blue Door"),
            ({"type": "string"}, "somewhere japanese", "japanese"),
            ({"type": "string"}, "surprise me", "surprise me"),
            ({"type": "object"}, "anything", None),
        ],
    )
    def test_a_parameter_is_filled_by_its_type(self, schema: dict[str, Any], said: str, value: Any) -> None:
        """A value that the words do not give is not made up."""
        arguments, _ = fill_parameters({"properties": {"quiet": schema}}, said)

        assert arguments == ({} if value is None else {"quiet": value})

    def test_an_unfilled_required_parameter_is_missing(self) -> None:
        """The tool cannot be called."""
        schema = {"properties": {"day": {"type": "string"}}, "required": ["day"]}

        assert fill_parameters(schema, "Will it rain?") == ({}, ["day"])


class TestOptions:
    """Options to choose from."""

    @holds_for(
        ("text", "labels"),
        [
            ('["a", "b", "c", "d", "e"]', ["a", "b", "c", "d"]),
            ('[{"name": "Koi", "time": "8 PM"}, {"name": "Sakura", "time": "6 PM"}]', ["Koi", "Sakura"]),
            ('{"tables": ["a", "b"]}', ["a", "b"]),
            ("- a\n- b\n", ["a", "b"]),
            ('["a", "a"]', []),
            ('["a", "Other"]', []),
            ("One line is no choice.", []),
            ("Error: broken\nin two lines", []),
            ("", []),
        ],
    )
    def test_a_result_with_two_items_or_more_lists_options(self, text: str, labels: list[str]) -> None:
        """P16: at most four options, none of them twice, none of them called Other."""
        assert [option["label"] for option in options_in(text)] == labels
