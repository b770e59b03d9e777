"""How a request tells the model to reach its user, and of what it reminds the model."""

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine, Limits, Policy, Profile, Speech, WorkComplete, presets, tool
from turnwise.effects.model.port import ModelRequest
from turnwise.effects.model.request import name_tools
from turnwise.effects.model.system_message import ExplainedTools
from turnwise.states import Context, Empty, Texts
from turnwise.testing import RecordingChannel, ScriptedLlm, call, calls, reply

from ...support.engine_scenarios import Watcher

TEXTS = Texts()
RESPONDING = presets.explicit_response().model_copy(update={"verify": 0})
OCCASIONS = ("answer", "read content back", "result", "summary", "confirm", "anything else")


@tool(crash="pure")
async def work() -> str:
    """Do a piece of work."""
    return "worked"


def system_of(request: ModelRequest) -> str:
    """The system message, empty if there is none."""
    return "".join(message["content"] for message in request.messages if message["role"] == "system")


async def requests_of(
    database: Path, policy: Policy, tools: Iterable[Any], answers: Iterable[Any] = (), said: Iterable[str] = ("Hi",)
) -> list[ModelRequest]:
    """The requests to the model in a conversation with this policy."""
    llm = ScriptedLlm(answers or [reply("Hello.")])
    async with Engine.open(database, model=llm, tools=tools) as engine:
        conversation = await engine.create(policy=policy, system="You are kind.")
        for text in said:
            await conversation.send(text)
    llm.assert_finished()
    return llm.requests


class TestGuidance:
    """S18: the system message says how to use the speaking tools."""

    @pytest.mark.parametrize("name", ["respond_to_user", "speak_to_user", "talk"])
    async def test_an_offered_tool_is_explained(self, database: Path, name: str) -> None:
        """S18: it names the occasions, says that plain text is not delivered, and asks for no markup."""
        (request,) = await requests_of(database, presets.assistant(), [name, work])
        system = system_of(request)

        assert system.startswith("You are kind.\n\n")
        assert f"Call {name} " in system
        assert [word for word in (*OCCASIONS, "Plain text", "not delivered", "markup") if word not in system] == []

    async def test_a_tool_that_is_not_offered_is_not_explained(self, database: Path) -> None:
        """S18: nor is a tool of the application that has the same name; only what becomes of plain text beside it is
        said."""

        @tool(acts=("speech",))
        async def respond_to_user(words: str) -> Speech:
            """Say it."""
            return Speech(text=words)

        (request,) = await requests_of(database, presets.assistant(), [respond_to_user, work, "mark_work_complete"])

        assert system_of(request) == f"You are kind.\n\n{TEXTS.plain_text_fallback}".replace(
            "{tool}", "respond_to_user"
        )

    async def test_a_profile_can_switch_it_off(self, database: Path) -> None:
        """S18: the profile of this turn."""
        profiles = (Profile(name="quiet", prompt="Be brief.", guidance=False), Profile(name="other"))
        policy = presets.assistant().model_copy(update={"profiles": profiles})

        (request,) = await requests_of(database, policy, ["respond_to_user"])

        assert system_of(request) == "You are kind.\n\nBe brief."

    async def test_its_words_are_a_setting(self, database: Path) -> None:
        """S18: an application can word it; `{tool}` is the name of the tool, and other braces are unchanged."""
        texts = Texts(how_to_respond='Use {tool}, as in {"text": "Hi"}.', how_to_talk="")
        policy = presets.assistant().model_copy(update={"texts": texts})

        (request,) = await requests_of(database, policy, ["speak_to_user", "talk"])

        assert system_of(request) == 'You are kind.\n\nUse speak_to_user, as in {"text": "Hi"}.'

    async def test_a_plain_request_is_without_it(self, database: Path) -> None:
        """J20: no tool is offered there."""
        policy = presets.assistant().model_copy(update={"plain_retry": 1, "empty": Empty(in_a_row=1)})
        answers = [call("work"), reply(""), reply(""), reply("Hello.")]

        requests = await requests_of(database, policy, ["respond_to_user", work], answers)

        assert [system_of(request) == "You are kind." for request in requests] == [False, False, False, True]

    async def test_each_request_begins_with_the_previous_one(self, database: Path) -> None:
        """Also the last of a turn, in which no tool may be called."""
        policy = RESPONDING.model_copy(update={"limits": Limits(requests=2)})
        answers = [call("respond_to_user", text="A"), reply("B"), call("work"), reply("C")]

        tools = ["respond_to_user", "mark_work_complete", work]
        requests = await requests_of(database, policy, tools, answers, ["One", "Two"])

        assert [request.tool_choice for request in requests] == ["auto", "none"] * 2
        for earlier, later in pairwise(requests):
            assert later.messages[: len(earlier.messages)] == earlier.messages


