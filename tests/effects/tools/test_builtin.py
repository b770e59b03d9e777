"""The built-in tools: what each accepts, does and returns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Conversation, Engine, Limits, Policy, Speech, Turn, presets, tool
from turnwise.effects.model.port import ModelCall
from turnwise.effects.tools.builtin import NO_PROFILE, spawn_agents, transfer_to
from turnwise.effects.tools.catalogue import BUILT_IN, built_in_name, names_of
from turnwise.effects.tools.context import Question, ToolContext
from turnwise.effects.tools.performers import execute
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states import SpeechRules, SubAgents, SubAgentTask, Texts, ToolCall
from turnwise.states.values.acts import MAX_TASKS, Transfer
from turnwise.states.values.messages import ToolResult
from turnwise.states.values.questions import QuestionOption, UserQuestion
from turnwise.testing import RecordingChannel, ScriptedLlm, call, calls, reply

from ...engine.test_litellm import model_at
from ...support.cases import holds_for
from ...support.engine_scenarios import QUESTION, Watcher, results, until
from ...support.servers.openai_server import OpenAiServer, says
from ...support.servers.openai_server import calls as sends_calls
from ...support.tools import outcome_of, tool_context

# --- The built-in tools: a model asks its user, reaches them by `respond_to_user`, `mark_work_complete` and `talk`, and
# hands the conversation over to another profile.


TEXTS = Texts()
RESPONDING = presets.explicit_response().model_copy(update={"verify": 0})
"""The rules of seed 000, where a claim is taken at its word."""

TALKING = presets.talk()
DELIVERED = '{"success": true, "message": "Message delivered to user"}'
REFUSED = '{"success": false, "error": "text is required"}'


def respond(text: str) -> Any:
    """The model speaks for the end of the turn."""
    return call("respond_to_user", text=text)


def complete(summary: str = "All is done.", **fields: Any) -> Any:
    """The model claims that the work is complete."""
    return call("mark_work_complete", summary=summary, **fields)


def talk(message: str) -> Any:
    """The model speaks at once."""
    return call("talk", message=message)


@tool(crash="pure")
async def work() -> str:
    """Do a piece of work."""
    return "worked"


@tool(crash="pure")
async def save() -> str:
    """Fail to save something."""
    raise OSError("No space left.")


TOOLS = ("respond_to_user", "mark_work_complete", "talk", work, save)


@dataclass
class Dialogue:
    """A conversation whose model follows a script, and what its user received."""

    conversation: Conversation
    channel: RecordingChannel
    llm: ScriptedLlm

    async def says(self, text: str = "Hi") -> Turn:
        """The user sends a message; returns how the turn ended."""
        return await self.conversation.send(text)

    async def heard(self) -> list[str]:
        """What has reached the user, once all deliveries are made: they are made after the end of the turn."""
        count = sum(len(turn.deliveries) for turn in await self.conversation.turns())
        await until(lambda: len(self.channel.texts) >= count)
        return self.channel.texts

    async def results(self) -> list[str]:
        """The results of the model's calls, oldest first."""
        return results(await self.conversation.transcript())

    async def errors(self) -> list[bool]:
        """Which of the calls have an error result."""
        return [message.error for message in await self.conversation.transcript() if message.role == "tool"]


@asynccontextmanager
async def begin(
    database: Path, policy: Policy, answers: Iterable[Any], tools: Iterable[Any] = TOOLS
) -> AsyncIterator[Dialogue]:
    """A conversation with this policy, whose model gives these answers."""
    llm, channel = ScriptedLlm(answers), RecordingChannel()
    async with Engine.open(database, model=llm, tools=tools, channels=[channel]) as engine:
        yield Dialogue(await engine.create(policy=policy, system="You are kind."), channel, llm)
        llm.assert_finished()


