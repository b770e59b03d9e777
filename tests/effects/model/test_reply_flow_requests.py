"""What a model is sent in a reply flow, through a real engine: the time and the place, and how an answer comes
about."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    Conversation,
    Engine,
    File,
    LiteLlm,
    Location,
    ModelAnswer,
    ModelRequest,
    Policy,
    Profile,
    Settings,
    presets,
    tool,
)
from turnwise.effects import location
from turnwise.effects.model.request import CONTEXT_TITLE
from turnwise.effects.model.written_messages import request_digest
from turnwise.states import LlmResponse, Texts
from turnwise.testing import FunctionLlm, ManualClock, ScriptedLlm, call, failure, reply

from ...support.pictures import GIF
from ...support.servers.json_server import body, serving
from ...support.servers.openai_server import OpenAiServer, calls, says, violations

AT = datetime(2025, 9, 15, 17, 53, tzinfo=UTC)
NOTE = (
    "Current context:\n"
    "• Time: Monday, September 15, 2025 at 17:53 UTC\n"
    "• Location: San Francisco, CA, United States (America/Los_Angeles)"
)
UNKNOWN = "Current context:\n• Time: Monday, September 15, 2025 at 17:53 UTC\n• Location: Unknown"
SAN_FRANCISCO = Location("San Francisco", "CA", "United States", "America/Los_Angeles")
WHOLE = presets.reply_flow()
FLOW = presets.reply_flow().model_copy(
    update={"recall": False, "documents": False, "route": False, "dialogue": "transcript"}
)
"""The rules about requests, without those that need a store of older conversations."""


@tool(crash="pure")
async def web_search(query: str) -> str:
    """Search the web."""
    return f"18 degrees ({query})"


@tool(crash="pure")
async def camera() -> list[Any]:
    """Take a picture."""
    return ["Here it is.", File(GIF)]


def notes(request: ModelRequest) -> list[str]:
    """Return the notes with the time and the place that a request holds."""
    texts = []
    for message in request.messages:
        content = message.get("content") or ""
        parts = [part.get("text", "") for part in content] if isinstance(content, list) else [content]
        texts += [part for part in parts if CONTEXT_TITLE in part]
    return texts


class Flow:
    """A conversation under the reply flow, whose model gives these answers."""

    def __init__(self, *answers: Any, policy: Policy = FLOW, **options: Any) -> None:
        self.llm = ScriptedLlm(answers)
        self.policy = policy
        self.clock = ManualClock(AT)
        settings = options.pop("settings", Settings(location_enabled=True))
        self.options = {"location": lambda: SAN_FRANCISCO, "settings": settings, "tools": [web_search], **options}

    async def __aenter__(self) -> Flow:
        self.engine = Engine.open("sqlite://", model=self.llm, clock=self.clock, policy=self.policy, **self.options)
        await self.engine.__aenter__()
        self.conversation: Conversation = await self.engine.create(system="You are kind.")
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.engine.close()


class TestFreshContext:
    """J6: each request of a turn has exactly one note with the time and the place."""

    async def test_each_request_has_exactly_one(self) -> None:
        """J6: in the specification's words, in the first request, between tools, and in the next turn."""
        search = call("web_search", query="weather")
        async with Flow(search, call("web_search", query="news"), reply("18."), reply("Bye.")) as flow:
            await flow.conversation.send("What is it like?")
            await flow.conversation.send("Thanks")

        assert [notes(request) for request in flow.llm.requests[1:3]] == [[NOTE], [NOTE]]
        assert [flow.llm.requests[n].messages[-1]["content"] for n in (0, 3)] == [
            f"{NOTE}\n\nWhat is it like?",
            f"{NOTE}\n\nThanks",
        ]

    async def test_the_time_is_that_of_the_request(self) -> None:
        """J6: it is fresh in each request, and the location, too, when it was asked for again."""
        places = [SAN_FRANCISCO, None, "at home"]
        async with Flow(*[reply("Yes.")] * 3, location=lambda: places.pop(0)) as flow:
            for _ in range(3):
                await flow.conversation.send("Hi")
                await flow.clock.advance(3600)

        later = [
            NOTE,
            UNKNOWN.replace("17:53", "18:53"),
            UNKNOWN.replace("17:53", "19:53").replace("Unknown", "at home"),
        ]
        assert [notes(request) for request in flow.llm.requests] == [[f"{note}\n\nHi"] for note in later]

    async def test_it_is_never_stored(self, database: Path) -> None:
        """J6: neither as dialogue nor in the log, and the digest is that of the request without it."""
        llm = FunctionLlm(lambda request: "Yes.")
        settings = Settings(location_enabled=True)
        async with Engine.open(
            database, model=llm, policy=FLOW, settings=settings, location=lambda: "at home", clock=ManualClock(AT)
        ) as engine:
            for _ in range(2):
                conversation = await engine.create()
                await conversation.send("Hi")
                await conversation.send("And now?")
            transcript = [message.text for message in await conversation.transcript()]
            messages = await conversation.messages()
        stored = b"".join(path.read_bytes() for path in database.parent.iterdir())

        assert transcript == ["Hi", "Yes.", "And now?", "Yes."]
        assert "at home" in llm.requests[-1].messages[-1]["content"]
        assert "Current context" not in str(messages)
        assert b"Current context" not in stored
        assert b"at home" not in stored

    async def test_the_digest_is_that_of_the_request_without_it(self) -> None:
        """J6: so a replay that builds the request again finds the same one, wherever and whenever that is."""
        places = ["at home", "abroad"]
        async with Flow(reply("Yes."), reply("Yes."), location=lambda: places.pop(0)) as flow:
            await flow.conversation.send("Hi")
            await flow.clock.advance(3600)
            other = await flow.engine.create(system="You are kind.")
            await other.send("Hi")
            logs = [await flow.conversation.events(), await other.events()]

        assert ["home" in str(request.messages) for request in flow.llm.requests] == [True, False]
        responses = (entry.event for log in logs for entry in log)
        first, second = (event.digest for event in responses if isinstance(event, LlmResponse))
        request = flow.llm.requests[0]
        without = replace(request, messages=(request.messages[0], {"role": "user", "content": "Hi"}))
        assert first == second == request_digest(without)

    async def test_the_beginning_of_later_requests_is_the_same(self) -> None:
        """J6: what a provider has cached stays valid up to the newest message."""
        async with Flow(reply("Yes."), call("web_search", query="a"), reply("No."), reply("Bye.")) as flow:
            for text in ("One", "Two", "Three"):
                await flow.conversation.send(text)

        without = [request.messages[:-1] for request in flow.llm.requests]
        assert without[1][1]["content"] == "One"
        assert without[2][: len(without[1])] == without[1]
        assert without[3][: len(without[2])] == without[2]

    async def test_it_stands_in_front_of_images(self) -> None:
        """Those of the user, and those of a tool."""
        async with Flow(call("camera"), reply("A dot."), tools=[camera]) as flow:
            await flow.conversation.send("Look", files=[File(GIF)])

        for request in flow.llm.requests:
            assert notes(request) == [NOTE]
            assert request.messages[-1]["content"][0] == {"type": "text", "text": NOTE}

    async def test_it_stands_in_front_of_a_reminder(self) -> None:
        """J11: the fallback prompt and the note are one message."""
        async with Flow(call("web_search", query="a"), reply(""), reply("18.")) as flow:
            await flow.conversation.send("Hi")

        assert flow.llm.requests[-1].messages[-1]["content"] == f"{NOTE}\n\n{Texts().fallback}"

    @pytest.mark.parametrize("preset", [presets.assistant(), presets.talk()])
    async def test_other_conversations_have_none(self, preset: Policy) -> None:
        """Only the rule `fresh_context` puts it into a request, and only then anybody is asked."""
        asked: list[str] = []
        async with Flow(reply("Yes."), policy=preset, location=lambda: asked.append("?"), tools=["talk"]) as flow:
            await flow.conversation.send("Hi")

        assert notes(flow.llm.requests[0]) == asked == []


