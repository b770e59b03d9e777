"""What an engine recalls for its conversations, over SQLite."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    Conversation,
    DocumentQuery,
    Engine,
    ModelAnswer,
    ModelRequest,
    Policy,
    Profile,
    Recent,
    Settings,
    StateChangeUpdate,
    ToolContext,
    Usage,
    presets,
    tool,
)
from turnwise.effects.model.system_message import DOCUMENTS_TITLE, MEMORY_TITLE
from turnwise.effects.recall import search
from turnwise.engine.composition import PortWrappers, wrapped_ports
from turnwise.engine.updates import updates_of_log
from turnwise.states import MemoryRecalled
from turnwise.testing import FunctionLlm, ManualClock, call, failure

RECENT = Policy(dialogue=Recent())
RECALL = Policy(dialogue=Recent(), recall=True)


@tool
async def look() -> str:
    """Look around."""
    return "A bird"


class Model(FunctionLlm):
    """A model that says "Yes.", and names these keywords when it is asked for the terms of a search."""

    def __init__(self, *keywords: str, answer: Callable[[ModelRequest], Any] = lambda request: "Yes.", **terms: Any):
        self.terms = json.dumps({"keywords": keywords, **terms})
        self._converse = answer
        super().__init__(self._choose)

    def _choose(self, request: ModelRequest) -> Any:
        if request.purpose == "enrich":
            return ModelAnswer(self.terms, usage=Usage(input_tokens=100, output_tokens=10))
        return self._converse(request)

    @property
    def asked(self) -> list[str]:
        """What it was asked for, in order."""
        return [request.purpose for request in self.requests]


def recalled_of(model: FunctionLlm) -> str:
    """Return what was found for the newest request, which stands at its end."""
    text = str(model.requests[-1].messages[-1]["content"])
    places = [text.find(title) for title in (MEMORY_TITLE, DOCUMENTS_TITLE) if title in text]
    return text[min(places) :] if places else ""


def dialogue_of(model: FunctionLlm) -> list[tuple[str, str]]:
    """Return the other messages of the newest request."""
    return [(one["role"], one["content"]) for one in model.requests[-1].messages if one["role"] != "system"]


async def recalled(conversation: Conversation) -> MemoryRecalled:
    """Return what was recalled for the newest turn."""
    return [entry.event for entry in await conversation.events() if isinstance(entry.event, MemoryRecalled)][-1]


def told_in_log(caplog: pytest.LogCaptureFixture, what: str) -> int:
    """Return how many warnings say this."""
    return len([one for one in caplog.records if one.levelno == logging.WARNING and what in one.getMessage()])


async def talk(engine: Engine, *texts: str, owner: str | None = "anna", policy: Policy = RECENT) -> Conversation:
    """Have these messages answered in a new conversation."""
    conversation = await engine.create(owner=owner, policy=policy)
    for text in texts:
        await conversation.send(text)
    return conversation


class TestRecentDialogue:
    """J3: a request holds the owner's last minutes, from all conversations."""

    @pytest.mark.parametrize(("seconds", "is_included"), [(299, True), (300, True), (301, False)])
    async def test_the_window_includes_its_boundary(self, seconds: int, is_included: bool) -> None:
        """J3: 299 s old is included, 301 s is not, by the engine's clock."""
        clock, model = ManualClock(), Model()
        async with Engine.open("sqlite://", model=model, clock=clock) as engine:
            await talk(engine, "I am Anna.")
            await clock.advance(seconds)
            await talk(engine, "Who am I?")

        before = [("user", "I am Anna."), ("assistant", "Yes.")] if is_included else []
        assert dialogue_of(model) == [*before, ("user", "Who am I?")]

    async def test_older_turns_of_the_same_conversation_are_absent(self) -> None:
        """J3: they are reachable only by recall; this turn's own tool messages are always whole."""
        clock = ManualClock()
        model = Model("Anna", answer=lambda request: "Yes." if "a table" in str(request.messages) else call("look"))

        @tool(crash="pure")
        async def look() -> str:
            """Look around."""
            await clock.advance(1_000)
            return "a table"

        async with Engine.open("sqlite://", model=model, clock=clock, tools=[look]) as engine:
            conversation = await talk(engine, "I am Anna.", policy=RECALL)
            await clock.advance(301)
            await conversation.send("Who am I?")

        assert MEMORY_TITLE in recalled_of(model) and "  I am Anna." in recalled_of(model)
        assert [role for role, _ in dialogue_of(model)] == ["user", "assistant", "tool", "user"]

    async def test_no_text_of_another_owner_is_seen(self) -> None:
        """J3: nor of nobody; a conversation without an owner sees only itself."""
        model = Model()
        async with Engine.open("sqlite://", model=model, clock=ManualClock()) as engine:
            for owner in ("anna", "ben", None):
                await talk(engine, f"I am {owner}.", owner=owner)
            conversation = await talk(engine, "Who am I?", owner=None)
            assert dialogue_of(model) == [("user", "Who am I?")]
            await conversation.send("And now?")

        assert [text for _, text in dialogue_of(model)] == ["Who am I?", "Yes.", "And now?"]

    async def test_a_turn_that_is_tried_again_holds_its_message_once(self) -> None:
        """The message of the failed turn is that of the turn under way."""
        answers = iter([failure("invalid_request"), "Yes."])
        model = Model(answer=lambda request: next(answers))
        async with Engine.open("sqlite://", model=model, clock=ManualClock()) as engine:
            conversation = await talk(engine, "Hello")
            await conversation.retry()

        assert dialogue_of(model) == [("user", "Hello")]

    async def test_the_setting_is_the_window(self) -> None:
        """J19: `dialogue_window_sec` reaches the rules of a reply flow."""
        clock, model = ManualClock(), Model()
        policy = Settings(dialogue_window_sec=10).reply_flow()
        async with Engine.open("sqlite://", model=model, clock=clock) as engine:
            await talk(engine, "I am Anna.", policy=policy)
            await clock.advance(11)
            await talk(engine, "Who am I?", policy=policy)

        assert "I am Anna." not in str(dialogue_of(model))