def resolve_call(name: str, arguments: object, *tools: Any, policy: Policy = RESPONDING) -> ToolCall:
    """A call as it enters, with arguments as a text, or as what the text is made from."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    (made,) = ToolRegistry(tools or TOOLS).resolve_calls(1, [ModelCall("p", name, written)], policy)
    return made


async def outcome(arguments: str) -> ToolResult:
    """The result of one call."""
    result = await execute(transfer_to, arguments, tool_context())
    assert isinstance(result, ToolResult)
    return result


async def test_it_asks_what_the_model_wrote() -> None:
    """P12: the questions of the call become the questions of the act."""
    ask = ToolRegistry(["ask_user_question"]).find("ask_user_question")
    assert ask is not None
    question = {"question": "Which?", "header": "Day", "options": [{"label": "a"}, {"label": "b"}]}

    act = await outcome_of(ask, json.dumps({"questions": [{**question, "multiSelect": True}]}))

    options = (QuestionOption(label="a"), QuestionOption(label="b"))
    assert act == Question((UserQuestion(question="Which?", header="Day", options=options, multi_select=True),))


def test_its_schema_has_the_required_bounds() -> None:
    """Seed 002: 1-4 questions, 2-4 options, a header of up to 12 characters, and `multiSelect` false by default."""
    (definition,) = ToolRegistry(["ask_user_question"]).definitions()

    questions = definition["function"]["parameters"]["properties"]["questions"]
    fields = questions["items"]["properties"]
    assert (questions["minItems"], questions["maxItems"]) == (1, 4)
    assert (fields["options"]["minItems"], fields["options"]["maxItems"]) == (2, 4)
    assert (fields["header"]["type"], fields["header"]["maxLength"]) == ("string", 12)
    assert fields["multiSelect"] == {"type": "boolean", "default": False}
    assert questions["items"]["required"] == ["question", "options"]
    assert fields["options"]["items"]["required"] == ["label"]


class TestRespondToUser:
    """Seed 000: speaking for the end of the turn."""

    async def test_what_is_said_is_delivered_once(self, database: Path) -> None:
        """S1: trimmed, apart from `final_content`; the result is JSON, and does not say that the user has it
        already."""
        async with begin(database, RESPONDING, [respond(" \n A "), calls(complete("Done."), text="Saying A.")]) as it:
            turn = await it.says()

            assert await it.heard() == ["A"]
            assert (turn.status, turn.user_response, turn.reply) == ("completed", "A", "A")
            assert turn.final_content == "Saying A."
            told = [json.loads(result) for result in await it.results()]
            assert told == [{"success": True, "message": words} for words in (TEXTS.recorded_last, TEXTS.claimed)]

    @pytest.mark.parametrize(("keep", "words"), [("last", TEXTS.recorded_last), ("each", TEXTS.recorded)])
    async def test_the_result_says_what_will_be_delivered(self, database: Path, keep: str, words: str) -> None:
        """S1, S3: of several speeches, the last or each."""
        policy = RESPONDING.model_copy(update={"speech": SpeechRules(keep=keep)})
        async with begin(database, policy, [calls(respond("A"), complete())]) as it:
            await it.says()

            assert json.loads((await it.results())[0]) == {"success": True, "message": words}

    async def test_a_refusal_is_json(self, database: Path) -> None:
        """S7: also in the request, where other errors are marked as such."""
        async with begin(database, RESPONDING, [respond(""), calls(respond("A"), complete())]) as it:
            await it.says()

            assert it.llm.requests[1].messages[-1]["content"] == REFUSED

    @pytest.mark.parametrize(("keep", "heard"), [("last", ["B"]), ("each", ["A", "B"])])
    @pytest.mark.parametrize(
        "answers", [[calls(respond("A"), respond("B"), complete())], [respond("A"), respond("B"), complete()]]
    )
    async def test_of_two_the_last_or_each_is_delivered(
        self, database: Path, keep: Any, heard: list[str], answers: list[Any]
    ) -> None:
        """S3: in call order, in one response or in several."""
        policy = RESPONDING.model_copy(update={"speech": SpeechRules(keep=keep)})
        async with begin(database, policy, answers) as it:
            turn = await it.says()

            assert await it.heard() == heard
            assert turn.user_response == "\n\n".join(heard)

    async def test_the_turn_goes_on_beside_work(self, database: Path) -> None:
        """S4: what was said beside a work tool is neither lost before completion nor delivered before it."""
        async with begin(database, RESPONDING, [calls(respond("A"), call("work")), complete()]) as it:
            turn = await it.says()

            assert (await it.heard(), turn.user_response) == (["A"], "A")
            assert [message["role"] for message in it.llm.requests[1].messages][-3:] == ["assistant", "tool", "tool"]

    async def test_what_was_said_in_this_turn_is_the_reply(self, database: Path) -> None:
        """S5: said in request 1, claimed alone in request 3; what was said in an earlier turn is never used again."""
        first, second = [respond("A"), call("work"), complete()], [complete(), complete("Nothing to say.")]
        async with begin(database, RESPONDING, [*first, *second]) as it:
            said, silent = await it.says("One"), await it.says("Two")

            assert (said.user_response, said.reply) == ("A", "A")
            assert (silent.user_response, silent.reply) == (None, "Nothing to say.")
            assert await it.heard() == ["A", "Nothing to say."]

    async def test_a_late_status_text_is_not_delivered(self, database: Path) -> None:
        """S6: the readback is delivered, and a text that happens to come last is not."""
        status = "Work was already marked complete. The thread is saved."
        answers = [respond("First tweet. Second tweet."), calls(complete("Read it aloud."), text=status)]
        async with begin(database, RESPONDING, answers) as it:
            turn = await it.says("Read me it")

            assert await it.heard() == ["First tweet. Second tweet."]
            assert (turn.reply, turn.final_content) == ("First tweet. Second tweet.", status)

    @pytest.mark.parametrize(
        "arguments", [{"text": ""}, {"text": " \n\t"}, {"text": 7}, {}, {"text": None}, {"text": ["A"]}], ids=str
    )
    async def test_without_a_text_it_fails(self, database: Path, arguments: dict[str, Any]) -> None:
        """S7: "", blanks, a number and a missing text give exactly this error result; what was said before is kept."""
        async with begin(database, RESPONDING, [respond("A"), call("respond_to_user", **arguments), complete()]) as it:
            turn = await it.says()

            assert (await it.results())[1] == REFUSED
            assert (await it.errors())[:2] == [False, True]
            assert (await it.heard(), turn.user_response) == (["A"], "A")

    async def test_the_refusal_is_a_setting(self, database: Path) -> None:
        """S7: the policy words it, and it is JSON in any case."""
        policy = RESPONDING.model_copy(update={"texts": Texts(nothing_said='Say "it"'), "nudges": 0})
        async with begin(database, policy, [respond(""), reply("Well.")]) as it:
            await it.says()

            assert json.loads((await it.results())[0]) == {"success": False, "error": 'Say "it"'}

    @pytest.mark.parametrize("arguments", ["[}", "[]", '"A"', "7"])
    def test_arguments_that_are_not_an_object_are_an_error(self, arguments: str) -> None:
        """P5: what was meant cannot be known."""
        fault = resolve_call("respond_to_user", arguments).fault

        assert fault is not None
        assert fault.startswith("Invalid input: the arguments are not a JSON object")

    def test_undeclared_properties_are_errors(self) -> None:
        """The fault names them."""
        fault = resolve_call("respond_to_user", {"text": "A", "loud": True}).fault

        assert fault == "Invalid input: loud: Extra inputs are not permitted"

    async def test_parallel_tools_speak_in_call_order(self, database: Path) -> None:
        """S14: "last" is the last in call order."""
        policy = RESPONDING.model_copy(update={"parallel": 3})
        async with begin(database, policy, [calls(respond("A"), call("work"), respond("B")), complete()]) as it:
            await it.says()

            assert await it.heard() == ["B"]

    async def test_watchers_see_that_the_call_speaks(self, database: Path) -> None:
        """S18: the update for the call marks it, and the update for another tool does not."""
        async with begin(database, RESPONDING, [calls(respond("A"), call("work")), complete()]) as it:
            watcher = Watcher(it.conversation)
            await watcher.until("snapshot")
            await it.says()
            await watcher.until("turn_ended")
            await watcher.stop()

        tools = [update.data for update in watcher.updates if update.type == "tool"]
        assert {data["name"] for data in tools if data.get("speaks")} == {"respond_to_user"}
        assert {data["name"] for data in tools if not data.get("speaks")} == {"work", "mark_work_complete"}

    async def test_streamed_text_and_speech_are_separate(self, database: Path) -> None:
        """S15: watchers see the text of each answer as it streams, and `user_response` is what the tool said."""
        answers = [calls(respond("A."), text="Let me tell them."), calls(complete(), text="Told.")]
        async with begin(database, RESPONDING, answers) as seen:
            watcher = Watcher(seen.conversation)
            await watcher.until("snapshot")
            turn = await seen.says()
            ended = await watcher.until("turn_ended")
            await watcher.stop()

        streamed = [(update.data["kind"], update.data["text"]) for update in watcher.updates if update.type == "token"]
        assert streamed == [("text", "Let me tell them."), ("speech", "A."), ("text", "Told.")]
        assert (turn.user_response, turn.reply, ended.data["user_response"]) == ("A.", "A.", "A.")
        assert ended.data["final_content"] == "Told."

    async def test_speech_before_a_stop_is_delivered_once(self, database: Path) -> None:
        """S13: the tool recorded it, the program stops before the end of the turn, and the next one continues."""
        channel, asked = RecordingChannel(), asyncio.Event()

        async def hang() -> None:
            asked.set()
            await asyncio.Event().wait()

        first = ScriptedLlm([respond("A"), hang()])
        async with Engine.open(database, model=first, tools=TOOLS, channels=[channel]) as engine:
            conversation = await engine.create(policy=RESPONDING)
            await conversation.send("Hi", wait=False)
            await asked.wait()
            assert channel.texts == []

        second = ScriptedLlm([complete()], name="scripted")
        async with Engine.open(database, model=second, tools=TOOLS, channels=[channel]) as engine:
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "idle")
            (turn,) = await again.turns()

        assert (turn.status, turn.user_response, channel.texts) == ("completed", "A", ["A"])


class TestMarkWorkComplete:
    """The claim that ends the turn."""

    async def test_a_claim_beside_a_failed_call_does_not_count(self, database: Path) -> None:
        """S9: the turn is not complete, and the model is asked again."""
        async with begin(database, RESPONDING, [calls(respond("A"), complete(), call("save")), complete()]) as it:
            turn = await it.says()

            assert (turn.status, turn.reply) == ("completed", "A")

    @pytest.mark.parametrize("summary", ["", " \n"])
    def test_a_summary_must_not_be_blank(self, summary: str) -> None:
        """S9: a blank summary gives an error result."""
        fault = resolve_call("mark_work_complete", {"summary": summary}).fault

        assert fault == "Invalid input: summary: a summary must not be empty"

    @pytest.mark.parametrize("confidence", [-0.1, 1.1, "sure", "0.5", True])
    def test_a_confidence_is_a_number_between_0_and_1(self, confidence: object) -> None:
        """S9: anything else gives an error result."""
        fault = resolve_call("mark_work_complete", {"summary": "Done.", "confidence": confidence}).fault

        assert fault is not None and fault.startswith("Invalid input: confidence: Input should be")

    @pytest.mark.parametrize("given", [{}, {"confidence": None}, {"confidence": 0}, {"confidence": 0.5}])
    async def test_a_summary_alone_is_enough(self, database: Path, given: dict[str, Any]) -> None:
        """S9: the confidence is optional."""
        async with begin(database, RESPONDING, [respond("A"), complete(" Done. ", **given)]) as it:
            turn = await it.says()

            assert (turn.status, turn.final_content) == ("completed", "Done.")

    async def test_a_claim_without_a_summary_does_not_end_the_turn(self, database: Path) -> None:
        """S9: it has an error result."""
        async with begin(database, RESPONDING, [respond("A"), complete(" "), complete("Done.")]) as it:
            turn = await it.says()

            assert (await it.errors(), turn.status) == ([False, True, False], "completed")


class TestTalk:
    """Seed 004: speaking at once."""

    @pytest.mark.parametrize(
        "message",
        ['“Quotes” \u2018and\u2019 "such"', "back\\slash\\n", "a\nb\r\n\tc", "🦊👩‍👩‍👧", '{"text": ["a"]}', "  a  "],
    )
    async def test_a_message_arrives_unchanged(self, database: Path, message: str) -> None:
        """B3: byte-identical, so it is not trimmed either."""
        async with begin(database, TALKING, [talk(message), reply("Done.")]) as it:
            turn = await it.says()

            assert (await it.heard(), turn.reply) == ([message], message)

    async def test_a_waiting_turn_says_what_the_user_has_heard(self, database: Path) -> None:
        """B2: a message is received at once, so the user has it while the turn waits for an answer."""
        answers = [talk("One moment."), call("ask_user_question", questions=[QUESTION]), reply("Done.")]
        async with begin(database, TALKING, answers, (*TOOLS, "ask_user_question")) as it:
            asked = await it.says()
            ended = await it.conversation.answer({"When?": "6:30 PM"})

            assert (asked.status, ended.status) == ("awaiting_user", "completed")
            for turn in (asked, ended):
                assert turn.deliveries == ("One moment.",)
                assert turn.reply == turn.user_response == "One moment."

    async def test_the_same_message_twice_is_delivered_twice(self, database: Path) -> None:
        """B10: in one response and in the next."""
        async with begin(database, TALKING, [calls(talk("a"), talk("a")), talk("a"), reply("Done.")]) as it:
            await it.says()

            assert await it.heard() == ["a"] * 3
            assert len({delivery.key for delivery in it.channel.deliveries}) == 3

    @pytest.mark.parametrize("text", ["Message delivered to user", 'It was "heard".'])
    async def test_the_acknowledgement_is_a_setting(self, database: Path, text: str) -> None:
        """B11: the default is "Message delivered to user"."""
        policy = TALKING.model_copy(update={"texts": Texts(acknowledgement=text)})
        async with begin(database, policy, [talk("a"), reply("Done.")]) as it:
            await it.says()

            assert [json.loads(one) for one in await it.results()] == [{"success": True, "message": text}]

    @pytest.mark.parametrize(
        ("arguments", "heard"),
        [
            ({}, []),
            ({"message": None}, []),
            ({"message": ["a"]}, []),
            ({"text": "a"}, []),
            ({"message": 42}, ["42"]),
            ({"message": 1.5}, ["1.5"]),
            ({"message": True}, []),
            ({"message": "a", "loud": True}, ["a"]),
            ({"message": ""}, [""]),
        ],
        ids=str,
    )
    async def test_in_its_preset_it_never_fails(
        self, database: Path, arguments: dict[str, Any], heard: list[str]
    ) -> None:
        """B4, B5: it is acknowledged whatever was written; a number is delivered as its digits, and a missing text
        delivers nothing."""
        async with begin(database, TALKING, [call("talk", **arguments), reply("Done.")]) as it:
            await it.says()

            assert await it.heard() == heard
            assert (await it.results(), await it.errors()) == ([DELIVERED], [False])

    @pytest.mark.parametrize("arguments", ["", "[}", "[]", '"a"', "9" * 5000], ids=lambda text: text[:5])
    def test_unreadable_arguments_are_not_a_fault_there(self, arguments: str) -> None:
        """B4: the call runs, and is acknowledged."""
        assert resolve_call("talk", arguments, policy=TALKING).fault is None

    async def test_unreadable_arguments_are_acknowledged_there(self, database: Path) -> None:
        """B4: nothing is delivered."""
        garbage = call("talk")
        garbage = type(garbage)(tool_calls=(ModelCall("p", "talk", "[}"),))
        async with begin(database, TALKING, [garbage, reply("Done.")]) as it:
            turn = await it.says()

            assert (await it.results(), await it.heard(), turn.silent) == ([DELIVERED], [], True)

    @pytest.mark.parametrize("arguments", [{}, {"message": 42}, {"message": ""}, {"message": " "}], ids=str)
    async def test_elsewhere_it_fails(self, database: Path, arguments: dict[str, Any]) -> None:
        """B4, B5: with an error result that names the tool's parameter."""
        async with begin(database, presets.assistant(), [call("talk", **arguments), reply("Done.")]) as it:
            await it.says()

            assert await it.results() == ['{"success": false, "error": "message is required"}']
            assert (await it.errors(), await it.heard()) == ([True], ["Done."])

    async def test_the_rules_for_failing_and_blanks_are_independent(self, database: Path) -> None:
        """B4: a blank message is then acknowledged and not delivered."""
        policy = TALKING.model_copy(update={"speech": SpeechRules(empty="error", never_fail=True)})
        async with begin(database, policy, [talk(" "), reply("Done.")]) as it:
            await it.says()

            assert (await it.results(), await it.heard()) == ([DELIVERED], [])

    async def test_a_talk_that_never_ends_is_stopped(self, database: Path) -> None:
        """B7: the number of requests is limited, and what was said stays said; a text ends the turn."""
        limited = TALKING.model_copy(update={"limits": Limits(requests=3)})
        async with begin(database, TALKING, [talk("a"), reply("done")]) as seen:
            turn = await seen.says()
            assert (turn.status, turn.reply, len(seen.llm.requests)) == ("completed", "a", 2)
        async with begin(database.with_name("other.db"), limited, [talk("a")] * 3) as seen:
            turn = await seen.says()
            assert (turn.status, len(seen.llm.requests)) == ("incomplete", 3)
            assert await seen.heard() == list(turn.deliveries) == ["a", "a"]

    async def test_text_is_a_thought(self, database: Path) -> None:
        """B1, B6: it is never delivered; a turn without any talk is silent."""
        async with begin(database, TALKING, [reply("I think so.")]) as it:
            turn = await it.says()

            assert (await it.heard(), turn.silent, turn.reply) == ([], True, "")


