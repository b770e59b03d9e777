"""Content that a model refuses fails at most the turn in which it came, and the conversation goes on without it.

The models are functions of the request: they refuse whatever request holds what they do not take, as providers do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    CompactionFailed,
    Conversation,
    Engine,
    File,
    LlmFailure,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ModelSpec,
    Policy,
    Recent,
    Retry,
    tool,
)
from turnwise.persistence.maintenance.export import import_records
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.states.values.messages import Withheld
from turnwise.states.values.value import FailureKind
from turnwise.testing import FunctionLlm, call, reply

from ..support.pictures import GIF, PNG, data_url

QUICK = Policy(retry=Retry(base=0.01))


@tool(crash="pure")
async def fetch(what: str = "") -> str:
    """Fetch a page."""
    return "The page says FORBIDDEN words."


@tool(crash="pure")
async def look() -> Any:
    """Take a picture."""
    return ["A door:", File(PNG)]


class Provider:
    """A model that refuses requests by `refuse`, which returns a kind of failure or None, and calls the tool whose name
    the user's message says. `seen` are the requests."""

    def __init__(self, refuse: Callable[[str], FailureKind | None], name: str = "model") -> None:
        self.refuse = refuse
        self.seen: list[str] = []
        self.llm = FunctionLlm(self._answer)
        self.llm.name = name  # type: ignore[misc]

    def _answer(self, request: ModelRequest) -> ModelAnswer:
        text = json.dumps(request.messages)
        self.seen.append(text)
        if (kind := self.refuse(text)) is not None:
            raise LlmFailure(kind, "Refused.")
        last = request.messages[-1]
        named = [name for name in ("fetch", "look") if last["role"] == "user" and f"please {name}" in text_of(last)]
        return call(named[0]) if named else reply("Fine.")


