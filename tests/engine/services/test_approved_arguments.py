"""Arguments that a person gives a call: the person is told what the tool refuses, and the call goes on waiting."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from tests.support.effect_ids import call_of
from turnwise import AnyTool, Conversation, Engine, InvalidInput, Refused, presets, tool
from turnwise.persistence.opening import open_store
from turnwise.states import ToolApproval
from turnwise.testing import FunctionLlm, call, reply

from ...support.engine_scenarios import results
from ...support.tools import result_in

CALL = "call_1_0"


@tool(approval=True)
def pay(amount: int, to: str = "Ada") -> str:
    """Pay."""
    return f"{to} got {amount}"


@tool(approval=True, name="pay")
def pay_anything(amount: Any, to: Any = "Ada", note: Any = "") -> str:
    """Pay: a `pay` that takes more."""
    return f"{to} got {amount}"


SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "maximum": 10}, "to": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}


@tool(approval=True, name="pay", parameters=SCHEMA)
def pay_by_schema(amount: int, to: str = "Ada") -> str:
    """Pay: a `pay` whose arguments a schema describes."""
    return f"{to} got {amount}"


def engine_at(place: Path | str | None, *tools: AnyTool | str, rounds: int = 1, **options: Any) -> Engine:
    """An engine whose model pays 5 in this many rounds, and then says what came of it last."""

    def answer(request: Any) -> Any:
        done = [message["content"] for message in request.messages if message["role"] == "tool"]
        return call("pay", amount=5) if len(done) < rounds else reply(f"Done: {result_in(done[-1])}")

    return Engine.open(place, model=FunctionLlm(answer), tools=tools or (pay,), **options)


async def asked(engine: Engine, **options: Any) -> Conversation:
    """A conversation with a call that waits for approval."""
    conversation = await engine.create(**options)
    assert (await conversation.send("Pay")).status == "awaiting_approval"
    return conversation


async def refusal(conversation: Conversation, arguments: dict[str, Any], call_id: str = CALL, **options: Any) -> str:
    """The sentence with which an approval is refused. The call still waits, and nothing is stored."""
    before = await conversation.events()
    with pytest.raises(InvalidInput) as refused:
        await conversation.approve(call_of(conversation, call_id), True, arguments=arguments, **options)
    assert refused.value.subject == "arguments"
    assert conversation.state.type == "awaiting_approval"
    assert await conversation.events() == before
    return refused.value.sentence


class TestRefusing:
    """A person who makes a mistake is told of it, and can mend it."""

    async def test_the_call_waits_until_the_arguments_fit(self) -> None:
        """P36: the sentence names the field and repeats no value; the same request fits once it is mended."""
        async with engine_at("sqlite://") as engine:
            conversation = await asked(engine)

            sentence = await refusal(conversation, {"amount": "secret", "to": "Eve"}, request_id="r")
            done = await conversation.approve(
                call_of(conversation, CALL), True, arguments={"amount": 3, "to": "Eve"}, request_id="r"
            )

            assert sentence.startswith("The arguments do not fit pay: amount: Input should be a valid integer")
            assert sentence.endswith(".")
            assert "secret" not in sentence
            assert done.reply == "Done: Eve got 3"
            assert (await conversation.replay()).divergence is None

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({}, "amount: Field required."),
            ({"sum": 3}, "amount: Field required; sum: Extra inputs are not permitted."),
            ({"amount": 3, "to": "x" * 1_000_001}, "the arguments are longer than 1,000,000 characters."),
        ],
    )
    async def test_whatever_does_not_fit_is_named(self, arguments: dict[str, Any], told: str) -> None:
        """What is missing, what nobody takes, and what is too long."""
        async with engine_at("sqlite://") as engine:
            assert await refusal(await asked(engine), arguments) == f"The arguments do not fit pay: {told}"

    async def test_a_schema_is_heeded(self) -> None:
        """That of a tool whose application describes its arguments, too."""
        async with engine_at("sqlite://", pay_by_schema) as engine:
            sentence = await refusal(await asked(engine), {"amount": 11})

            assert sentence == "The arguments do not fit pay: amount: Input should be at most 10."

    async def test_an_event_is_refused_like_a_call_of_the_method(self) -> None:
        """A host may make the event itself."""
        async with engine_at("sqlite://") as engine:
            conversation = await asked(engine)
            call_id = call_of(conversation, CALL)
            event = ToolApproval(
                event_id="e", at=datetime.now(UTC), call_id=call_id, allowed=True, arguments={"amount": "three"}
            )

            with pytest.raises(InvalidInput, match="amount"):
                await conversation.dispatch(event)

            assert conversation.state.type == "awaiting_approval"
            assert (await conversation.dispatch(event.replace(arguments={"amount": 3}))).ignored is False

    async def test_what_is_left_without_secrets_must_fit(self) -> None:
        """The tool would get the arguments without them, so these are what is checked."""

        @tool(approval=True, name="pay")
        def pay_to(amount: int, to: Annotated[str, AfterValidator(_with_an_at)] = "a@b") -> str:
            """Pay."""
            return to

        async with engine_at("sqlite://", pay_to) as engine:
            conversation = await asked(engine, policy=presets.assistant().replace(redact=True))

            assert "to: No address" in await refusal(conversation, {"amount": 5, "to": "ada@example.org"})

    @pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1), RecursionError()])
    async def test_a_validator_that_breaks_refuses(self, error: BaseException) -> None:
        """Nobody knows whether the arguments fit; the conversation goes on, and others can be given."""

        def check(amount: int) -> int:
            if amount == 3:
                raise error
            return amount

        @tool(approval=True, name="pay")
        def pay_checked(amount: Annotated[int, AfterValidator(check)]) -> str:
            """Pay."""
            return f"{amount} paid"

        async with engine_at("sqlite://", pay_checked) as engine:
            conversation = await asked(engine)

            sentence = await refusal(conversation, {"amount": 3})
            done = await conversation.approve(call_of(conversation, CALL), True, arguments={"amount": 4})

            assert sentence == "The arguments do not fit pay: the arguments could not be checked."
            assert done.reply == "Done: 4 paid"


def _with_an_at(text: str) -> str:
    if "@" not in text:
        raise ValueError("No address")
    return text


class TestTaking:
    """What does not run is not checked, and neither is what this engine cannot know."""

    async def test_a_call_that_is_denied_needs_no_arguments_that_fit(self) -> None:
        """It does not run."""
        async with engine_at("sqlite://") as engine:
            conversation = await asked(engine)
            call_id = call_of(conversation, CALL)
            done = await conversation.approve(call_id, False, "Too much", arguments={"amount": "three"})

            assert done.reply == "Done: Error: Denied by the user: Too much"

    async def test_a_tool_that_is_gone_checks_nothing(self, database: Path) -> None:
        """The approval is taken, and the model learns that there is no such tool."""
        async with engine_at(database) as engine:
            conversation = await asked(engine)

        async with engine_at(database, "respond_to_user") as engine:
            again = await engine.get(conversation.id)
            done = await again.approve(call_of(again, CALL), True, arguments={"amount": "three"})

            assert "There is no tool called pay" in done.reply


class TestOrder:
    """An approval that is not asked for says so first, and one that was taken is not refused later."""

    async def test_an_approval_that_is_not_asked_says_so(self) -> None:
        """Whatever its arguments are: of another call, after the approval, and of a closed conversation."""
        async with engine_at("sqlite://") as engine:
            conversation = await asked(engine)
            codes = []

            async def approve(call_id: str) -> None:
                with pytest.raises(Refused) as refused:
                    await conversation.approve(call_id, True, arguments={"amount": "three"})
                codes.append(refused.value.code)

            await approve("call_9_9")
            await conversation.approve(call_of(conversation, CALL), True, arguments={"amount": 3})
            await approve(call_of(conversation, CALL))
            await conversation.close()
            await approve(call_of(conversation, CALL))

            assert codes == ["wrong_state", "wrong_state", "closed"]

    @pytest.mark.parametrize("tools", [(pay,), ("respond_to_user",)])
    async def test_an_approval_that_was_taken_returns_its_result(
        self, database: Path, tools: tuple[AnyTool | str, ...]
    ) -> None:
        """Also if the tool takes these arguments no longer, or is gone; the log replays as it was."""
        note = {"amount": "three", "note": "Hm"}
        async with engine_at(database, pay_anything) as engine:
            conversation = await asked(engine)
            first = await conversation.approve(call_of(conversation, CALL), True, arguments=note, request_id="r")
            assert (
                await conversation.approve(call_of(conversation, CALL), True, arguments=note, request_id="r")
            ) == first

        async with engine_at(database, *tools) as engine:
            again = await engine.get(conversation.id)

            assert await again.approve(call_of(again, CALL), True, arguments=note, request_id="r") == first
            assert results(await again.transcript()) == ["Ada got three"]
            assert (await again.replay()).divergence is None

    async def test_an_id_that_another_approval_has_says_so(self, database: Path) -> None:
        """Whether it is remembered or stands in the log only, and although another call waits by now."""
        async with engine_at(database, rounds=2) as engine:
            conversation = await asked(engine)
            await conversation.approve(call_of(conversation, CALL), True, request_id="r")
            waiting = str(conversation.state.waiting_call_id)
            await _is_reused(conversation, waiting)

        async with engine_at(database, rounds=2) as engine:
            await _is_reused(await engine.get(conversation.id), waiting)


async def _is_reused(conversation: Conversation, call_id: str) -> None:
    with pytest.raises(Refused) as refused:
        await conversation.approve(call_id, True, arguments={"amount": "three"}, request_id="r")
    assert refused.value.code == "event_id_reused"
    assert conversation.state.type == "awaiting_approval"


class TestSeveralEngines:
    """An engine checks what it is asked, and follows what others have taken."""

    async def test_each_engine_asks_its_own_tools(self, database: Path) -> None:
        """The engine whose tool takes the arguments has them stored; the other one follows."""
        store = await open_store(database)
        async with (
            engine_at(None, store=store) as strict,
            engine_at(None, pay_anything, store=store) as lenient,
        ):
            conversation = await asked(strict)
            await refusal(conversation, {"amount": "three"})

            call_id = call_of(conversation, CALL)
            done = await (await lenient.get(conversation.id)).approve(call_id, True, arguments={"amount": "three"})
            with pytest.raises(Refused) as refused:
                await conversation.approve(call_of(conversation, CALL), True, arguments={"amount": "three"})

            assert done.reply == "Done: Ada got three"
            assert refused.value.code == "wrong_state"
            assert (await conversation.replay()).divergence is None
        await store.close()