class TestNames:
    """S16: one tool, by any of its names."""

    @pytest.mark.slow
    @pytest.mark.parametrize("offered", ["respond_to_user", "speak_to_user", "x:respond_to_user", "a:b:speak_to_user"])
    @pytest.mark.parametrize("called", ["respond_to_user", "speak_to_user", "y:respond_to_user", "x:speak_to_user"])
    async def test_each_name_is_the_same_tool(self, database: Path, offered: str, called: str) -> None:
        """S16: whichever the application offers, and whichever the model uses."""
        answers = [call(called, text="A"), complete()]
        async with begin(database, RESPONDING, answers, [offered, "mark_work_complete"]) as it:
            await it.says()

            names = [one.name for message in await it.conversation.transcript() for one in message.tool_calls]
            assert await it.heard() == ["A"]
            assert names[0] == offered.rpartition(":")[2], "the model reads the name that is offered to it"

    def test_it_is_offered_by_the_given_name(self) -> None:
        """S16: without the server, which providers would refuse in a name."""
        definitions = ToolRegistry(["speak_to_user", "x:talk"]).definitions()

        assert [definition["function"]["name"] for definition in definitions] == ["speak_to_user", "talk"]

    def test_the_same_name_twice_is_refused(self) -> None:
        """A server in front of the name makes no second tool."""
        with pytest.raises(ConfigurationError, match="two tools called talk"):
            ToolRegistry(["talk", "x:talk"])

    def test_a_tool_of_the_application_keeps_its_name(self) -> None:
        """An application's own `speak_to_user` is another tool, and no prefix leads to it."""

        @tool(name="speak_to_user", acts=("speech",))
        async def own(words: str) -> Speech:
            """Say it."""
            return Speech(text=words)

        registry = ToolRegistry([own, "respond_to_user", work])

        assert registry.find("speak_to_user") is own
        assert registry.find("x:speak_to_user") is own
        assert registry.find("x:respond_to_user") is BUILT_IN["respond_to_user"]
        assert registry.find("x:work") is None

    def test_a_server_prefix_names_every_built_in_tool(self) -> None:
        """S16: not only the one that speaks."""
        registry = ToolRegistry(["ask_user_question", "mark_work_complete"])

        assert registry.find("x:mark_work_complete") is BUILT_IN["mark_work_complete"]
        assert registry.find("x:respond_to_user") is None