@tool(acts=("speech",), crash="pure")
async def say(words: str) -> Speech:
    """Say it."""
    return Speech(text=words)


@tool(acts=("work_complete",), crash="pure")
async def finish(result: str) -> WorkComplete:
    """Finish."""
    return WorkComplete(summary=result)


SENTENCES = {
    "reply": TEXTS.plain_text_reply,
    "fallback": TEXTS.plain_text_fallback,
    "thought": TEXTS.plain_text_thought,
}
SPEAKING: dict[str, Any] = {
    "respond_to_user": ("respond_to_user", {"text": "The answer."}),
    "speak_to_user": ("speak_to_user", {"text": "The answer."}),
    "talk": ("talk", {"message": "The answer."}),
    "say": (say, {"words": "The answer."}),
}
RULES = {
    "assistant": (presets.assistant(), "fallback"),
    "foreground": (presets.foreground(), "fallback"),
    "reply_flow": (presets.reply_flow().replace(route=False, recall=False, dialogue="transcript"), "fallback"),
    "talk": (presets.talk(), "thought"),
    "explicit_response": (RESPONDING.replace(ends_on="text"), "fallback"),
    "reply": (Policy(text="reply"), "reply"),
    "fallback": (Policy(text="fallback"), "fallback"),
    "thought": (Policy(text="thought"), "thought"),
    "thought, or else": (Policy(text="thought", silent="fallback"), "fallback"),
}


class TestPlainText:
    """What the model is told about plain text beside a tool that speaks is what becomes of it."""

    @pytest.mark.slow
    @pytest.mark.parametrize("rules", RULES)
    @pytest.mark.parametrize("speaking", SPEAKING)
    async def test_the_sentence_and_the_behaviour_agree(self, database: Path, rules: str, speaking: str) -> None:
        """Under every preset, for every speaking tool, whether the model uses it or not."""
        (given, arguments), (policy, fate) = SPEAKING[speaking], RULES[rules]
        llm = ScriptedLlm([call(speaking, **arguments), reply("A status line."), reply("Plain.")])
        heard = RecordingChannel()
        async with Engine.open(database, model=llm, tools=[given], channels=[heard]) as engine:
            conversation = await engine.create(policy=policy)
            spoke = await conversation.send("One")
            wrote = await conversation.send("Two")
            await engine.delivered()
            assert (await conversation.replay()).divergence is None

        system = system_of(llm.requests[0])
        assert [one for one, text in SENTENCES.items() if text.replace("{tool}", speaking) in system] == [fate]
        assert spoke.deliveries == ("The answer.", *(["A status line."] if fate == "reply" else []))
        assert wrote.deliveries == (() if fate == "thought" else ("Plain.",))
        assert [one.text for one in heard.deliveries] == [*spoke.deliveries, *wrote.deliveries]

    async def test_without_such_a_tool_the_text_is_the_reply(self, database: Path) -> None:
        """And nothing is said about it."""
        (request,) = await requests_of(database, presets.assistant(), [work])

        assert "lain text" not in system_of(request)

    async def test_a_model_that_has_said_its_answer_need_not_write_one(self, database: Path) -> None:
        """It is not asked for a text that nobody would receive."""
        llm = ScriptedLlm([call("respond_to_user", text="The answer."), reply("")])
        async with Engine.open(database, model=llm, tools=["respond_to_user"]) as engine:
            turn = await (await engine.create()).send("Hi")

        assert (turn.status, turn.reply, turn.deliveries) == ("completed", "The answer.", ("The answer.",))

    async def test_a_profile_without_the_tool_answers_in_text(self, database: Path) -> None:
        """Also in the turn in which another profile, which has the tool, said something before it handed over."""
        profiles = [Profile(name="desk", tools=("respond_to_user", "transfer_to")), Profile(name="clerk", tools=())]
        answers = [
            call("respond_to_user", text="One moment."),
            call("transfer_to", profile="clerk"),
            reply("It is 12."),
        ]
        llm = ScriptedLlm(answers)
        tools = ["respond_to_user", "transfer_to"]
        async with Engine.open(database, model=llm, tools=tools, profiles=profiles) as engine:
            conversation = await engine.create()
            turn = await conversation.send("What is the time?")
            assert (await conversation.replay()).divergence is None

        assert ["lain text" in system_of(request) for request in llm.requests] == [True, True, False]
        assert turn.deliveries == ("One moment.", "It is 12.")

    async def test_other_tools_hold_from_the_next_turn_on(self, database: Path) -> None:
        """`set_tools` gives the tool, and takes it away."""
        llm = ScriptedLlm([reply("A."), call("say", words="B."), reply("C."), reply("D.")])
        async with Engine.open(database, model=llm, tools=[say, work]) as engine:
            conversation = await engine.create(tools=["work"])
            first = await conversation.send("1")
            await conversation.set_tools(["say"])
            second = await conversation.send("2")
            await conversation.set_tools(["work"])
            third = await conversation.send("3")

        assert [turn.deliveries for turn in (first, second, third)] == [("A.",), ("B.",), ("D.",)]


