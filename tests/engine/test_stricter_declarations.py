"""A call was recorded under what its tool declared then. When another process takes it over, the stricter of that and
of what the tool declares now holds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest

from turnwise import Engine, Policy, Texts, ToolContext, tool
from turnwise.states import CrashContract
from turnwise.testing.doubles import ScriptedLlm, call, calls, reply

from ..support.engine_scenarios import QUESTION, results, until
from ..support.servers.mcp_programs import Program

CONTRACTS = get_args(CrashContract)
"""The strictest last."""


class Payments:
    """Makes the tool `pay` under one declaration after the other. Calls hang until it is told otherwise."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.asked: list[str] = []
        self.verdict = "did_not_run"
        self.hangs = True

    def tool(self, crash: CrashContract, approval: Any = False, **options: Any) -> Any:
        """Return the tool as it is declared like this."""

        async def reconcile(amount: int, context: ToolContext) -> str:
            self.asked.append(context.key)
            if not self.verdict:
                await asyncio.Event().wait()
            return self.verdict

        declared: dict[str, Any] = {**options, "reconcile": reconcile} if crash == "reconcile" else options

        @tool(name="pay", crash=crash, approval=approval, **declared)
        async def pay(amount: int, context: ToolContext) -> str:
            """Pay."""
            self.keys.append(context.key)
            if self.hangs:
                await asyncio.Event().wait()
            return f"{amount} paid"

        return pay

    async def dies_while_paying(self, database: Path, *declared: Any, asks: Any = None, **options: Any) -> str:
        """Return the id of a conversation whose process ended while the tool, declared like this, ran."""
        model = ScriptedLlm([asks or call("pay", amount=5)])
        engine = await Engine.open(database, model=model, tools=[self.tool(*declared)], **options)
        conversation = await engine.create()
        await conversation.send("Pay.", wait=False)
        await until(lambda: bool(self.keys))
        await engine.close()
        self.hangs = False
        return conversation.id


@pytest.fixture
def payments() -> Payments:
    """Payments of which none was made yet."""
    return Payments()


def next_engine(database: Path, *tools: Any, **options: Any) -> Engine:
    """The engine of the next process."""
    return Engine.open(database, model=ScriptedLlm([reply("Done.")]), tools=list(tools), **options)


class TestContracts:
    """What may happen to a call that was running when its process died."""

    @pytest.mark.slow
    @pytest.mark.parametrize("now", CONTRACTS)
    @pytest.mark.parametrize("then", CONTRACTS)
    async def test_the_stricter_holds(self, database: Path, payments: Payments, then: Any, now: Any) -> None:
        """A call runs again by itself only if it may under both declarations; a tool is asked only if it can be; in
        every other case a person is. The log replays."""
        conversation_id = await payments.dies_while_paying(database, then)

        async with next_engine(database, payments.tool(now)) as engine:
            conversation = await engine.get(conversation_id)
            turn = await conversation.wait()

            stricter = max(then, now, key=CONTRACTS.index)
            in_doubt = stricter == "at_most_once" or (stricter == "reconcile" and now != "reconcile")
            assert turn.status == ("in_doubt" if in_doubt else "completed")
            assert len(payments.keys) == (1 if in_doubt else 2)
            assert len(payments.asked) == (stricter == now == "reconcile")
            assert len(set(payments.keys)) == 1
            assert (await conversation.replay()).divergence is None

    async def test_what_a_tool_says_of_a_call_that_may_run_once_is_not_acted_on(
        self, database: Path, payments: Payments
    ) -> None:
        """A process dies while it asks whether the call ran; the next one declares that it must not run twice. That it
        did not run is not believed then."""
        conversation_id = await payments.dies_while_paying(database, "reconcile")
        payments.verdict = ""
        engine = await next_engine(database, payments.tool("reconcile"))
        await until(lambda: bool(payments.asked))
        await engine.close()
        payments.verdict = "did_not_run"

        async with next_engine(database, payments.tool("at_most_once")) as engine:
            conversation = await engine.get(conversation_id)
            turn = await conversation.wait()

            assert turn.status == "in_doubt"
            assert len(payments.keys) == 1
            assert (await conversation.replay()).divergence is None

    @pytest.mark.parametrize(("crash", "status"), [("pure", "completed"), ("idempotent", "in_doubt")])
    async def test_a_tool_that_is_gone(self, database: Path, payments: Payments, crash: Any, status: str) -> None:
        """Nobody can say what became of its call, so a person is asked; unless it never does anything, and then the
        model is told that there is no such tool."""
        conversation_id = await payments.dies_while_paying(database, crash)

        async with next_engine(database) as engine:
            conversation = await engine.get(conversation_id)
            turn = await conversation.wait()

            assert turn.status == status
            assert len(payments.keys) == 1
            if status == "completed":
                assert results(await conversation.transcript()) == ["There is no tool called pay. There are no tools."]

    async def test_nothing_is_stored_where_nothing_is_stricter(self, database: Path, payments: Payments) -> None:
        """A tool that is declared as before, or more loosely, makes no step."""
        conversation_id = await payments.dies_while_paying(database, "idempotent")

        async with next_engine(database, payments.tool("pure")) as engine:
            conversation = await engine.get(conversation_id)
            await conversation.wait()

            assert "call_restricted" not in [entry.event.type for entry in await conversation.events()]