class TestDescriptions:
    """S22: what the descriptions of the tools must say, by the words that say it."""

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            (
                "respond_to_user",
                ["voice", "spoken", "message", "ordinary text", "may never reach", "naturally", "markup"],
            ),
            (
                "speak_to_user",
                ["voice", "spoken", "message", "ordinary text", "may never reach", "naturally", "markup"],
            ),
            ("talk", ["only way", "reach the user", "must"]),
            ("mark_work_complete", ["done", "summary"]),
        ],
    )
    def test_they_say_what_the_model_must_know(self, name: str, words: list[str]) -> None:
        """S22: together with the descriptions of the parameters."""
        described = " ".join(json.dumps(BUILT_IN[name].definition()).replace("\\n", " ").split()).lower()

        assert [word for word in words if word not in described] == []


class TestOverASocket:
    """The same through litellm and a server that is as strict as the strictest provider."""

    async def test_what_is_said_is_delivered_once(self, database: Path) -> None:
        """S1: respond, then complete."""
        script = [
            sends_calls(("respond_to_user", {"text": "A"})),
            sends_calls(("mark_work_complete", {"summary": "D"})),
        ]
        channel = RecordingChannel()
        async with (
            OpenAiServer(script) as server,
            Engine.open(database, model=model_at(server), tools=TOOLS, channels=[channel]) as engine,
        ):
            turn = await (await engine.create(policy=RESPONDING)).send("Hi")

        assert (channel.texts, turn.user_response, turn.final_content) == (["A"], "A", "D")

    async def test_talk_work_talk(self, database: Path) -> None:
        """B2: the first delivery attempt of "a" ends before the work starts, "b" comes after it has ended, in one
        response."""
        happened: list[str] = []

        @tool
        async def bash(command: str) -> str:
            """Run a command."""
            happened.append(command)
            return "done"

        first = sends_calls(("talk", {"message": "a"}), ("bash", {"command": "ls"}), ("talk", {"message": "b"}))
        channel = RecordingChannel(lambda delivery: happened.append(delivery.text))
        async with (
            OpenAiServer([first, says("That went well.")]) as server,
            Engine.open(database, model=model_at(server), tools=["talk", bash], channels=[channel]) as engine,
        ):
            turn = await (await engine.create(policy=TALKING)).send("Hi")

        assert happened == ["a", "ls", "b"]
        assert (turn.reply, turn.final_content) == ("a\n\nb", "That went well.")