class TestNames:
    """A reminder names only tools that the request offers."""

    @pytest.mark.parametrize(
        ("tools", "named"),
        [
            (["respond_to_user", "mark_work_complete"], ["respond_to_user", "mark_work_complete"]),
            ([say, finish], ["say", "finish"]),
            (["talk", finish], ["talk", "finish"]),
            (["mark_work_complete"], ["mark_work_complete"]),
            ([finish], ["finish"]),
        ],
    )
    async def test_it_names_what_the_conversation_has(self, database: Path, tools: list[Any], named: list[str]) -> None:
        """S10: by the names under which they are offered; without a speaking tool it asks for the claim alone."""
        requests = await requests_of(database, RESPONDING, tools, [reply("One."), reply("Two."), reply("Three.")])

        reminder = requests[1].messages[-1]["content"]
        offered = {one["function"]["name"] for one in requests[1].tools}
        names = ("respond_to_user", "speak_to_user", "talk", "say", "mark_work_complete", "finish")
        assert [name for name in names if name in reminder] == [name for name in names if name in named]
        assert set(named) <= offered

    @pytest.mark.parametrize(("tools", "named"), [(["mark_work_complete"], ""), ([say, finish], "say")])
    async def test_a_missing_answer_is_asked_for_by_the_tool_for_it(
        self, database: Path, tools: list[Any], named: str
    ) -> None:
        """S17: or in plain words, where there is none."""
        claim = call("finish", result="Done.") if named else call("mark_work_complete", summary="Done.")
        requests = await requests_of(database, RESPONDING, tools, [claim, reply("The answer.")])

        reminder = requests[1].messages[-1]["content"]
        assert reminder == (TEXTS.answer_missing.replace("respond_to_user", named) if named else TEXTS.fallback)

    async def test_rules_of_a_policy_that_no_tool_fits_name_none(self) -> None:
        """A conversation may keep its rules while its engine has lost the tools."""
        context = Context(policy=RESPONDING)
        for text in (TEXTS.nudge, TEXTS.answer_missing, TEXTS.speak, TEXTS.claim_missing):
            assert name_tools(text, context, ExplainedTools()) == TEXTS.fallback