class TestRecall:
    """J4: older conversations of the owner are searched by words that a model names."""

    async def earlier(self, engine: Engine, clock: ManualClock) -> None:
        """Have two owners say something an hour ago."""
        await talk(engine, "My cat is called Miuku.")
        await talk(engine, "My cat is called Rex.", owner="ben")
        await clock.advance(3_600)

    async def test_what_was_found_stands_at_the_end_of_the_request(self) -> None:
        """J4: under its title, with who said it and when; never what another owner said. It counts as used."""
        clock, model = ManualClock(), Model("cat")
        async with Engine.open("sqlite://", model=model, clock=clock) as engine:
            await self.earlier(engine, clock)
            conversation = await talk(engine, "What is my cat called?", policy=RECALL)
            usage = await conversation.usage()

        said_at = f"{clock.now() - timedelta(hours=1):%Y-%m-%d %H:%M} UTC, user:"
        assert f"{MEMORY_TITLE}\n" in recalled_of(model)
        assert f"{said_at}\n  My cat is called Miuku." in recalled_of(model)
        assert "Rex" not in recalled_of(model)
        assert usage.tokens == 110
        assert model.asked[-2:] == ["enrich", "converse"]

    @pytest.mark.parametrize("keywords", [[], ["dog"], ['cat" OR "*'], ["\x00"]])
    async def test_without_keywords_or_hits_there_is_no_block(self, keywords: list[str]) -> None:
        """J4: also for keywords that a search could take for its syntax."""
        clock, model = ManualClock(), Model(*keywords)
        async with Engine.open("sqlite://", model=model, clock=clock) as engine:
            await self.earlier(engine, clock)
            await talk(engine, "What is my pet called?", policy=RECALL)

        assert MEMORY_TITLE not in recalled_of(model)

    async def test_a_profile_without_recall_is_not_searched_for(self) -> None:
        """J4: not allowed for the profile; no model is asked for words."""
        model = Model("cat")
        policy = RECALL.replace(profiles=(Profile(name="discreet", recall=False),))
        async with Engine.open("sqlite://", model=model) as engine:
            await talk(engine, "Is my cat called Miuku?", "And now?", policy=policy)

        assert set(model.asked) == {"converse"}

    @pytest.mark.parametrize(
        ("allowed", "tools", "recalls"),
        [
            (["look"], ["recall_conversation"], False),
            ([], [], False),
            (["recall_conversation"], ["recall_conversation"], True),
            (["look", "x:recall_conversation"], [], True),
        ],
    )
    async def test_a_list_of_allowed_tools_without_recall_allows_none(
        self, allowed: list[str], tools: list[str], recalls: bool
    ) -> None:
        """J4, J19: neither by the tool nor at the beginning of a turn; its name allows both, also without the tool."""
        clock, model = ManualClock(), Model("cat")
        settings, profiles = Settings(profile_allowed_tools={"guide": allowed}), [Profile(name="guide")]
        options: dict[str, Any] = {"tools": [look, *tools], "profiles": profiles, "settings": settings}
        async with Engine.open("sqlite://", model=model, clock=clock, **options) as engine:
            await self.earlier(engine, clock)
            await talk(engine, "What is my cat called?", policy=RECALL)

        offered = [one["function"]["name"] for one in model.requests[-1].tools]
        assert ("enrich" in model.asked, MEMORY_TITLE in recalled_of(model)) == (recalls, recalls)
        assert ("recall_conversation" in offered) == (recalls and bool(tools))

    async def test_the_settings_choose_the_model_and_the_maximum(self) -> None:
        """J4, J19: `llm_tools_model` and `memory_enrichment_max_results`."""
        clock, model, tools_model = ManualClock(), Model(), Model("cat")
        tools_model.name = "small"
        settings = Settings(llm_tools_model="small", memory_enrichment_max_results=2)
        async with Engine.open(
            "sqlite://", model=model, models=[tools_model], clock=clock, settings=settings
        ) as engine:
            await talk(engine, *(f"Cat number {number}" for number in range(5)))
            await clock.advance(3_600)
            await talk(engine, "Which cats?", policy=RECALL)

        assert (tools_model.asked, set(model.asked)) == (["enrich"], {"converse"})
        assert recalled_of(model).count(", user:") == 2

    async def test_a_model_that_hangs_is_left_alone_after_the_setting(self) -> None:
        """J4, J19: `llm_tools_timeout_sec`; the turn goes on."""
        model = FunctionLlm(lambda request: asyncio.Event().wait() if request.purpose == "enrich" else "Yes.")
        settings = Settings(llm_tools_timeout_sec=0.01)
        async with Engine.open("sqlite://", model=model, settings=settings) as engine:
            conversation = await talk(engine, "Hello", policy=RECALL)

            assert (await conversation.turns())[-1].reply == "Yes."

    async def test_a_store_that_fails_leaves_the_past_out(self) -> None:
        """J4, J15: whatever cannot be found or indexed, the reply is returned."""

        class Forgetful:
            def __init__(self, store: Any) -> None:
                self._store = store

            def __getattr__(self, name: str) -> Any:
                return getattr(self._store, name)

            async def search(self, query: Any) -> Any:
                raise OSError

            async def recent(self, scope: Any, since: Any) -> Any:
                raise OSError

        model = Model("cat")
        with wrapped_ports(PortWrappers(store=Forgetful)):  # type: ignore[arg-type]
            async with Engine.open("sqlite://", model=model) as engine:
                conversation = await talk(engine, "My cat is called Miuku.", "Is it?", policy=RECALL)

                assert [turn.reply for turn in await conversation.turns()] == ["Yes.", "Yes."]
        assert dialogue_of(model) == [("user", "Is it?")]

    async def test_a_turn_goes_on_where_its_recall_was_interrupted(self, database: Path) -> None:
        """The process ends while the words are looked for; the next engine looks for them again."""
        asked = asyncio.Event()

        def waits(request: ModelRequest) -> Any:
            asked.set()
            return asyncio.Event().wait()

        async with Engine.open(database, model=FunctionLlm(waits)) as engine:
            conversation = await engine.create(owner="anna", policy=RECALL)
            await conversation.send("What is my cat called?", wait=False)
            await asked.wait()
        model = Model("cat")
        async with Engine.open(database, model=model) as engine:
            turn = await (await engine.get(conversation.id)).wait()

        assert turn.reply == "Yes."