async def test_it_names_the_profile() -> None:
    """The machine knows whether there is such a profile."""
    made = await outcome('{"profile": " cook "}')

    assert (made.acts, made.error) == ((Transfer(profile="cook"),), False)


@pytest.mark.parametrize("arguments", ['{"profile": " \\n"}', '{"profile": ""}'])
async def test_a_blank_name_is_an_error(arguments: str) -> None:
    """The model reads what is missing."""
    made = await outcome(arguments)

    assert (made.text, made.error, made.acts) == (NO_PROFILE, True, ())


@pytest.mark.parametrize("arguments", ["{}", '{"profile": 5}', '{"profile": "cook", "now": true}', '["cook"]', "null"])
async def test_other_arguments_are_errors(arguments: str) -> None:
    """Nothing is handed over."""
    made = await outcome(arguments)

    assert (made.error, made.acts) == (True, ())


def test_it_runs_alone() -> None:
    """Calls behind it belong to the next profile's step; and a crash may repeat it, because it only names a profile."""
    assert (transfer_to.exclusive, transfer_to.acts, transfer_to.crash) == (True, ("transfer",), "pure")


# --- The built-in tool that starts sub-agents: what a model may write, and what is an error.


CONTEXT = ToolContext(conversation_id="a", key="a/1", call_id="call_1_0", progress=lambda line: None)


