"""Sub-agents through an engine over a file: they work side by side, ask, and each outcome reaches its parent."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise import Conversation, Engine, ModelSpec, Policy, Profile, Refused, SubAgentRules, presets, tool
from turnwise.effects.context import effect_of_key
from turnwise.effects.model.port import ModelRequest
from turnwise.effects.sub_agents import LONG_ID
from turnwise.states import Limits, SubAgents, Usage
from turnwise.states.events import Opened
from turnwise.states.machine import begin
from turnwise.testing import call, calls, failure, reply

from ...support.databases import BOTH_STORES, Database
from ...support.engine_scenarios import Gate
from ...support.families import GO, FamilyLlm, finished, outcomes_in, results_in, spawn, spawned

pytestmark = BOTH_STORES

# --- Sub-agents through an engine over a file: they work side by side, and each outcome reaches the model once.
#
# P24 and P25. What ends sub-agents before they have finished is in test_ending_sub_agents.py.


TOOLS = ["spawn_agents"]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return the path of a database that does not exist yet."""
    return tmp_path / "agents.db"


class TestOutcomes:
    """P24: pending and finished are what was spawned, and each outcome reaches the model once."""

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
    async def test_sub_agents_finish_in_any_order(self, database: Database, order: tuple[int, ...]) -> None:
        """The result has them in the order of their tasks."""
        gates = [Gate() for _ in order]

        def after(gate: Gate, text: str) -> object:
            async def answer() -> str:
                await gate()
                return text

            return answer

        tasks = {f"task {n}": [after(gate, f"result {n}")] for n, gate in enumerate(gates)}
        llm = FamilyLlm({GO: [spawn(*tasks), "Done."], **tasks})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            await conversation.send(GO, wait=False)
            for gate in gates:
                await gate.arrived.wait()
            for count, n in enumerate(order, start=1):
                gates[n].opened.set()
                await until_finished(conversation, count)
            turn = await conversation.wait()
            effects = await spawned(conversation)

            assert turn.reply == "Done."
            assert await finished(conversation) == [effects[n] for n in order]
            (result,) = results_in(llm.asked_by(GO)[-1])
            assert outcomes_in(result) == [("completed", f"result {n}") for n in range(len(order))]
            assert [child.state for child in await conversation.children()] == ["closed"] * len(order)
            assert (await conversation.replay()).divergence is None

    async def test_sub_agents_that_finish_at_once_are_all_counted(self, database: Database) -> None:
        """They may have ended before the parent has begun to wait for the last of them."""
        tasks = {f"task {n}": [f"result {n}"] for n in range(8)}
        llm = FamilyLlm({GO: [spawn(*tasks), "Done."], **tasks})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            await conversation.send(GO)

            assert sorted(await finished(conversation)) == await spawned(conversation)
            (result,) = results_in(llm.asked_by(GO)[-1])
            assert outcomes_in(result) == [("completed", f"result {n}") for n in range(8)]

    async def test_two_calls_in_one_response_run_one_after_the_other(self, database: Database) -> None:
        """Each call has the outcomes of its own sub-agents, and a call behind them still runs."""
        answers = {text: [f"result of {text}"] for text in ("a", "b", "c")}
        response = calls(spawn("a", "b"), spawn("c"), call("mark_work_complete", summary="All is done."))
        llm = FamilyLlm({GO: [response, "Done."], **answers})
        async with Engine.open(database, model=llm, tools=[*TOOLS, "mark_work_complete"]) as engine:
            conversation = await engine.create(policy=presets.assistant())
            turn = await conversation.send(GO)

            assert turn.status == "completed"
            first, second, _ = results_in(llm.asked_by(GO)[-1])
            assert outcomes_in(first) == [("completed", "result of a"), ("completed", "result of b")]
            assert outcomes_in(second) == [("completed", "result of c")]
            assert sorted(await finished(conversation)) == await spawned(conversation)

    async def test_any_text_survives(self, database: Database) -> None:
        """The result is JSON that reads back equal, whatever a sub-agent says."""
        text = 'He said "no"\n{"agents": []} </result> \\ \u2028 ₁ \U0001f600 ‏مرحبا'
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [text]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            await conversation.send(GO)

            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [("completed", text)]


async def until_finished(conversation: Conversation, count: int) -> None:
    """Return when so many sub-agents have reported their end."""
    reports: list[int] = []
    while len(reports) < count:
        reports = await finished(conversation)


