"""The rehearsal model plays its part through the real stack: litellm, streams, tools; nothing of a script."""

import asyncio
import json
from typing import Any

import pytest

from turnwise.effects.model.litellm.llm import LiteLlm
from turnwise.effects.model.performers import summary, verdict
from turnwise.effects.model.performers import verification as verify
from turnwise.effects.model.port import ModelAnswer, ModelRequest, Token
from turnwise.effects.model.rehearsal import rehearsal
from turnwise.effects.model.rehearsal.guesses import fill, options_in
from turnwise.effects.model.rehearsal.rehearsal import ASK, INTRODUCTION, SAID, Reply, reply_to
from turnwise.states.policy.texts import Texts
from turnwise.states.values.questions import AskUserQuestionInput

from ....support.openai_server import violations


def tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    """A tool all of whose parameters are required."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
FIND_TABLE = tool("find_table", "Look for a free table.", cuisine=TEXT, time=TEXT, party=NUMBER)
CHECK_WEATHER = tool("check_weather", "What the weather will be like.", day=TEXT)
QUESTION = tool(ASK, "Ask the user.", questions={"type": "array"})
DINNER = "A table for two tonight, somewhere Japanese, and will I need an umbrella?"
TABLES = '["Sakura, 6:30 PM", "Koi, 8:00 PM"]'


class Talk:
    """A conversation with the rehearsal model, kept as a provider would see it."""

    def __init__(self, *tools: dict[str, Any]) -> None:
        self.tools = tools
        self.messages: list[dict[str, Any]] = []
        self.shown: list[Token] = []

    async def say(self, text: str) -> ModelAnswer:
        """What the model answers to a person."""
        self.messages.append({"role": "user", "content": text})
        return await self._next()

    async def give(self, *results: str) -> ModelAnswer:
        """What the model answers to the results of the calls that it made last."""
        calls = self.messages[-1]["tool_calls"]
        for call, text in zip(calls, results, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        return await self._next()

    async def _next(self) -> ModelAnswer:
        request = ModelRequest("rehearsal", tuple(self.messages), self.tools)
        answer = await LiteLlm("rehearsal", delay=0).complete(request, self.shown.append)
        self.messages.append(self._message(answer))
        return answer

    def _message(self, answer: ModelAnswer) -> dict[str, Any]:
        said: dict[str, Any] = {"role": "assistant", "content": answer.content}
        if answer.tool_calls:
            said["tool_calls"] = [
                {
                    "id": f"call{len(self.messages):04}{place}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for place, call in enumerate(answer.tool_calls)
            ]
        return said


def called(answer: ModelAnswer) -> list[tuple[str, Any]]:
    """The calls of an answer, their arguments read."""
    return [(call.name, json.loads(call.arguments)) for call in answer.tool_calls]


class TestADinner:
    """Two tools, a question, an answer, a reply: what a newcomer sees first."""

    async def test_it_uses_what_the_words_point_to(self) -> None:
        """Both tools in one response, in the order in which they were mentioned."""
        answer = await Talk(CHECK_WEATHER, FIND_TABLE, QUESTION).say(DINNER)

        assert called(answer) == [
            ("find_table", {"cuisine": "Japanese", "time": "tonight", "party": 2}),
            ("check_weather", {"day": "tonight"}),
        ]
        assert answer.finish_reason == "tool_calls"

    async def test_it_asks_which_of_the_results_it_shall_be(self) -> None:
        """A valid question, with options made of what was found."""
        talk = Talk(FIND_TABLE, CHECK_WEATHER, QUESTION)
        await talk.say(DINNER)

        answer = await talk.give(TABLES, "Rain from nine; take an umbrella.")

        ((name, arguments),) = called(answer)
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
    async def test_it_replies_with_the_choice_and_with_the_rest(self, answered: str) -> None:
        """In either of the shapes in which a model reads an answer."""
        talk = Talk(FIND_TABLE, CHECK_WEATHER, QUESTION)
        await talk.say(DINNER)
        await talk.give(TABLES, "Rain from nine; take an umbrella.")

        answer = await talk.give(answered)

        assert called(answer) == []
        assert answer.content == "You chose Koi, 8:00 PM.\nWeather: Rain from nine; take an umbrella."
        assert violations({"model": "rehearsal", "messages": talk.messages, "tools": list(talk.tools)}) == []

    async def test_it_goes_on_when_nobody_answers(self) -> None:
        """P17: a question that is declined gets a result that is no answer."""
        talk = Talk(FIND_TABLE, CHECK_WEATHER, QUESTION)
        await talk.say(DINNER)
        await talk.give(TABLES, "Dry.")

        answer = await talk.give("The user declined to answer. Use your own judgment and go on.")

        assert answer.content == "You left the choice open.\nWeather: Dry."

    async def test_it_asks_nothing_when_it_may_not(self) -> None:
        """Without the tool for questions it tells what there is to choose from."""
        talk = Talk(FIND_TABLE)
        await talk.say(DINNER)

        answer = await talk.give(TABLES)

        assert answer.content == "Table: Sakura, 6:30 PM; Koi, 8:00 PM"

    async def test_the_next_message_begins_anew(self) -> None:
        """What was said before does not stand in the way of further calls."""
        talk = Talk(FIND_TABLE, CHECK_WEATHER)
        await talk.say(DINNER)
        await talk.give(TABLES, "Dry.")

        answer = await talk.say("And the weather tomorrow?")

        assert called(answer) == [("check_weather", {"day": "tomorrow"})]
        assert INTRODUCTION not in answer.content


class TestAnyConversation:
    """The rules know no script."""

    async def test_it_says_at_once_that_it_is_a_rehearsal(self) -> None:
        """And how to have a real model, in the first reply only."""
        talk = Talk()

        first, second = await talk.say("Hello"), await talk.say("And now?")

        assert first.content.startswith(INTRODUCTION)
        assert "OPENAI_API_KEY" in INTRODUCTION and "--model openai/gpt-4.1-mini" in INTRODUCTION
        assert INTRODUCTION not in second.content

    async def test_without_tools_it_says_what_it_heard(self) -> None:
        """Any script, word by word."""
        answer = await Talk().say("Grüße, 世界 😀")

        assert "“Grüße, 世界 😀”" in answer.content

    async def test_it_names_the_tools_that_it_could_use(self) -> None:
        """When the words point to none of them."""
        answer = await Talk(CHECK_WEATHER, QUESTION).say("Tell me a joke")

        assert called(answer) == []
        assert "check_weather" in answer.content and ASK not in answer.content

    async def test_it_says_what_it_would_still_need(self) -> None:
        """When the words point to a tool and leave a parameter of it open."""
        talk = Talk(CHECK_WEATHER, FIND_TABLE)

        answer, fuller = await talk.say("table for 2 please"), await talk.say("A Thai table for 2, at noon")

        assert called(answer) == []
        assert "To use find_table I also need to know: time." in answer.content
        assert called(fuller) == [("find_table", {"cuisine": "Thai", "time": "noon", "party": 2})]

    async def test_it_calls_nothing_when_the_tools_are_off(self) -> None:
        """tool_choice="none" lists the tools and allows none."""
        request = ModelRequest("rehearsal", ({"role": "user", "content": DINNER},), (FIND_TABLE,), "none")

        answer = await LiteLlm("rehearsal", delay=0).complete(request, lambda _: None)

        assert answer.tool_calls == ()

    async def test_it_speaks_word_by_word(self) -> None:
        """The tokens, joined, are the text; and it counts what it used."""
        talk = Talk()

        answer = await talk.say("Hello")

        assert len(talk.shown) > 10
        assert "".join(token.text for token in talk.shown) == answer.content
        assert answer.usage.output_tokens == len(talk.shown)

    async def test_it_can_be_stopped_in_the_middle_of_a_word(self) -> None:
        """A cancel does not wait for the end of the speech."""
        spoke = asyncio.Event()
        request = ModelRequest("rehearsal", ({"role": "user", "content": "Hello"},))
        task = asyncio.create_task(LiteLlm("rehearsal", delay=0.01).complete(request, lambda _: spoke.set()))
        await spoke.wait()

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


class TestRecords:
    """What it is given to read by whoever checks and summarizes turns."""

    async def test_it_takes_claims_at_their_word_and_says_so(self) -> None:
        """S11: a verdict as it is wanted."""
        read = verdict.read_verdict((await Talk().say(verify.INSTRUCTION)).content)

        assert read.passed
        assert "rehearsal" in (read.reason or "")

    async def test_it_says_that_it_cannot_summarize(self) -> None:
        """S12: in a sentence, for display."""
        assert (await Talk().say(summary.INSTRUCTION)).content == rehearsal.SUMMARIZED


class TestGuesses:
    """Arguments from words, by schema; options from results, by shape."""

    @pytest.mark.parametrize(
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
    def test_a_parameter_is_filled_from_the_words(self, schema: dict[str, Any], said: str, value: Any) -> None:
        """By its type; what the words do not give is not made up."""
        filled = fill({"properties": {"quiet": schema}}, said)

        assert filled == ({} if value is None else {"quiet": value})

    def test_a_tool_that_cannot_be_filled_is_not_called(self) -> None:
        """A required parameter is missing in what was said."""
        assert fill({"properties": {"day": TEXT}, "required": ["day"]}, "Will it rain?") is None

    @pytest.mark.parametrize(
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
    def test_a_choice_is_what_has_two_items(self, text: str, labels: list[str]) -> None:
        """P16: never more than four, none twice, none called Other."""
        assert [option["label"] for option in options_in(text)] == labels


def offered(*names: str) -> list[dict[str, Any]]:
    """Tools of these names, as a request has them."""
    return [{"type": "function", "function": {"name": name, "description": "", "parameters": {}}} for name in names]


class TestByTool:
    """Where a tool is offered to reach the user by, it is used."""

    @pytest.mark.parametrize(
        ("tools", "wanted"),
        [
            (["talk"], [("talk", "message")]),
            (["respond_to_user"], [("respond_to_user", "text")]),
            (["speak_to_user", "mark_work_complete"], [("speak_to_user", "text"), ("mark_work_complete", "summary")]),
        ],
    )
    def test_what_it_has_to_say_is_said_by_tool(self, tools: list[str], wanted: list[tuple[str, str]]) -> None:
        """The answer as the argument, and a claim behind it; its text is a thought."""
        said = reply_to([{"role": "user", "content": "hello"}], offered(*tools))

        assert [(call.name, *call.arguments) for call in said.calls] == wanted
        assert "You said: “hello”" in next(iter(said.calls[0].arguments.values()))
        assert "hello" not in said.text

    @pytest.mark.parametrize("name", ["nudge", "speak", "answer_missing", "relay", "fallback"])
    def test_a_nudge_is_nothing_that_a_person_said(self, name: str) -> None:
        """S10: what it has to say is for the user, who has not seen the nudge; results stay results."""
        result = {"role": "tool", "tool_call_id": "1", "content": "a bird"}
        call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        hello, nudge = {"role": "user", "content": "hello"}, {"role": "user", "content": getattr(Texts(), name)}

        plain = reply_to([hello, {"role": "assistant", "content": "Hm."}, nudge], ())
        looked = reply_to([hello, {"role": "assistant", "content": "", "tool_calls": [call]}, result, nudge], ())

        assert plain.text.startswith("You said: “hello”")
        assert looked.text == "Look: a bird"

    def test_then_it_ends(self) -> None:
        """Once it was said there is nothing more to say."""
        call = {"id": "1", "type": "function", "function": {"name": "talk", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "ok"},
        ]

        assert reply_to(messages, offered("talk")) == Reply(SAID)

    def test_no_rule_takes_such_a_tool_for_one_to_use(self) -> None:
        """However much the user talks about talking."""
        said = reply_to([{"role": "user", "content": "Talk about work complete"}], offered("talk", "respond_to_user"))

        assert "There is no tool I could use." in str(said.calls)