async def run(arguments: Any) -> ToolResult:
    """Return the result of a call with these arguments."""
    result = await execute(spawn_agents, arguments if isinstance(arguments, str) else json.dumps(arguments), CONTEXT)
    assert isinstance(result, ToolResult)
    return result


async def test_tasks_are_texts_or_objects() -> None:
    """Both kinds may stand side by side, and their order is kept."""
    detailed = {
        "text": "b",
        "profile": "fast",
        "tools": ["look"],
        "requests": 3,
        "tokens": 1000,
        "cost": 0.5,
        "seconds": 60,
    }

    result = await run({"tasks": ["a", detailed, {"text": "c"}]})

    task = SubAgentTask(text="b", profile="fast", tools=("look",), requests=3, tokens=1000, cost=0.5, seconds=60)
    assert result.acts == (SubAgents(tasks=("a", task, "c")),)
    assert not result.error


@holds_for(
    "arguments",
    [
        {},
        {"tasks": []},
        {"tasks": "look it up"},
        {"tasks": [""]},
        {"tasks": ["a", " \n\t"]},
        {"tasks": [{"text": "  "}]},
        {"tasks": [{}]},
        {"tasks": [3]},
        {"tasks": [None]},
        {"tasks": ["a"] * (MAX_TASKS + 1)},
        {"tasks": ["a" * 1_000_001]},
        {"tasks": ["a"], "model": "large"},
        {"tasks": [{"text": "a", "model": "large"}]},
        {"tasks": [{"text": "a", "tools": "look"}]},
        {"tasks": [{"text": "a", "requests": 0}]},
        {"tasks": [{"text": "a", "requests": True}]},
        {"tasks": [{"text": "a", "tokens": -5}]},
        {"tasks": [{"text": "a", "cost": 0}]},
        {"tasks": [{"text": "a", "seconds": 0}]},
        '{"tasks": [{"text": "a", "seconds": NaN}]}',
        '{"tasks": [{"text": "a", "cost": 1e999}]}',
        "[]",
        "no JSON",
    ],
)
async def test_anything_else_is_an_error_and_starts_nothing(arguments: Any) -> None:
    """Empty and blank tasks, too many of them, extra properties, and limits that are none: one sentence each."""
    result = await run(arguments)

    assert result.error
    assert result.acts == ()
    assert result.text and len(result.text) <= 500 and "\n" not in result.text