class TestWork:
    """What a sub-agent is given, and what it may use up."""

    async def test_the_last_request_of_a_limit_has_no_tools(self, database: Database) -> None:
        """P25: with n requests, the last one is asked without tools, and its text is the result; told once."""

        @tool(crash="pure")
        async def look() -> str:
            """Look."""
            return "nothing"

        task = {"text": "a", "requests": 3}
        llm = FamilyLlm({GO: [spawn(task), "Done."], "a": [call("look"), call("look"), "as far as I got"]})
        async with Engine.open(database, model=llm, tools=[*TOOLS, look]) as engine:
            conversation = await engine.create(policy=presets.assistant())
            await conversation.send(GO)

            requests = llm.asked_by("a")
            assert [request.tool_choice for request in requests] == ["auto", "auto", "none"]
            ((status, text),) = outcomes_in(results_in(llm.asked_by(GO)[-1])[0])
            assert text == "as far as I got"
            assert status in ("completed", "incomplete")
            assert await finished(conversation) == await spawned(conversation)

    async def test_one_that_ends_without_a_text_has_failed(self, database: Database) -> None:
        """P25: the parent reads why, and goes on."""
        llm = FamilyLlm({GO: [spawn({"text": "a", "requests": 1}), "Done."], "a": [reply("")]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            turn = await conversation.send(GO)

            ((status, text),) = outcomes_in(results_in(llm.asked_by(GO)[-1])[0])
            assert (turn.reply, status) == ("Done.", "failed")
            assert text.strip()

    async def test_a_model_that_fails_fails_the_sub_agent(self, database: Database) -> None:
        """Its result says so, and the others keep theirs."""
        llm = FamilyLlm({GO: [spawn("a", "b"), "Done."], "a": [failure("authentication", "No key.")], "b": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            await conversation.send(GO)

            first, second = outcomes_in(results_in(llm.asked_by(GO)[-1])[0])
            assert first[0] == "failed" and "No key." in first[1]
            assert second == ("completed", "result")

    async def test_what_it_costs_counts_for_the_turn_that_started_it(self, database: Database) -> None:
        """In the usage of the turn and of the conversation, and against the limits of the turn."""
        cost = Usage(input_tokens=100, output_tokens=10, cost=0.01)
        scripts = {name: [reply(f"result of {name}", usage=cost)] for name in ("a", "b")}
        llm = FamilyLlm({GO: [spawn("a", "b"), reply("Done.", usage=cost)], **scripts})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            turn = await conversation.send(GO)

            assert turn.usage.tokens == 330
            assert (await conversation.usage()).tokens == 330

    async def test_a_turn_whose_sub_agents_have_used_up_its_tokens_stops(self, database: Database) -> None:
        """They share what is left, and it sends no further request."""
        policy = presets.assistant().replace(limits=Limits(requests=10, tokens=200))
        costs = reply("result", usage=Usage(input_tokens=100))
        llm = FamilyLlm({GO: [spawn("a", "b")], "a": [costs], "b": [costs]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=policy)
            turn = await conversation.send(GO)

            assert (turn.status, turn.limit) == ("incomplete", "tokens")
            assert [(await engine.get(child.id)).policy.limits.tokens for child in await conversation.children()] == [
                100,
                100,
            ]

    async def test_sub_agents_of_sub_agents(self, database: Database) -> None:
        """If the policy allows it, each level starts its own; costs add up, and all is deleted together."""
        policy = presets.assistant().replace(sub_agents=SubAgentRules(depth=2))
        cost = Usage(input_tokens=10)
        llm = FamilyLlm(
            {
                GO: [spawn("a"), "Done."],
                "a": [spawn("a1", "a2"), reply("both", usage=cost)],
                "a1": [reply("one", usage=cost)],
                "a2": [spawn("deeper"), reply("two", usage=cost)],
            }
        )
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=policy, owner="ann", metadata={"tenant": 1})
            turn = await conversation.send(GO)
            (child,) = await conversation.children()
            grandchildren = await (await engine.get(child.id)).children()

            assert (turn.reply, turn.usage.tokens) == ("Done.", 30)
            assert outcomes_in(results_in(llm.asked_by("a")[-1])[0]) == [("completed", "one"), ("completed", "two")]
            assert [effect_of_key(one.id)[0] for one in grandchildren] == [child.id] * 2
            assert {(one.owner, one.metadata["tenant"]) for one in grandchildren} == {("ann", 1)}
            await engine.delete(conversation.id)
            assert await engine.list() == ()

    async def test_a_task_may_narrow_the_tools(self, database: Database) -> None:
        """The sub-agent is offered these and no others; a name that its parent may not use fails that one alone."""

        @tool(crash="pure")
        async def look() -> str:
            """Look."""
            return "nothing"

        @tool(crash="pure")
        async def pay() -> str:
            """Pay."""
            return "paid"

        tasks = [{"text": "a", "tools": ["look"]}, {"text": "b", "tools": ["pay"]}, {"text": "c", "tools": []}, "d"]
        scripts = {name: [f"result of {name}"] for name in "acd"}
        llm = FamilyLlm({GO: [spawn(*tasks), "Done."], **scripts})
        async with Engine.open(database, model=llm, tools=[*TOOLS, look, pay]) as engine:
            conversation = await engine.create(policy=presets.assistant(), tools=["spawn_agents", "look"])
            await conversation.send(GO)

            assert [offered(llm.asked_by(name)[0]) for name in "acd"] == [["look"], [], ["look"]]
            outcomes = outcomes_in(results_in(llm.asked_by(GO)[-1])[0])
            assert [status for status, _ in outcomes] == ["completed", "failed", "completed", "completed"]
            assert outcomes[1][1].startswith("pay is not available here.")

    async def test_a_task_may_name_a_profile(self, database: Database) -> None:
        """The sub-agent works by it; a profile that the parent does not have is an error of the call."""
        profiles = [Profile(name="careful", prompt="Be careful."), Profile(name="fast", prompt="Be fast.")]
        slow = spawn({"text": "a", "profile": "slow"})
        llm = FamilyLlm({GO: [slow, spawn({"text": "a", "profile": "fast"}), "Done."], "a": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS, profiles=profiles) as engine:
            conversation = await engine.create(policy=presets.assistant(), system="You plan.")
            await conversation.send(GO)
            refused, taken = results_in(llm.asked_by(GO)[-1])
            system = str(llm.asked_by("a")[0].messages[0]["content"])

            assert refused.startswith("Error:")
            assert outcomes_in(taken) == [("completed", "result")]
            assert "Be fast." in system and "Be careful." not in system and "You plan." in system
            assert len(await conversation.children()) == 1

    async def test_too_many_are_an_error_of_the_call(self, database: Database) -> None:
        """None of them starts."""
        policy = presets.assistant().replace(sub_agents=SubAgentRules(number=2))
        llm = FamilyLlm({GO: [spawn("a", "b", "c"), "Done."]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send(GO)

            assert results_in(llm.asked_by(GO)[-1])[0].startswith("Error:")
            assert await conversation.children() == ()

    async def test_a_blank_task_of_a_tool_of_the_application_starts_nobody(self, database: Database) -> None:
        """The model reads why, and its turn goes on."""

        @tool(exclusive=True, acts=["children"], crash="pure")
        async def delegate() -> SubAgents:
            """Delegate."""
            return SubAgents(tasks=("  ",))

        llm = FamilyLlm({GO: [call("delegate"), "Done."]})
        async with Engine.open(database, model=llm, tools=[delegate]) as engine:
            conversation = await engine.create(policy=presets.assistant())
            turn = await conversation.send(GO)

            assert turn.reply == "Done."
            assert await conversation.children() == ()

    @pytest.mark.parametrize(
        ("length", "outcome"),
        [(185, ("completed", "result")), (186, ("failed", LONG_ID)), (200, ("failed", LONG_ID))],
    )
    async def test_one_whose_id_would_be_too_long_is_not_started(
        self, database: Database, length: int, outcome: tuple[str, str]
    ) -> None:
        """The id of an imported parent may be as long as ids may be, and that of a sub-agent is longer."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            opened = Opened(
                event_id="1", at=engine.now(), policy=Policy(models=(ModelSpec(name=llm.name),)), tools=TOOLS
            )
            await engine.store.create("p" * length, opened, begin(opened))
            conversation = await engine.get("p" * length)
            turn = await conversation.send(GO)

            assert turn.reply == "Done."
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [outcome]
            assert len(await conversation.children()) == (outcome[0] == "completed")

    async def test_a_finished_one_takes_nothing_more(self, database: Database) -> None:
        """Its conversation is closed, and can be read."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            await conversation.send(GO)
            child = await engine.get((await conversation.children())[0].id)

            with pytest.raises(Refused) as refused:
                await child.send("And?")
            assert refused.value.code == "closed"
            assert [message.text for message in await child.transcript()] == ["a", "result"]
            assert (child.role, child.parent) == ("sub_agent", conversation.id)


def offered(request: ModelRequest) -> list[str]:
    """Return the names of the tools that a request offers."""
    return [each["function"]["name"] for each in request.tools]