class TestReminders:
    """What the model is reminded of, with the real tools."""

    async def test_a_text_without_a_claim_leads_to_a_reminder(self, database: Path) -> None:
        """S10: first respond_to_user, then mark_work_complete; twice at most; in no transcript, update or later turn;
        then the turn ends with the fallback text."""
        llm = ScriptedLlm([reply("One."), reply("Two."), reply("Three.")])
        tools = ["respond_to_user", "mark_work_complete"]
        async with Engine.open(database, model=llm, tools=tools) as engine:
            conversation = await engine.create(policy=RESPONDING.model_copy(update={"nudges": 2}))
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            turn = await conversation.send("Hi")
            await watcher.until("turn_ended")
            await watcher.stop()
            said = [message.text for message in await conversation.transcript()]
            sent = [[message.get("content") for message in request.messages] for request in llm.requests]

        llm.assert_finished()
        nudge = TEXTS.nudge
        assert (turn.status, turn.reply) == ("incomplete", "Three.")
        assert [contents.count(nudge) for contents in sent] == [0, 1, 1]
        assert nudge.index("respond_to_user") < nudge.index("mark_work_complete")
        assert said == ["Hi", "One.", "Two.", "Three."]
        assert all(nudge not in str(update.data) for update in watcher.updates)

    async def test_a_reminder_is_not_in_the_request_of_the_next_turn(self, database: Path) -> None:
        """S10: it belongs to one request."""
        policy = RESPONDING.model_copy(update={"texts": Texts(nudge="Go on, or claim.")})
        finish = [call("respond_to_user", text="A"), call("mark_work_complete", summary="Done.")]
        answers = [reply("One."), *finish, *finish]

        requests = await requests_of(database, policy, ["respond_to_user", "mark_work_complete"], answers, ["1", "2"])

        sent = [[message.get("content") for message in request.messages] for request in requests]
        assert [contents.count("Go on, or claim.") for contents in sent] == [0, 1, 0, 0, 0]

    async def test_a_reminder_names_the_tool_as_it_is_offered(self, database: Path) -> None:
        """S10, S16: by its other name."""
        claim = call("mark_work_complete", summary="Done.")

        requests = await requests_of(
            database, RESPONDING, ["speak_to_user", "mark_work_complete"], [reply("Hm."), claim, claim]
        )

        told = [request.messages[-1]["content"] for request in requests[1:]]
        expected = (TEXTS.nudge, TEXTS.answer_missing)
        assert told == [text.replace("respond_to_user", "speak_to_user") for text in expected]

    async def test_a_claim_without_an_answer_leads_to_a_reminder(self, database: Path) -> None:
        """S17: the answer, once given, is delivered; no summary is made up."""
        channel = RecordingChannel()
        claim = call("mark_work_complete", summary="Read it.")
        llm = ScriptedLlm([claim, calls(call("respond_to_user", text="A"), claim)])
        tools = ["respond_to_user", "mark_work_complete"]
        async with Engine.open(database, model=llm, tools=tools, channels=[channel]) as engine:
            turn = await (await engine.create(policy=RESPONDING)).send("Read me it")

        assert [request.messages[-1]["content"] == TEXTS.answer_missing for request in llm.requests] == [False, True]
        assert (turn.reply, channel.texts) == ("A", ["A"])

    async def test_there_is_one_reminder_of_a_missing_answer(self, database: Path) -> None:
        """S17: a model that claims again ends its turn."""
        claim = call("mark_work_complete", summary="Read it.")

        requests = await requests_of(database, RESPONDING, ["respond_to_user", "mark_work_complete"], [claim, claim])

        assert len(requests) == 2

    async def test_the_next_turn_shows_what_the_user_heard(self, database: Path) -> None:
        """S19: the call with its words and its result is in the history, so the model knows what was said."""
        finish = call("mark_work_complete", summary="Done.")
        answers = [call("respond_to_user", text="A"), finish, call("respond_to_user", text="B"), finish]

        requests = await requests_of(database, RESPONDING, ["respond_to_user", "mark_work_complete"], answers, "12")

        said, result = requests[2].messages[2:4]
        assert said["tool_calls"][0]["function"] == {"name": "respond_to_user", "arguments": '{"text": "A"}'}
        assert json.loads(result["content"]) == {"success": True, "message": Texts().recorded_last}