class TestApproval:
    """A tool that requires approval now does not run again without a person."""

    async def test_a_pure_call_waits_for_it(self, database: Path, payments: Payments) -> None:
        """A pure call may run any number of times, so nothing is in doubt: it waits to be approved, and runs then."""
        conversation_id = await payments.dies_while_paying(database, "pure")

        async with next_engine(database, payments.tool("pure", True)) as engine:
            conversation = await engine.get(conversation_id)
            turn = await conversation.wait()
            assert (turn.status, len(payments.keys)) == ("awaiting_approval", 1)
            turn = await conversation.approve(str(turn.call_id), True)

            assert (turn.status, len(payments.keys)) == ("completed", 2)
            assert (await conversation.replay()).divergence is None

    async def test_an_idempotent_call_is_in_doubt(self, database: Path, payments: Payments) -> None:
        """It may have done its work before, so a person says what became of it; and who may only say that does not
        approve it: to run again, it must be approved."""
        conversation_id = await payments.dies_while_paying(database, "idempotent")

        async with next_engine(database, payments.tool("idempotent", True)) as engine:
            conversation = await engine.get(conversation_id)
            turn = await conversation.wait()
            assert (turn.status, len(payments.keys)) == ("in_doubt", 1)
            turn = await conversation.resolve(str(turn.call_id), "again")
            assert (turn.status, len(payments.keys)) == ("awaiting_approval", 1)
            turn = await conversation.approve(str(turn.call_id), False)

            assert (turn.status, len(payments.keys)) == ("completed", 1)
            assert (await conversation.replay()).divergence is None

    async def test_a_call_that_did_not_run_waits_for_it(self, database: Path, payments: Payments) -> None:
        """The tool is asked whether the call ran, which does nothing; to run it, a person is needed."""
        conversation_id = await payments.dies_while_paying(database, "reconcile")

        async with next_engine(database, payments.tool("reconcile", True)) as engine:
            conversation = await engine.get(conversation_id)
            turn = await conversation.wait()

            assert (turn.status, payments.asked) == ("awaiting_approval", payments.keys)
            assert (await conversation.replay()).divergence is None

    @pytest.mark.parametrize(("most", "status"), [(3, "awaiting_approval"), (100, "completed")])
    async def test_a_function_decides_by_the_arguments(
        self, database: Path, payments: Payments, most: int, status: str
    ) -> None:
        """The arguments are those of the call in the log."""
        conversation_id = await payments.dies_while_paying(database, "pure")

        async with next_engine(database, payments.tool("pure", lambda amount: amount > most)) as engine:
            turn = await (await engine.get(conversation_id)).wait()

            assert turn.status == status

    async def test_a_call_that_has_not_begun_waits_for_it(self, database: Path, payments: Payments) -> None:
        """It stands behind a call that was interrupted, and was recorded as one that needs no approval."""
        two = calls(call("pay", amount=1), call("send", text="Hi"))
        sent: list[str] = []

        def send(text: str) -> str:
            """Send."""
            sent.append(text)
            return "sent"

        model = ScriptedLlm([two])
        engine = await Engine.open(
            database, model=model, tools=[payments.tool("pure"), tool(send)], policy=Policy(parallel=1)
        )
        conversation = await engine.create()
        await conversation.send("Pay.", wait=False)
        await until(lambda: bool(payments.keys))
        await engine.close()
        payments.hangs = False

        async with next_engine(database, payments.tool("pure"), tool(send, approval=True)) as engine:
            turn = await (await engine.get(conversation.id)).wait()

            assert (turn.status, sent) == ("awaiting_approval", [])

    @pytest.mark.slow
    async def test_a_call_of_a_server_that_is_not_there_yet_waits_for_it(
        self, database: Path, tmp_path: Path, payments: Payments
    ) -> None:
        """The server is down when the conversation is taken over, and back before the call begins: what it was opened
        with says who must approve, also while nobody knows its tools."""
        program = Program(tmp_path / "shop", ["echo"])
        two = calls(call("pay", amount=1), call("shop:echo", amount=5))
        model, tools = ScriptedLlm([two]), [payments.tool("pure")]
        engine = await Engine.open(database, model=model, tools=tools, mcps={"shop": program.server(elicitation=False)})
        conversation = await engine.create()
        await conversation.send("Pay.", wait=False)
        await until(lambda: bool(payments.keys))
        await engine.close()
        (program.folder / "tools.json").unlink()  # so it ends when it is asked for its tools
        released = asyncio.Event()

        @tool(name="pay", crash="pure")
        async def pay(amount: int) -> str:
            """Pay."""
            await released.wait()
            return "paid"

        shop = program.server(elicitation=False, approval_by="operator")
        async with next_engine(database, pay, mcps={"shop": shop}) as engine:
            program.offer("echo")
            await until(lambda: "shop:echo" in engine.tool_names)
            released.set()
            again = await engine.get(conversation.id)
            turn = await again.wait()

            assert (turn.status, again.approver) == ("awaiting_approval", "operator")
            assert program.received("tools/call") == []
            assert (await again.replay()).divergence is None

    @pytest.mark.slow
    async def test_the_operator_decides_about_a_call_of_a_server_that_is_not_there_yet(
        self, database: Path, tmp_path: Path
    ) -> None:
        """It waited for anybody's approval; what the server was opened with now leaves it to the operator, also before
        anything happens in the conversation that would note it."""
        program = Program(tmp_path / "shop", ["echo"])
        shop = program.server(elicitation=False, approval=True)
        async with Engine.open(
            database, model=ScriptedLlm([call("shop:echo", amount=5)]), mcps={"shop": shop}
        ) as engine:
            conversation = await engine.create()
            await conversation.send("Pay.")
            assert conversation.approver == "user"
        (program.folder / "tools.json").unlink()  # so it ends when it is asked for its tools

        shop = program.server(elicitation=False, approval_by="operator")
        async with next_engine(database, mcps={"shop": shop}) as engine:
            assert (await engine.get(conversation.id)).approver == "operator"

    async def test_a_call_behind_an_open_question_waits_for_it(self, database: Path, payments: Payments) -> None:
        """Nothing was in flight when the process ended, so nothing was taken over; the answer to the question brings
        the call to its turn in the next process."""
        two = calls(call("ask_user_question", questions=[QUESTION]), call("pay", amount=5))
        payments.hangs = False
        model = ScriptedLlm([two])
        async with Engine.open(database, model=model, tools=["ask_user_question", payments.tool("pure")]) as engine:
            conversation = await engine.create()
            assert (await conversation.send("Pay.")).status == "awaiting_user"

        async with next_engine(database, "ask_user_question", payments.tool("pure", True)) as engine:
            again = await engine.get(conversation.id)
            turn = await again.answer({"When?": "6:30 PM"})

            assert (turn.status, payments.keys) == ("awaiting_approval", [])
            assert (await again.replay()).divergence is None

    async def test_who_approved_before_need_not_do_so_again(self, database: Path, payments: Payments) -> None:
        """The call was approved by a person, and runs again under its contract."""
        model = ScriptedLlm([call("pay", amount=5)])
        engine = await Engine.open(database, model=model, tools=[payments.tool("idempotent", True)])
        conversation = await engine.create()
        turn = await conversation.send("Pay.")
        approving = asyncio.ensure_future(conversation.approve(str(turn.call_id), True))
        await until(lambda: bool(payments.keys))
        await engine.close()
        await asyncio.gather(approving, return_exceptions=True)
        payments.hangs = False

        async with next_engine(database, payments.tool("idempotent", True)) as engine:
            turn = await (await engine.get(conversation.id)).wait()

            assert (turn.status, len(payments.keys)) == ("completed", 2)

    async def test_the_operator_must_approve_what_anybody_could(self, database: Path, payments: Payments) -> None:
        """A user approved the call, and its process died. Now only the operator may, so it runs again only then."""
        model = ScriptedLlm([call("pay", amount=5)])
        engine = await Engine.open(database, model=model, tools=[payments.tool("pure", True)])
        conversation = await engine.create()
        turn = await conversation.send("Pay.")
        approving = asyncio.ensure_future(conversation.approve(str(turn.call_id), True))
        await until(lambda: bool(payments.keys))
        await engine.close()
        await asyncio.gather(approving, return_exceptions=True)
        payments.hangs = False

        async with next_engine(database, payments.tool("pure", True, approval_by="operator")) as engine:
            again = await engine.get(conversation.id)
            turn = await again.wait()

            assert (turn.status, len(payments.keys)) == ("awaiting_approval", 1)
            assert turn.call is not None
            assert (await again.view()).approval_by == "operator"
            assert (await again.replay()).divergence is None


class TestACancelledTurn:
    """A call that was to stop when its process died."""

    async def test_a_call_that_may_have_run_is_said_to_be_unknown(self, database: Path, payments: Payments) -> None:
        """Its tool was declared pure and is not any more."""
        conversation_id = await payments.dies_while_paying(database, "pure")
        payments.hangs = True
        engine = await next_engine(database, payments.tool("pure"), policy=Policy())
        conversation = await engine.get(conversation_id)
        await until(lambda: len(payments.keys) == 2)
        await engine.close()

        async with next_engine(database, payments.tool("at_most_once")) as engine:
            conversation = await engine.get(conversation_id)
            await conversation.wait()
            turn = await conversation.cancel()

            assert not turn.no_op
            assert results(await conversation.transcript()) == [Texts().in_doubt]