class TestTheTool:
    """A model may search older conversations itself, by `recall_conversation`."""

    async def ask(self, **arguments: Any) -> str:
        """Return the result of a call of the tool, an hour after two owners have said something."""
        clock = ManualClock()
        model = Model(
            answer=lambda request: "Yes." if request.messages[-1]["role"] == "tool" or not request.tools
            else call("recall_conversation", **arguments)
        )  # fmt: skip
        async with Engine.open("sqlite://", model=model, clock=clock, tools=["recall_conversation"]) as engine:
            for name in ("anna", "ben"):
                conversation = await engine.create(owner=name, tools=[])
                await conversation.send(f"The cat of {name}")
            await clock.advance(3_600)
            await talk(engine, "What did I say of cats?")
        role, content = dialogue_of(model)[-1]
        assert role == "tool"
        return content

    async def test_it_finds_what_the_same_owner_said(self) -> None:
        """J4: and nothing of another owner."""
        result = await self.ask(keywords=["cat"])

        assert "  The cat of anna" in result and "ben" not in result

    @pytest.mark.parametrize(
        "arguments", [{"keywords": ["dog"]}, {"keywords": ["cat"], "to": "2001"}, {"keywords": ["cat"], "from": "9000"}]
    )
    async def test_it_says_that_nothing_was_found(self, arguments: Any) -> None:
        """J4: `from` and `to` bound the search."""
        assert await self.ask(**arguments) == "Nothing was found."

    @pytest.mark.parametrize(
        ("arguments", "fault"),
        [
            ({"keywords": ["cat"], "from": "some day"}, "`from` must be a date"),
            ({"keywords": [" "]}, "without a keyword"),
            ({"keywords": []}, "without a keyword"),
            ({}, "keywords"),
            ({"keywords": ["cat"], "owner": "ben"}, "owner"),
        ],
    )
    async def test_what_cannot_be_searched_for_is_an_error_result(self, arguments: Any, fault: str) -> None:
        """The model learns what to mend, and the turn goes on."""
        result = await self.ask(**arguments)

        assert result.startswith("Error: ") and fault in result

    async def test_no_bounds_may_be_written_as_null(self) -> None:
        """As models do where a parameter is optional."""
        assert "anna" in await self.ask(keywords=["cat"], **{"from": None, "to": None})

    async def test_a_tool_of_the_application_can_search_too(self) -> None:
        """By `ToolContext.memory`; moments without a time zone are in UTC, and one text may hold several keywords, as
        where a model writes them."""
        clock = ManualClock()
        found: list[str] = []

        @tool(crash="pure")
        async def remember(context: ToolContext) -> str:
            """Remember cats."""
            assert context.memory is not None
            yesterday = (clock.now() - timedelta(days=1)).replace(tzinfo=None)
            found.extend(text.text for text in await context.memory.search(["cat"], since=yesterday))
            found.extend(text.text for text in await context.memory.search(["cat"], until=yesterday))
            found.extend(text.text for text in await context.memory.search("dog, cat"))
            return "done"

        model = Model(answer=lambda request: "Yes." if len(request.messages) > 1 else call("remember"))
        async with Engine.open("sqlite://", model=model, clock=clock, tools=[remember]) as engine:
            await talk(engine, "The cat of anna")
            await clock.advance(3_600)
            await talk(engine, "Well?")

        assert found == ["The cat of anna"] * 2


