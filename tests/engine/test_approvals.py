"""Tools that a person must allow: nothing runs unseen, and the person may change what runs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from turnwise import ConfigurationError, Conversation, Engine, InvalidInput, Policy, Refused, Turn, tool, tools_of
from turnwise.states import ToolApproval
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, calls, reply

from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import Watcher, assert_paired, results, until

pytestmark = BOTH_STORES


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@pytest.fixture
async def held(database: Database) -> AsyncIterator[tuple[Conversation, Turn]]:
    """A round of three calls, the second of which needs approval."""
    round_ = calls(call("look", what="a"), call("pay", amount=5), call("look", what="c"))
    llm = FunctionLlm(lambda request: "Done." if request.messages[-1]["role"] == "tool" else round_)
    async with Engine.open(database, model=llm, tools=[pay, look]) as engine:
        conversation = await engine.create()
        yield conversation, await conversation.send("Pay")


async def test_a_call_waits_for_a_person(held: tuple[Conversation, Turn]) -> None:
    """P36: the calls before it have run, those after it have not, and the turn names the call that waits."""
    conversation, turn = held

    assert turn.status == "awaiting_approval"
    assert turn.call is not None
    assert (turn.call.name, turn.call.arguments) == ("pay", {"amount": 5})
    assert conversation.state.type == "awaiting_approval"
    assert results(await conversation.transcript()) == ["saw a"]


async def test_an_allowed_call_runs(held: tuple[Conversation, Turn]) -> None:
    """P36: once allowed, the call runs, then those after it, in one round with paired results."""
    conversation, turn = held

    done = await conversation.approve(turn.call_id or "", True)

    assert done.reply == "Done."
    assert results(await conversation.transcript()) == ["saw a", "paid 5", "saw c"]
    assert_paired(await conversation.transcript())
    assert (await conversation.replay()).divergence is None


async def test_an_event_allows_it_as_the_method_does(held: tuple[Conversation, Turn]) -> None:
    """A host may make the event itself; submitted again under its id it has the same result."""
    conversation, turn = held
    allowed = ToolApproval(event_id="a", at=conversation.now(), call_id=turn.call_id or "", allowed=True, by="anna")

    done = await conversation.submit(allowed)

    assert done.reply == "Done."
    assert await conversation.submit(allowed) == done
    with pytest.raises(Refused, match="No call with this id waits"):
        await conversation.submit(allowed.replace(event_id="b"))


async def test_a_person_may_change_the_arguments(held: tuple[Conversation, Turn]) -> None:
    """P36: if it is allowed with edited arguments, it runs with these."""
    conversation, turn = held

    await conversation.approve(turn.call_id or "", True, arguments={"amount": 3})

    assert results(await conversation.transcript())[1] == "paid 3"


async def test_arguments_that_do_not_fit_leave_the_call_waiting(held: tuple[Conversation, Turn]) -> None:
    """Arguments edited by a person are validated like those of a model, and the person is told before anything runs."""
    conversation, turn = held

    with pytest.raises(InvalidInput, match="sum: Extra inputs are not permitted"):
        await conversation.approve(turn.call_id or "", True, arguments={"sum": 3})

    assert conversation.state.type == "awaiting_approval"
    assert results(await conversation.transcript()) == ["saw a"]


async def test_a_denied_call_does_not_run(held: tuple[Conversation, Turn]) -> None:
    """P36: if it is denied, its result is an error with the note, and the other calls run."""
    conversation, turn = held

    await conversation.approve(turn.call_id or "", False, "too much")

    assert results(await conversation.transcript()) == ["saw a", "Denied by the user: too much", "saw c"]


async def test_a_word_about_another_call_is_refused(held: tuple[Conversation, Turn]) -> None:
    """P40: an approval must name the call that waits; afterwards no call waits."""
    conversation, turn = held

    with pytest.raises(Refused) as other:
        await conversation.approve("call_99_0", True)
    await conversation.approve(turn.call_id or "", True)
    with pytest.raises(Refused) as late:
        await conversation.approve(turn.call_id or "", True)

    assert (other.value.code, late.value.code) == ("wrong_state", "wrong_state")


async def test_a_message_meanwhile_is_refused(held: tuple[Conversation, Turn]) -> None:
    """A policy could queue it; by default the sender learns what the conversation waits for."""
    conversation, _ = held

    with pytest.raises(Refused) as refused:
        await conversation.send("Hello?")

    assert refused.value.code == "awaiting_approval"


async def test_cancel_skips_what_waits(held: tuple[Conversation, Turn]) -> None:
    """A cancelled turn leaves every call with a result."""
    conversation, _ = held

    await conversation.cancel()

    assert conversation.state.type == "idle"
    assert results(await conversation.transcript())[1:] == ["Skipped: the turn was cancelled"] * 2


async def test_nobody_answers_in_time(database: Database) -> None:
    """P36: at the deadline the call is denied."""
    llm = ScriptedLlm([call("pay", amount=5), reply("I did not pay.")])

    async with Engine.open(database, model=llm, tools=[pay]) as engine:
        conversation = await engine.create(policy=Policy(approval_deadline=0.02))
        await conversation.send("Pay")
        await until(lambda: conversation.state.type == "idle")

        assert results(await conversation.transcript()) == ["Not run: nobody allowed it in time."]


async def test_a_wait_for_approval_survives_its_process(database: Database) -> None:
    """A call that waits for approval still waits when the database is opened again."""
    async with Engine.open(database, model=ScriptedLlm([call("pay", amount=5)]), tools=[pay]) as engine:
        conversation = await engine.create()
        turn = await conversation.send("Pay")

    async with Engine.open(database, model=ScriptedLlm([reply("Paid.")]), tools=[pay]) as engine:
        again = await engine.get(conversation.id)
        listed = [summary.state for summary in await engine.list()]
        done = await again.approve(turn.call_id or "", True)

    assert listed == ["awaiting_approval"]
    assert done.reply == "Paid."


async def test_with_several_tools_at_once_it_is_a_barrier(database: Database) -> None:
    """No call after one that needs approval starts before it, however many tools may run at once."""
    round_ = calls(*(call("look", what=w) for w in "ab"), call("pay", amount=1), call("look", what="c"))
    llm = ScriptedLlm([round_, reply("Done.")])

    async with Engine.open(database, model=llm, tools=[pay, look], policy=Policy(parallel=4)) as engine:
        conversation = await engine.create()
        watcher = Watcher(conversation)
        await watcher.until("snapshot")
        turn = await conversation.send("Pay")
        shown = await watcher.until("state_change", 3)
        before = results(await conversation.transcript())
        await conversation.approve(turn.call_id or "", True)
        await watcher.stop()

        assert before == ["saw a", "saw b"]
        assert shown.data["data"]["name"] == "pay"
        assert results(await conversation.transcript()) == ["saw a", "saw b", "paid 1", "saw c"]


async def test_tools_run_side_by_side(database: Database) -> None:
    """`parallel` tools run at once; their results stand in call order, whatever order they end in."""
    running = 0
    most = 0
    doors = [asyncio.Event() for _ in range(3)]

    @tool
    async def work(n: int) -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        if n < 2:
            await doors[n + 1].wait()
        doors[n].set()
        running -= 1
        return f"done {n}"

    llm = ScriptedLlm([calls(*(call("work", n=n) for n in range(3))), reply("All done.")])

    async with Engine.open(database, model=llm, tools=[work], policy=Policy(parallel=3)) as engine:
        conversation = await engine.create()
        await conversation.send("Work")

        assert most == 3
        assert results(await conversation.transcript()) == ["done 0", "done 1", "done 2"]


class TestWhoDecides:
    """A tool may leave the approval of its calls to the operator."""

    async def test_who_decided_is_in_the_log(self, held: tuple[Conversation, Turn]) -> None:
        """As the application names its users; a decision that is sent again says the same."""
        conversation, turn = held
        call_id = turn.call_id or ""
        await conversation.approve(call_id, True, by="ann@example.org", request_id="once")
        again = await conversation.approve(call_id, True, by="ann@example.org", request_id="once")
        with pytest.raises(Refused) as refused:
            await conversation.approve(call_id, True, by="bob", request_id="once")

        decisions = [entry.event.by for entry in await conversation.events() if isinstance(entry.event, ToolApproval)]
        assert decisions == ["ann@example.org"]
        assert (again.status, refused.value.code) == ("completed", "event_id_reused")

    async def test_it_stays_with_secrets_removed(self, database: Database) -> None:
        """It is a name, as that of the owner is, although it may look like an address."""
        llm = ScriptedLlm([call("pay", amount=5), reply("Done.")])
        async with Engine.open(database, model=llm, tools=[pay]) as engine:
            conversation = await engine.create(policy=Policy(redact=True))
            turn = await conversation.send("Pay")
            await conversation.approve(turn.call_id or "", True, "Call 555-0100", by="ann@example.org")
            (event,) = [one.event for one in await conversation.events() if isinstance(one.event, ToolApproval)]

        assert (event.by, event.note == "Call 555-0100") == ("ann@example.org", False)

    async def test_the_operators_call_is_known_as_such(self, database: Database) -> None:
        """By the handle, the state that watchers see, the turn and the log; also after a restart with a tool that
        declares it no longer. Any decision of the application counts."""
        llm = ScriptedLlm([call("refund", amount=5)])
        async with Engine.open(database, model=llm, tools=[tool(approval_by="operator")(refund)]) as engine:
            conversation = await engine.create()
            assert conversation.approver is None
            turn = await conversation.send("Refund")
            shown = (await conversation.view()).data["data"]["approval_by"]
            assert (conversation.approver, shown, turn.data["call"]["approval_by"]) == ("operator",) * 3
        async with Engine.open(
            database, model=ScriptedLlm([reply("Done.")]), tools=[tool(approval=True)(refund)]
        ) as engine:
            conversation = await engine.get(conversation.id)
            approver = conversation.approver
            done = await conversation.approve(turn.call_id or "", True, by="clerk")
            replayed = await conversation.replay()

        assert (approver, done.reply, replayed.divergence) == ("operator", "Done.", None)

    async def test_a_call_becomes_the_operators(self, database: Database) -> None:
        """If its tool says so by now: of what was stored and what is declared, the stricter holds."""
        llm = ScriptedLlm([call("refund", amount=5)])
        async with Engine.open(database, model=llm, tools=[tool(approval=True)(refund)]) as engine:
            conversation = await engine.create()
            await conversation.send("Refund")
            assert conversation.approver == "user"
        async with Engine.open(database, tools=[tool(approval_by="operator")(refund)]) as engine:
            assert (await engine.get(conversation.id)).approver == "operator"

    def test_every_way_of_declaring_a_tool_knows_it(self) -> None:
        """Alone it means that every call needs approval; a function may still say which calls do."""

        class Desk:
            @tool(approval_by="operator")
            def pay(self, amount: int) -> str:
                """Pay."""
                return "paid"

            def refund(self, amount: int) -> str:
                """Refund."""
                return "refunded"

        schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        declared = [
            tool(refund, approval_by="operator"),
            tool(refund, parameters=schema, approval_by="operator"),
            *tools_of(Desk(), approval_by="operator"),
        ]
        large = tool(refund, approval=lambda amount: amount > 100, approval_by="operator")

        assert [(one.approval, one.approval_by) for one in declared] == [(True, "operator")] * 4
        assert [large.needs_approval(f'{{"amount": {amount}}}', Policy()) for amount in (5, 500)] == [False, True]

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"approval_by": "owner"}, "The approval_by of refund must be one of user, operator."),
            (
                {"approval": False, "approval_by": "operator"},
                "refund is approved by the operator, so its approval cannot be false.",
            ),
        ],
    )
    def test_a_contradiction_is_refused(self, options: Any, sentence: str) -> None:
        """When the tool is declared."""
        with pytest.raises(ConfigurationError) as refused:
            tool(refund, **options)

        assert refused.value.sentence == sentence


def refund(amount: int) -> str:
    """Refund."""
    return f"refunded {amount}"