def text_of(message: dict[str, Any]) -> str:
    """The text of a message as it is sent."""
    content = message["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def no_images(text: str) -> FailureKind | None:
    """Refuse every request that shows an image."""
    return "unsupported_content" if "image_url" in text else None


def no_gif(text: str) -> FailureKind | None:
    """Refuse every request that shows an animation."""
    return "unreadable_content" if "image/gif" in text else None


def no_forbidden(text: str) -> FailureKind | None:
    """Refuse every request with a word."""
    return "content_filter" if "FORBIDDEN" in text else None


def engine_with(*providers: Provider, database: Path | str = "sqlite://", policy: Policy = QUICK) -> Engine:
    """An engine that asks the first provider, and has the others."""
    first, *others = (provider.llm for provider in providers)
    return Engine.open(database, model=first, models=others, tools=[fetch, look], policy=policy)


async def assert_exact(conversation: Conversation) -> None:
    """Every request that was answered is written again as it was sent, and the log replays as it was stored."""
    for step in await conversation.steps():
        for _ in step.requests:
            view = await conversation.model_request(step.seq)
            assert view.is_exact is not False


async def assert_replays(engine: Engine, conversation: Conversation) -> None:
    """The log comes out as it was stored."""
    await assert_exact(conversation)
    assert (await replay_conversation(engine.store, conversation.id)).divergence is None


class TestAModelWithoutEyes:
    """`unsupported_content`."""

    async def test_a_users_image_gives_way_to_a_note_in_the_same_turn(self) -> None:
        """The model is asked once more, and is told that there is an image it cannot see."""
        provider = Provider(no_images)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            turn = await conversation.send("What is this?", files=[PNG])
            message, _ = await conversation.transcript()

            assert (turn.status, turn.reply, len(provider.seen)) == ("completed", "Fine.", 2)
            assert "an image that you cannot see" in provider.seen[-1]
            assert message.withheld == (Withheld(what="image", kind="unsupported_content", model="model"),)
            await assert_replays(engine, conversation)

    async def test_it_is_never_sent_an_image_again(self) -> None:
        """Later images are withheld before they are sent, those of tools too."""
        provider = Provider(no_images)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("What is this?", files=[PNG])
            turns = [await conversation.send("And this?", files=[GIF]), await conversation.send("please look")]

            assert [turn.status for turn in turns] == ["completed", "completed"]
            assert ["image_url" in text for text in provider.seen] == [True, False, False, False, False]
            await assert_replays(engine, conversation)

    async def test_a_model_with_eyes_sees_what_another_one_could_not(self) -> None:
        """The conversation changes to a model without eyes and back: no turn fails, and nothing is lost."""
        blind, seeing = Provider(no_images, "blind"), Provider(lambda _: None, "seeing")
        async with engine_with(seeing, blind) as engine:
            conversation = await engine.create()
            await conversation.send("What is this?", files=[PNG])
            statuses = []
            for name in ("blind", "blind", "seeing"):
                models = tuple(spec for spec in engine_specs(name))
                await conversation.set_policy(conversation.policy.replace(models=models))
                statuses.append((await conversation.send("And?")).status)

            assert statuses == ["completed"] * 3
            assert ["image_url" in text for text in blind.seen] == [True, False, False]
            assert "image_url" in seeing.seen[-1]
            await assert_replays(engine, conversation)

    async def test_a_model_that_has_seen_images_is_not_taken_for_blind(self) -> None:
        """It refuses one kind of image: only that one is withheld."""
        provider = Provider(lambda text: "unsupported_content" if "image/gif" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("What is this?", files=[PNG])
            turns = [await conversation.send("And this?", files=[GIF]), await conversation.send("Go on")]

            assert [turn.status for turn in turns] == ["completed", "completed"]
            assert "image/png" in provider.seen[-1]
            assert "image/gif" not in provider.seen[-1]

    async def test_what_is_no_image_fails_once(self) -> None:
        """A model that takes something else not fails the turn without anything being withheld."""
        provider = Provider(lambda text: "unsupported_content" if "strange" in text else None)
        async with engine_with(provider) as engine:
            turn = await (await engine.create()).send("Something strange")

        assert (turn.status, turn.failure, len(provider.seen)) == ("failed", "Refused.", 1)


class TestAnImageThatCannotBeRead:
    """`unreadable_content`."""

    async def test_only_the_new_images_are_withheld(self) -> None:
        """What the model has seen before it still sees."""
        provider = Provider(no_gif)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("What is this?", files=[PNG])
            turn = await conversation.send("And this?", files=[GIF])
            await conversation.send("Go on")

            assert turn.status == "completed"
            assert ("image/png" in provider.seen[-1], "the file is broken" in provider.seen[-1]) == (True, True)
            assert len(provider.seen) == 4
            await assert_replays(engine, conversation)

    async def test_an_address_that_has_gone_is_withheld(self) -> None:
        """An image that was read before can vanish from the web."""
        gone = False
        provider = Provider(lambda text: "unreadable_content" if gone and "example.org" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("What is this?", files=["https://example.org/a.png"])
            gone = True
            turn = await conversation.send("And the colour?")

        assert turn.status == "completed"

    async def test_one_in_a_given_history(self) -> None:
        """A conversation that begins with such an image answers its first message."""
        provider = Provider(no_gif)
        part = {"type": "image_url", "image_url": {"url": data_url("image/gif", GIF)}}
        text = {"type": "text", "text": "Behind the image"}
        given = [{"role": "user", "content": [part, text]}, {"role": "assistant", "content": "I see."}]
        async with engine_with(provider) as engine:
            conversation = await engine.create(messages=given)
            turn = await conversation.send("Hello")

        assert turn.status == "completed"
        assert "Behind the image" in provider.seen[-1]


class TestAFilter:
    """`content_filter`."""

    async def test_a_message_fails_its_turn_alone(self) -> None:
        """The failure says what follows, the model is not asked again, and the next message is asked without it."""
        provider = Provider(no_forbidden)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            failed = await conversation.send("Say FORBIDDEN words")
            turns = [await conversation.send("Never mind."), await conversation.send("Go on.")]
            refused = (await conversation.transcript())[2]

            assert (failed.status, len(provider.seen)) == ("failed", 4)
            assert failed.failure is not None and "not shown to the model any more" in failed.failure
            assert [turn.status for turn in turns] == ["completed", "completed"]
            assert (refused.text, refused.withheld[0].what) == ("Say FORBIDDEN words", "text")
            await assert_replays(engine, conversation)

    async def test_several_messages_in_a_row(self) -> None:
        """Each fails its own turn."""
        provider = Provider(no_forbidden)
        async with engine_with(provider) as engine:
            conversation = await engine.create(system="Be kind.")
            failed = [await conversation.send(f"FORBIDDEN {n}") for n in range(3)]
            turn = await conversation.send("Hello")

        assert [one.status for one in failed] == ["failed"] * 3
        assert turn.status == "completed"

    async def test_a_result_is_asked_without_in_the_same_turn(self) -> None:
        """Each time a result is refused, in one turn and in the next."""
        provider = Provider(no_forbidden)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            turns = [await conversation.send(text) for text in ("please fetch", "please fetch", "Thanks")]

            assert [turn.status for turn in turns] == ["completed"] * 3
            assert [no_forbidden(text) for text in provider.seen].count("content_filter") == 2
            assert "The result of this tool is not shown to you" in provider.seen[-1]
            await assert_replays(engine, conversation)

    async def test_a_call_that_the_model_wrote_itself(self) -> None:
        """Its arguments give way, and its result stays."""
        asked: list[str] = []

        def respond(request: ModelRequest) -> ModelAnswer:
            text = json.dumps(request.messages)
            asked.append(text)
            if "NASTY" in text:
                raise LlmFailure("content_filter", "Refused.")
            return call("fetch", what="NASTY") if len(asked) == 1 else reply("Fine.")

        async with Engine.open("sqlite://", model=FunctionLlm(respond), tools=[fetch], policy=QUICK) as engine:
            conversation = await engine.create()
            turns = [await conversation.send("Go"), await conversation.send("Go on")]

        assert [turn.status for turn in turns] == ["completed", "completed"]

    async def test_the_thinking_of_an_answer_that_is_withheld(self) -> None:
        """It does not go back in any other field either: neither as thinking, nor sealed, nor with the call."""
        hidden = {
            "thinking": "FORBIDDEN thought",
            "opaque": ({"type": "thinking", "thinking": "FORBIDDEN", "signature": "s"},),
            "opaque_fields": {"reasoning_details": [{"type": "reasoning.text", "text": "FORBIDDEN"}]},
        }
        made = ModelCall("c1", "fetch", "{}", opaque={"extra_content": {"note": "FORBIDDEN"}})
        seen: list[str] = []

        def respond(request: ModelRequest) -> ModelAnswer:
            seen.append(json.dumps(request.messages))
            if "FORBIDDEN" in seen[-1]:
                raise LlmFailure("content_filter", "Refused.")
            if "please fetch" in text_of(request.messages[-1]):
                return ModelAnswer("I look.", tool_calls=(made,), **hidden)
            return reply("Fine.")

        async with Engine.open("sqlite://", model=FunctionLlm(respond), tools=[fetch], policy=QUICK) as engine:
            conversation = await engine.create()
            turns = [await conversation.send("please fetch"), await conversation.send("Thanks.")]
            await assert_replays(engine, conversation)

        assert [turn.status for turn in turns] == ["completed", "completed"]
        assert "FORBIDDEN" not in seen[-1]

    async def test_a_given_history_survives_a_refused_first_message(self) -> None:
        """What did not help is shown again."""
        provider = Provider(no_forbidden)
        given = [{"role": "user", "content": "My name is Ann."}, {"role": "assistant", "content": "Hello Ann."}]
        async with engine_with(provider) as engine:
            conversation = await engine.create(messages=given)
            failed = await conversation.send("FORBIDDEN")
            turn = await conversation.send("What is my name?")

        assert (failed.status, turn.status) == ("failed", "completed")
        assert "My name is Ann." in provider.seen[-1]

    async def test_something_in_a_given_history(self) -> None:
        """The first message of such a conversation is answered."""
        provider = Provider(no_forbidden)
        given = [{"role": "user", "content": "FORBIDDEN"}, {"role": "assistant", "content": "I see."}]
        async with engine_with(provider) as engine:
            turn = await (await engine.create(messages=given)).send("Hello")

        assert turn.status == "completed"

    async def test_a_filter_that_changes_its_mind(self) -> None:
        """What was accepted before is refused later: one turn fails, and the next one is answered without it."""
        strict = False
        provider = Provider(lambda text: "content_filter" if strict and "old" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("Something old")
            strict = True
            turns = [await conversation.send("One"), await conversation.send("Two"), await conversation.send("Three")]

            assert [turn.status for turn in turns] == ["failed", "completed", "completed"]
            await assert_replays(engine, conversation)

    async def test_another_model_with_another_filter(self) -> None:
        """What the first model accepted is withheld from the other one alone, in the same turn."""
        first, strict = Provider(lambda _: None, "first"), Provider(no_forbidden, "strict")
        async with engine_with(first, strict) as engine:
            conversation = await engine.create()
            await conversation.send("Say FORBIDDEN words")
            await conversation.set_policy(conversation.policy.replace(models=engine_specs("strict")))
            turn = await conversation.send("Go on")
            await conversation.set_policy(conversation.policy.replace(models=engine_specs("first")))
            await conversation.send("Go back")

        assert turn.status == "completed"
        assert "FORBIDDEN" in first.seen[-1]

    async def test_a_cancelled_turn_leaves_its_result_to_the_next_one(self) -> None:
        """The next turn is answered all the same."""
        held = asyncio.Event()

        @tool(crash="pure")
        async def wait() -> str:
            """Wait."""
            held.set()
            await asyncio.sleep(60)
            return ""

        def respond(request: ModelRequest) -> ModelAnswer:
            if "FORBIDDEN" in json.dumps(request.messages):
                raise LlmFailure("content_filter", "Refused.")
            answer = call("fetch"), call("wait")
            made = tuple(one.tool_calls[0] for one in answer)
            is_first = request.messages[-1]["content"] == "Go"
            return ModelAnswer(tool_calls=made, finish_reason="tool_calls") if is_first else reply("Fine.")

        async with Engine.open("sqlite://", model=FunctionLlm(respond), tools=[fetch, wait], policy=QUICK) as engine:
            conversation = await engine.create()
            await conversation.send("Go", wait=False)
            await asyncio.wait_for(held.wait(), 30)
            await conversation.cancel()
            turn = await conversation.send("Hello")

        assert turn.status == "completed"

    async def test_instructions_that_are_refused(self) -> None:
        """Nothing can be asked without them. From the second turn on the failure says so, and nothing is endless."""
        provider = Provider(no_forbidden)
        async with engine_with(provider) as engine:
            conversation = await engine.create(system="FORBIDDEN")
            turns = [await conversation.send("One"), await conversation.send("Two")]

        assert [turn.status for turn in turns] == ["failed", "failed"]
        assert "instructions" in str(turns[1].failure)
        assert len(provider.seen) <= 4

    async def test_a_retry_is_answered(self) -> None:
        """The note stands in place of the message that was refused."""
        provider = Provider(no_forbidden)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("FORBIDDEN")
            turns = [await conversation.retry(), await conversation.send("Go on")]

        assert [turn.status for turn in turns] == ["completed", "completed"]

    async def test_an_answer_that_was_filtered(self) -> None:
        """What people said is left alone, and the next turn is answered in any case."""
        refusals = iter([True, True])

        def respond(request: ModelRequest) -> ModelAnswer:
            if "FORBIDDEN" in json.dumps(request.messages) and next(refusals, True):
                raise LlmFailure("content_filter", "The answer was withheld.", of_answer=True)
            return reply("Fine.")

        async with Engine.open("sqlite://", model=FunctionLlm(respond), policy=QUICK) as engine:
            conversation = await engine.create()
            failed = await conversation.send("FORBIDDEN")
            withheld = (await conversation.transcript())[0].withheld
            turn = await conversation.send("Hello")

        assert (failed.status, failed.failure, withheld) == ("failed", "The answer was withheld.", ())
        assert turn.status == "completed"

    async def test_an_image_of_a_message(self) -> None:
        """The text is asked without the image."""
        provider = Provider(lambda text: "content_filter" if "image_url" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            turn = await conversation.send("What is this?", files=[PNG])

        assert turn.status == "completed"
        assert "What is this?" in provider.seen[-1]

    async def test_under_the_dialogue_of_the_last_minutes(self, database: Path) -> None:
        """What was said a minute ago comes in by the memory, and gives way there."""
        provider = Provider(no_forbidden)
        async with engine_with(provider, database=database, policy=QUICK.replace(dialogue=Recent())) as engine:
            conversation = await engine.create(owner="ann")
            failed = await conversation.send("FORBIDDEN")
            turn = await conversation.send("Hello")

        assert (failed.status, turn.status) == ("failed", "completed")

    async def test_a_summary_that_is_refused(self) -> None:
        """It gives way like any other text."""

        def respond(request: ModelRequest) -> ModelAnswer:
            if request.purpose == "condense":
                return reply("It was about NASTY things.")
            if "NASTY" in json.dumps(request.messages):
                raise LlmFailure("content_filter", "Refused.")
            return reply("Fine.")

        async with Engine.open("sqlite://", model=FunctionLlm(respond), policy=QUICK) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            await conversation.compact()
            turns = [await conversation.send("One"), await conversation.send("Two")]

        assert [turn.status for turn in turns] == ["completed", "completed"]

    @pytest.mark.parametrize("refused", ["FORBIDDEN", "Condense", "record"])
    async def test_a_history_that_is_refused_when_it_is_condensed(self, refused: str) -> None:
        """The conversation goes on: without what was refused if that helps, else with its newest words as they were
        said. The next turns find room."""
        condensed: list[str] = []

        def respond(request: ModelRequest) -> ModelAnswer:
            text = json.dumps(request.messages)
            if request.purpose == "condense":
                condensed.append(text)
                if refused in text:
                    raise LlmFailure("content_filter", "Refused.")
                return reply("It was about a page.")
            if "please fetch" in text_of(request.messages[-1]):
                return call("fetch")
            if text.count("Go on") == 1 and "[The provider" not in text and "It was about" not in text:
                raise LlmFailure("context_window", "Too long.")
            return reply("Fine.")

        async with Engine.open("sqlite://", model=FunctionLlm(respond), tools=[fetch], policy=QUICK) as engine:
            conversation = await engine.create()
            sent = ("please fetch", "Condense it, Anna", "Go on", "Go on")
            turns = [await conversation.send(text) for text in sent]
            await assert_replays(engine, conversation)

        assert [turn.status for turn in turns] == ["completed"] * 4
        assert "FORBIDDEN" in condensed[0] and "FORBIDDEN" not in condensed[1]

    async def test_a_history_that_is_refused_when_people_want_it_condensed(self) -> None:
        """Nothing needs the room, so nothing is given up for it."""
        provider = Provider(lambda text: "content_filter" if "<record>" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            with pytest.raises(CompactionFailed):
                await conversation.compact()
            turn = await conversation.send("Go on")

        assert turn.status == "completed"
        assert "Hello" in provider.seen[-1]

    async def test_with_a_reply_on_failure(self) -> None:
        """The user reads the sentence as a reply, and the next message is answered."""
        provider = Provider(no_forbidden)
        async with engine_with(provider, policy=QUICK.replace(on_failure="reply")) as engine:
            conversation = await engine.create()
            failed = await conversation.send("FORBIDDEN")
            turn = await conversation.send("Hello")

        assert failed.status == "failed"
        assert turn.status == "completed"


class TestAReasonThatNobodyKnows:
    """`invalid_request` and `server_error`: content may be what was refused, in words that nobody has listed."""

    async def test_a_new_image_is_withheld_at_once(self) -> None:
        """The request is asked without it, in the same turn."""
        provider = Provider(lambda text: "invalid_request" if "image_url" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            turns = [await conversation.send("What is this?", files=[PNG]), await conversation.send("Go on")]

            assert [turn.status for turn in turns] == ["completed", "completed"]
            assert len(provider.seen) == 3
            await assert_replays(engine, conversation)

    async def test_an_innocent_image_is_shown_again(self) -> None:
        """The request was refused without it, too: something else was the reason."""
        broken = True
        provider = Provider(lambda _: "invalid_request" if broken else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            failed = await conversation.send("What is this?", files=[PNG])
            broken = False
            turn = await conversation.send("Go on")

        assert (failed.status, turn.status) == ("failed", "completed")
        assert "image_url" in provider.seen[-1]

    async def test_a_message_fails_its_turn_alone(self) -> None:
        """The next turn is refused, too, and then answered without what failed before."""
        provider = Provider(lambda text: "invalid_request" if "odd" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            turns = [await conversation.send(text) for text in ("Hello", "Something odd", "Never mind", "Go on")]

        assert [turn.status for turn in turns] == ["completed", "failed", "completed", "completed"]

    async def test_a_result_fails_its_turn_alone(self) -> None:
        """As a message does."""
        provider = Provider(lambda text: "invalid_request" if "FORBIDDEN" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            turns = [await conversation.send(text) for text in ("please fetch", "Never mind", "Go on")]

        assert [turn.status for turn in turns] == ["failed", "completed", "completed"]

    async def test_a_server_that_breaks_at_an_image(self) -> None:
        """Its error is waited for first, since it may pass by itself."""
        provider = Provider(lambda text: "server_error" if "image_url" in text else None)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            turns = [await conversation.send("What is this?", files=[PNG]), await conversation.send("Go on")]

        assert [turn.status for turn in turns] == ["failed", "completed"]


class TestWhatIsKept:
    """What is withheld follows from the log."""

    @pytest.mark.parametrize("text", ["FORBIDDEN", "please fetch"])
    async def test_by_a_new_process(self, database: Path, text: str) -> None:
        """An engine that opens the database later does not send it either."""
        provider, later = Provider(no_forbidden), Provider(no_forbidden)
        async with engine_with(provider, database=database) as engine:
            conversation = await engine.create()
            await conversation.send(text)
        async with engine_with(later, database=database) as engine:
            turn = await (await engine.get(conversation.id)).send("Hello")

        assert (turn.status, [no_forbidden(text) for text in later.seen]) == ("completed", [None])

    async def test_by_a_fork(self) -> None:
        """A copy is asked without it."""
        provider = Provider(no_forbidden)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("FORBIDDEN")
            copy = await conversation.fork()
            asked = len(provider.seen)
            turn = await copy.send("Hello")

        assert (turn.status, len(provider.seen) - asked) == ("completed", 1)

    async def test_by_an_import(self) -> None:
        """So is one that was exported and imported."""
        provider = Provider(no_images)
        async with engine_with(provider) as engine:
            conversation = await engine.create()
            await conversation.send("Look", files=[PNG])
            record = await engine.store.read_record(conversation.id)
        async with engine_with(provider) as engine:
            await import_records(engine.store, [record])
            asked = len(provider.seen)
            turn = await (await engine.get(conversation.id)).send("Hello")

        assert (turn.status, len(provider.seen) - asked) == ("completed", 1)


def engine_specs(name: str) -> Sequence[Any]:
    """The models of a conversation that asks this one alone."""
    return (ModelSpec(name=name),)