class TestDocuments:
    """J22: what the application's document source returns stands in the system message."""

    async def test_chunks_are_one_block(self) -> None:
        """J22: under a title, for the message of the turn."""
        asked: list[DocumentQuery] = []

        async def search(query: DocumentQuery) -> list[str]:
            asked.append(query)
            return ["Open from 5 PM."]

        model = Model()
        async with Engine.open("sqlite://", model=model, documents=search) as engine:
            conversation = await engine.create(policy=Policy(documents=True), owner="anna", metadata={"table": 4})
            await conversation.send("When do you open?")

        assert f"{DOCUMENTS_TITLE}\n" in recalled_of(model) and "  Open from 5 PM." in recalled_of(model)
        assert asked == [DocumentQuery("When do you open?", "anna", conversation.id, {"table": 4})]

    @pytest.mark.parametrize("documents", [None, lambda query: None, lambda query: 1 / 0])
    async def test_none_or_raising_is_no_block(self, documents: Any) -> None:
        """J22: the turn goes on, also in an engine without a source."""
        model = Model()
        async with Engine.open("sqlite://", model=model, documents=documents) as engine:
            conversation = await talk(engine, "Hello", policy=Policy(documents=True))

            assert (await conversation.turns())[-1].reply == "Yes."
        assert recalled_of(model) == ""