def test_its_schema_describes_both_kinds_of_task() -> None:
    """Nothing is left open in it, so a provider can enforce it."""
    tasks = spawn_agents.parameters["properties"]["tasks"]
    text, task = tasks["items"]["anyOf"]

    assert (tasks["minItems"], tasks["maxItems"]) == (1, MAX_TASKS)
    assert text["type"] == "string"
    assert task["additionalProperties"] is False
    assert task["required"] == ["text"]
    assert set(task["properties"]) == {"text", "profile", "tools", "requests", "tokens", "cost", "seconds"}
    assert all(described["description"] for described in task["properties"].values())


def test_it_runs_alone_and_may_run_again() -> None:
    """It only says what to start, so a call that a crash interrupted runs again."""
    assert (spawn_agents.exclusive, spawn_agents.crash, spawn_agents.acts) == (True, "pure", ("children",))


# --- The built-in tools are found by their names, and imported then.


@holds_for("name", BUILT_IN)
def test_each_tool_has_the_name_by_which_it_is_found(name: str) -> None:
    """It is a built-in tool, also where an application offers it."""
    assert BUILT_IN[name].name == name
    assert built_in_name(BUILT_IN[name]) == name
    assert names_of(f"server:{name}")[0] == name


def test_a_tool_with_two_names_has_both() -> None:
    """The one that is asked for comes first."""
    assert names_of("speak_to_user") == ("speak_to_user", "respond_to_user")
    assert names_of("respond_to_user") == ("respond_to_user", "speak_to_user")


def test_other_names_mean_no_built_in_tool() -> None:
    """Whatever they look like."""
    assert names_of("find_table") == names_of("") == names_of("questions") == ()
    assert "questions" not in BUILT_IN