class TestLocation:
    """J6: location off or failing is "Location: Unknown", and the turn runs."""

    async def test_a_function_is_not_asked_if_the_settings_forbid_it(self, caplog: pytest.LogCaptureFixture) -> None:
        """J6, J19 (location_enabled): and the log says why the function is not."""
        settings = Settings(location_enabled=False, location_ip_address="203.0.113.7")
        asked: list[str] = []
        async with Flow(reply("Yes."), settings=settings, location=lambda: asked.append("?")) as flow:
            turn = await flow.conversation.send("Hi")

        assert turn.reply == "Yes."
        assert notes(flow.llm.requests[0]) == [f"{UNKNOWN}\n\nHi"]
        assert asked == []
        assert "location_enabled is off" in caplog.text

    @pytest.mark.parametrize("location", [lambda: "Espoo", "Espoo", Location(city="Espoo")])
    async def test_a_location_that_is_given_is_stated(self, location: Any) -> None:
        """J6: an application that gives a place, or a function, needs no setting besides."""
        async with Flow(reply("Yes."), settings=Settings(), location=location) as flow:
            await flow.conversation.send("Hi")

        assert "• Location: Espoo" in notes(flow.llm.requests[0])[0]

    async def test_an_address_is_looked_up_only_if_it_is_enabled(self) -> None:
        """J6, J19 (location_enabled): a configured address alone asks no service."""
        with serving(body(b'{"city": "Espoo"}')) as server, pytest.MonkeyPatch.context() as patched:
            patched.setattr(location, "SERVICE", server.url)
            settings = Settings(location_ip_address="203.0.113.7", location_auto_detect=True)
            async with Flow(reply("Yes."), settings=settings, location=None) as flow:
                await flow.conversation.send("Hi")

        assert server.paths == []
        assert UNKNOWN in notes(flow.llm.requests[0])[0]

    @pytest.mark.parametrize(
        ("settings", "asked"),
        [
            ({"location_ip_address": "203.0.113.7"}, "/203.0.113.7"),
            ({"location_auto_detect": True}, "/"),
            ({"location_ip_address": "203.0.113.7", "location_auto_detect": True}, "/203.0.113.7"),
        ],
    )
    async def test_a_service_is_asked_as_the_settings_say(
        self, settings: dict[str, Any], asked: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """J6, J19 (location_ip_address, location_auto_detect): once, over a real socket."""
        monkeypatch.setattr(location, "WAIT", 60)
        with serving(body(b'{"city": "Espoo", "country": "Finland"}')) as server:
            monkeypatch.setattr(location, "SERVICE", server.url)
            chosen = Settings(location_enabled=True, **settings)
            async with Flow(reply("Yes."), reply("No."), settings=chosen, location=None) as flow:
                await flow.conversation.send("Hi")
                await flow.conversation.send("Again")

        assert server.paths == [asked]
        assert [str(request.messages).count("• Location: Espoo, Finland") for request in flow.llm.requests] == [1, 1]

    async def test_a_function_that_raises_does_not_break_a_turn(self) -> None:
        """J6: context raising, the turn still runs."""

        def broken() -> str:
            raise RuntimeError("no signal")

        async with Flow(reply("Yes."), location=broken) as flow:
            turn = await flow.conversation.send("Hi")

        assert (turn.status, turn.reply) == ("completed", "Yes.")
        assert notes(flow.llm.requests[0]) == [f"{UNKNOWN}\n\nHi"]

    async def test_a_cancel_while_the_location_is_asked_for_ends_the_turn(self) -> None:
        """Nobody waits for the location then."""
        began, released = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            began.set()
            await released.wait()

        async with Flow(reply("Yes."), location=slow) as flow:
            sending = asyncio.create_task(flow.conversation.send("Hi"))
            await began.wait()
            await flow.conversation.cancel()
            turn = await sending
            released.set()

        assert turn.status == "cancelled"
        assert flow.llm.requests == []


class TestAnswers:
    """How a reply comes about in a reply flow."""

    async def test_thinking_is_not_shown_and_goes_back_within_the_turn(self) -> None:
        """J10: a response of thinking only is not a reply, the turn goes on, and no reply or later turn has it."""
        sealed = ({"type": "thinking", "thinking": "Hm.", "signature": "s"},)
        thoughts = ModelAnswer(thinking="Hm.", opaque=sealed)
        working = ModelAnswer(thinking="Hm.", opaque=sealed, tool_calls=call("web_search", query="a").tool_calls)
        async with Flow(thoughts, working, reply("18."), reply("Bye.")) as flow:
            turn = await flow.conversation.send("Hi")
            await flow.conversation.send("Thanks")

        third, fourth = flow.llm.requests[2:]
        assert (turn.reply, turn.status) == ("18.", "completed")
        assert [message["thinking_blocks"] for message in third.messages if "thinking_blocks" in message] == [[*sealed]]
        assert "Hm." not in str(fourth.messages)

    async def test_after_empty_responses_there_is_one_plain_request(self) -> None:
        """J11, J20: the fallback prompt once, then system and user text only: no tools, no context, no reminder."""
        async with Flow(call("web_search", query="a"), reply(""), reply(""), reply("18.")) as flow:
            turn = await flow.conversation.send("Hi")

        plain = flow.llm.requests[-1]
        assert turn.reply == "18."
        assert plain.messages == ({"role": "system", "content": "You are kind."}, {"role": "user", "content": "Hi"})
        assert plain.tools == ()

    async def test_lines_of_the_tool_protocol_are_removed(self) -> None:
        """J13: lines that begin with the marker; one within a line stays; if nothing remains, the fallback."""
        spoken = "TOOL web_search\nIt is a TOOL for 18 degrees.\n  TOOL: done\nTOOLS are not markers."
        async with Flow(reply(spoken), call("web_search", query="a"), reply("TOOL x\nTOOL y"), reply("18.")) as flow:
            first = await flow.conversation.send("Hi")
            second = await flow.conversation.send("Again")
            shown = [message.text for message in await flow.conversation.transcript()]

        assert first.reply == "It is a TOOL for 18 degrees.\nTOOLS are not markers."
        assert second.reply == "18."
        assert flow.llm.requests[-1].messages[-1]["content"].endswith(Texts().fallback)
        assert shown[0] == "Hi"

    async def test_an_unclear_message_is_answered_with_a_question(self) -> None:
        """J5: one short question in text ends the turn."""
        async with Flow(reply("Which city?")) as flow:
            turn = await flow.conversation.send("weather inn")

        assert (turn.status, turn.reply, len(flow.llm.requests)) == ("completed", "Which city?", 1)

    async def test_a_plan_in_json_is_plain_content(self) -> None:
        """J21: it is not executed."""
        plan = '{"steps": [{"action": "web_search", "query": "a"}, {"action": "FINAL_RESPONSE"}]}'
        async with Flow(reply(plan)) as flow:
            turn = await flow.conversation.send("Hi")

        assert (turn.reply, len(flow.llm.requests)) == (plan, 1)

    async def test_the_system_message_lists_what_is_offered(self) -> None:
        """J5: the tools of the conversation, by the name and the first sentence."""
        async with Flow(reply("Yes."), tools=[web_search, camera]) as flow:
            await flow.conversation.send("Hi")

        system = flow.llm.requests[0].messages[0]["content"]
        assert "\n\nTools:\n- web_search: Search the web.\n- camera: Take a picture.\n\n" in system
        assert system.startswith(f"You are kind.\n\n{Texts().transcription_note}\n\n{Texts().tool_protocol}")


class TestSteps:
    """J19: the log names the step and no content."""

    async def test_each_request_is_a_record(self, caplog: pytest.LogCaptureFixture) -> None:
        """Which request of the turn it is, and with how many tools. A retried request has the same number."""
        caplog.set_level(logging.INFO, logger="turnwise.planning")
        answers = (call("web_search", query="secret"), failure("timeout"), reply("18 degrees"), reply("Bye"))
        policy = FLOW.model_copy(update={"retry": FLOW.retry.model_copy(update={"base": 0.0})})
        async with Flow(*answers, policy=policy, tools=[web_search, camera]) as flow:
            await flow.conversation.send("Say the secret")
            await flow.conversation.send("Thanks")

        records = [record for record in caplog.records if record.name == "turnwise.planning"]
        assert [record.getMessage() for record in records] == [
            "Request 1 of turn 1, tools: 2.",
            "Request 2 of turn 1, tools: 2.",
            "Request 2 of turn 1, tools: 2.",
            "Request 1 of turn 2, tools: 2.",
        ]


async def test_replay_needs_no_location(database: Path) -> None:
    """The log holds no note, and what was asked is not asked again."""
    asked: list[str] = []
    options: dict[str, Any] = {"policy": FLOW, "settings": Settings(location_enabled=True)}
    async with Engine.open(
        database, model=FunctionLlm(lambda _: "Yes."), location=lambda: asked.append("?"), **options
    ) as engine:
        conversation = await engine.create()
        await conversation.send("Hi")
        report = await conversation.replay()

    assert (report.divergence, asked) == (None, ["?"])


class TestTheWholeFlow:
    """The preset with all of its rules: two conversations of one owner, a document source and a tool."""

    async def requests(self, texts: list[str]) -> list[ModelRequest]:
        """Say one text in a first conversation and the others in a second one; return the requests of the second, but
        for those that prepare a turn."""
        llm = FunctionLlm(self.answer)
        async with Engine.open(
            "sqlite://",
            model=llm,
            policy=WHOLE,
            tools=[web_search],
            settings=Settings(location_enabled=True),
            location=lambda: SAN_FRANCISCO,
            documents=lambda query: ["Opening hours: 9 to 5."],
            profiles=[Profile(name="guide", prompt="You show people the city.")],
            clock=(clock := ManualClock(AT)),
        ) as engine:
            first = await engine.create(owner="ada")
            await first.send("My favourite dish is sushi.")
            await clock.advance(3600)
            second = await engine.create(owner="ada", system="You are kind.")
            for text in texts:
                await second.send(text)
        return [one for one in llm.requests if one.purpose == "converse" and one.conversation_id == second.id]

    def answer(self, request: ModelRequest) -> Any:
        """Name words to search for, call a tool once in each turn, then answer."""
        if request.purpose == "enrich":
            return '{"keywords": ["sushi"], "from": null, "to": null}'
        has_result = any(message["role"] == "tool" for message in request.messages)
        return "There is." if has_result else call("web_search", query="sushi")

    async def test_everything_stands_in_order(self) -> None:
        """J4, J5, J22: instructions, profile, note, protocol, tools; behind the dialogue what was recalled, and
        documents."""
        (first, second) = await self.requests(["Where is my favourite dish served?"])
        system = first.messages[0]["content"]

        texts = Texts()
        parts = ("You are kind.", "You show people the city.", texts.transcription_note, texts.tool_protocol)
        tools = ("Tools:\n- web_search: Search the web.\n", texts.tools_guidance)
        places = [system.find(part) for part in (*(f"{part}\n" for part in parts), *tools)]
        assert -1 not in places
        assert places == sorted(places)
        assert second.messages[0] == first.messages[0]
        for last in (one.messages[-1]["content"] for one in (first, second)):
            titles = ("Relevant conversation history:\n", "Relevant documents:\n")
            assert [last.count(title) for title in titles] == [1, 1]
            assert last.index("My favourite dish is sushi.") < last.index("Opening hours: 9 to 5.")

    @pytest.mark.slow
    async def test_no_note_piles_up(self) -> None:
        """J6: with the texts of the last minutes, in every request of three turns; each ends with the newest text or
        the note, and the dialogue before it has none."""
        requests = await self.requests(["One", "Two", "Three"])

        assert len(requests) == 6
        assert [len(notes(request)) for request in requests] == [1] * 6
        assert [str(request.messages).count(CONTEXT_TITLE) for request in requests] == [1] * 6
        assert [message["content"] for message in requests[4].messages[1:]][:2] == ["One", "There is."]


@pytest.mark.parametrize("name", ["openai/test", "mistral/mistral-small"])
async def test_providers_take_the_requests(name: str) -> None:
    """J6: through litellm and a real socket, which checks what it is sent."""
    script = [calls(("web_search", {"query": "a"})), says(""), says("18.")]
    async with OpenAiServer(script) as server:
        model = LiteLlm(name, api_base=server.url, api_key="test")
        async with Engine.open("sqlite://", model=model, policy=FLOW, tools=[web_search]) as engine:
            turn = await (await engine.create(system="You are kind.")).send("What is it like?")

    assert turn.reply == "18."
    assert [violations(sent) for sent in server.requests] == [[], [], []]
    assert [str(sent["messages"]).count(CONTEXT_TITLE) for sent in server.requests] == [1, 1, 1]