PETS = {"cat": (1.0, 0.0, 0.0), "Katze": (0.9, 0.1, 0.0), "car": (0.0, 1.0, 0.0)}


async def by_meaning(texts: Sequence[str]) -> list[tuple[float, ...]]:
    """Return vectors in which the names of an animal are near to each other."""
    return [next((vector for word, vector in PETS.items() if word in text), (0.1, 0.1, 1.0)) for text in texts]


class TestVectors:
    """J4: an embedding function of the application finds what is said in other words."""

    async def block(self, embed: Any, settings: Settings | None = None) -> str:
        """Return what is recalled for a question about cats, after an hour."""
        clock, model = ManualClock(), Model("cat")
        async with Engine.open("sqlite://", model=model, clock=clock, embed=embed, settings=settings) as engine:
            await talk(engine, "Meine Katze heißt Miuku.", "I have a car.")
            await talk(engine, "Rex ist keine Katze.", owner="ben")
            await clock.advance(3_600)
            return (await recalled(await talk(engine, "What is my cat called?", policy=RECALL))).block

    async def test_what_means_the_same_is_found(self) -> None:
        """J4: on; of the same owner only."""
        block = await self.block(by_meaning)

        assert "Meine Katze" in block.splitlines()[2]
        assert "Rex" not in block

    @pytest.mark.parametrize("fault", ["off", "raising", "timing out"])
    async def test_without_vectors_the_keywords_decide(self, fault: str) -> None:
        """J4, J19: off, raising, or longer than `llm_embed_timeout_sec`; the turn goes on."""

        async def embed(texts: Sequence[str]) -> Any:
            return 1 / 0 if fault == "raising" else await asyncio.Event().wait()

        settings = Settings(llm_embed_timeout_sec=0.01)

        assert await self.block(None if fault == "off" else embed, settings) == ""

    async def test_an_engine_closes_while_texts_are_embedded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What runs in the background ends before the store is closed."""
        monkeypatch.setattr(search, "BATCH", 2)
        clock, model = ManualClock(), Model("cat")
        is_background = asyncio.Event()
        sizes: list[int] = []

        async def embed(texts: Sequence[str]) -> Any:
            sizes.append(len(texts))
            if len(sizes) == 3:
                is_background.set()
                await asyncio.Event().wait()
            return await by_meaning(texts)

        async with Engine.open("sqlite://", model=model, clock=clock, embed=embed) as engine:
            await talk(engine, "Cat 1", "Cat 2", "Cat 3")
            await clock.advance(3_600)
            turn = await (await engine.create(owner="anna", policy=RECALL)).send("Which cats?")
            await is_background.wait()

        assert turn.reply == "Yes."
        assert sizes == [1, 2, 2]


class TestWhatIsLeftOut:
    """A turn goes on without what fails or is not there in time; its updates and its log say so."""

    async def test_everything_that_hangs(self, caplog: pytest.LogCaptureFixture) -> None:
        """The choice of a profile, the embedding and the documents: each is told once, in the step that goes on."""

        async def hang(_: object) -> Any:
            await asyncio.Event().wait()

        def answer(request: ModelRequest) -> Any:
            return hang(request) if request.purpose == "route" else "Yes."

        settings = Settings(llm_profile_select_timeout_sec=0.01, llm_tools_timeout_sec=0.2, llm_embed_timeout_sec=0.01)
        profiles = [Profile(name="clerk", prompt="Be exact."), Profile(name="chef", prompt="Cook.")]
        options: dict[str, Any] = {"settings": settings, "profiles": profiles, "embed": hang, "documents": hang}
        policy = Policy(route=True, recall=True, documents=True)
        async with Engine.open("sqlite://", model=Model("cat", answer=answer), **options) as engine:
            await talk(engine, "My cat is called Miuku.", policy=Policy(profiles=()))
            caplog.clear()
            conversation = await engine.create(owner="anna", policy=policy)
            updates = [update async for update in conversation.stream("Which cat?")]

        told = [one.state.left_out for one in updates if isinstance(one, StateChangeUpdate) and one.state.left_out]
        assert [sorted(sentences) for sentences in told] == [
            ["Choosing a profile failed: The model took too long to answer."],
            [
                "Recalled without documents: no answer within 0.2 s.",
                "Recalled without vectors: no answer within 0.01 s.",
            ],
        ]
        assert all(told_in_log(caplog, part) == 1 for part in ("profile clerk is used", "documents", "vectors"))

    async def test_a_watcher_that_comes_back_is_told(self) -> None:
        """What a turn went on without follows from the log."""
        async with Engine.open("sqlite://", model=Model(), documents=lambda _: 1 / 0) as engine:
            conversation = await engine.create(policy=Policy(documents=True))
            await conversation.send("Hello")
            updates = updates_of_log(await conversation.events())
            told = [one.state.left_out for one in updates if isinstance(one, StateChangeUpdate)]

        assert ("Recalled without documents: ZeroDivisionError.",) in told


class TestTheReplyFlow:
    """Everything together, under the preset."""

    async def test_recent_dialogue_recall_and_documents(self) -> None:
        """J3, J4, J22: one turn has all of it."""
        clock, model = ManualClock(), Model("cat")
        options: dict[str, Any] = {"policy": presets.reply_flow(), "documents": lambda query: ["Cats purr."]}
        async with Engine.open("sqlite://", model=model, clock=clock, **options) as engine:
            await talk(engine, "My cat is called Miuku.", policy=presets.reply_flow())
            await clock.advance(3_600)
            await talk(engine, "I am home.", policy=presets.reply_flow())
            await talk(engine, "What is my cat called?", policy=presets.reply_flow())

        assert "  Cats purr." in recalled_of(model)
        assert "  My cat is called Miuku." in recalled_of(model)
        assert ("user", "I am home.") in dialogue_of(model)

    async def test_both_sides_are_remembered_redacted(self, database: Path) -> None:
        """J15: what the user said and what the model replied; neither a request nor the database has the secret."""
        secret = "anna.virtanen@example.com"
        clock, model = ManualClock(), Model("address", answer=lambda request: f"Your address is {secret}.")
        async with Engine.open(database, model=model, clock=clock) as engine:
            await talk(engine, f"My address is {secret}.", policy=presets.reply_flow())
            await talk(engine, "Which address?", policy=presets.reply_flow())
            recent = str(model.requests)
            await clock.advance(3_600)
            block = (await recalled(await talk(engine, "Which address?", policy=presets.reply_flow()))).block

        assert "My address is [" in recent and "Your address is [" in recent
        assert "My address is [" in block and "Your address is [" in block
        assert secret not in str(model.requests)
        assert secret.encode() not in b"".join(file.read_bytes() for file in database.parent.iterdir())
