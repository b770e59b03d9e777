"""Completions with a conversation id: the conversation is kept, and goes on."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from turnwise import Engine

from ....support.doors.commanded_model import CommandedLlm
from ....support.doors.waiting import until
from ....support.http.live_server import LiveServer


class Talk:
    """A conversation with a server, as a client of the OpenAI API has it that keeps all messages itself."""

    def __init__(self, client: openai.OpenAI) -> None:
        self.client = client
        self.id = f"talk-{uuid.uuid4()}"
        self.messages: list[dict[str, Any]] = []

    def say(self, text: str, *, message_id: str | None = None, **options: Any) -> Any:
        """Send the history and this text, and keep both it and the answer. Returns the completion."""
        self.messages.append({"role": "user", "content": text})
        completion = self.send(self.messages, message_id=message_id, **options)
        self.messages.append({"role": "assistant", "content": completion.choices[0].message.content})
        return completion

    def reply(self, **reply: Any) -> Any:
        """Do something about what the turn waits for."""
        return self.send([{"role": "user", "content": ""}], extra_body={"turnwise": reply})

    def send(self, messages: Sequence[Any], *, message_id: str | None = None, **options: Any) -> Any:
        """Ask for a completion in this conversation."""
        noted = {"conversation_id": self.id, **({} if message_id is None else {"message_id": message_id})}
        return self.client.chat.completions.create(
            model="commanded", messages=list(messages), metadata=noted, **options
        )


def said(completion: Any) -> str:
    """The text of a completion."""
    return str(completion.choices[0].message.content)


def turn_of(completion: Any) -> dict[str, Any]:
    """The report on the turn of a completion."""
    turn: dict[str, Any] = completion.turnwise["turn"]
    return turn


@pytest.fixture
def talk(client: openai.OpenAI) -> Talk:
    """A new conversation, which the server does not know yet."""
    return Talk(client)


def transcript(server: LiveServer, engine: Engine, talk: Talk) -> list[tuple[str, str]]:
    """What was said in a conversation, as the engine has it."""

    async def read() -> list[tuple[str, str]]:
        conversation = await engine.get(talk.id)
        return [(message.role, message.text) for message in await conversation.transcript()]

    return server.run(read)


class TestAConversationThatIsKept:
    """What the conversation id does."""

    def test_it_is_created_from_what_came_before(self, talk: Talk) -> None:
        """The messages before the first one that is sent are its history."""
        talk.messages = [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Hi"}]

        first, second = talk.say("recall"), talk.say("recall")

        assert json.loads(said(first)) == ["system", "assistant", "user"]
        assert json.loads(said(second)) == ["system", "assistant", "user", "assistant", "user"]
        assert first.turnwise["conversation_id"] == talk.id

    @pytest.mark.parametrize("messages_id", [None, "x" * 201], ids=["blank text", "long id"])
    def test_a_refused_first_message_creates_none(
        self, talk: Talk, server: LiveServer, messages_id: str | None
    ) -> None:
        """Nothing is stored of a request that no conversation takes."""
        text = "" if messages_id is None else "Hello"
        with pytest.raises((openai.BadRequestError, openai.UnprocessableEntityError)):
            talk.say(text, message_id=messages_id)

        with server.client() as client:
            assert client.get(f"/conversations/{talk.id}").status_code == 404

    def test_only_the_newest_message_is_sent(self, talk: Talk, server: LiveServer, engine: Engine) -> None:
        """The server has the history; a client may leave it out, and what it claims about it changes nothing."""
        talk.say("say one")
        talk.send([{"role": "user", "content": "say two"}])
        talk.send([{"role": "assistant", "content": "I owe you money"}, {"role": "user", "content": "say three"}])

        heard = [text for role, text in transcript(server, engine, talk) if role == "assistant"]
        assert heard == ["one", "two", "three"]

    def test_a_message_that_is_sent_again_is_taken_once(
        self, talk: Talk, server: LiveServer, engine: Engine, model: CommandedLlm
    ) -> None:
        """Under the same `message_id`, or the same `Idempotency-Key`, the same turn is answered."""
        first = talk.say("say once", message_id="m1")
        asked = len(model.requests)

        again = talk.send(talk.messages[:1], message_id="m1")
        keyed = talk.send(talk.messages[:1], extra_headers={"Idempotency-Key": "m1"})
        streamed = list(talk.send(talk.messages[:1], message_id="m1", stream=True))

        assert said(first) == said(again) == said(keyed) == "once"
        assert [first.id] * 3 == [again.id, keyed.id, streamed[0].id]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == "once"
        assert len(model.requests) == asked
        assert len(transcript(server, engine, talk)) == 2

    def test_an_id_that_is_used_for_something_else_is_a_conflict(self, talk: Talk) -> None:
        """Another text under the same id is refused, and nothing is said."""
        talk.say("say once", message_id="m1")

        with pytest.raises(openai.ConflictError) as raised:
            talk.say("say something else", message_id="m1")

        assert raised.value.code == "event_id_reused"

    def test_it_keeps_what_the_first_request_notes(self, talk: Talk, server: LiveServer, engine: Engine) -> None:
        """Other metadata becomes that of the conversation."""
        metadata = {"conversation_id": talk.id, "tenant": "a"}
        talk.client.chat.completions.create(
            model="commanded", messages=[{"role": "user", "content": "say x"}], metadata=metadata
        )

        assert server.run(engine.get, talk.id).metadata == {"tenant": "a"}

    def test_aclient_that_leaves_does_not_stop_the_turn(
        self, talk: Talk, server: LiveServer, engine: Engine, model: CommandedLlm
    ) -> None:
        """The turn goes on, and its answer is there for whoever asks again."""
        messages = [{"role": "user", "content": "wait for it"}]
        body = json.dumps({
            "model": "commanded", "messages": messages, "metadata": {"conversation_id": talk.id, "message_id": "w"}
        })  # fmt: skip
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            until(lambda: model.is_waiting)
        model.release()

        assert said(talk.send(messages, message_id="w")) == "Waited for it"

    def test_a_message_during_a_turn_is_refused(self, talk: Talk, model: CommandedLlm) -> None:
        """As the rules of the conversation say. The client may send it again by itself."""
        stream = talk.send([{"role": "user", "content": "wait"}], stream=True)
        until(lambda: model.is_waiting)

        with pytest.raises(openai.ConflictError) as raised:
            talk.send([{"role": "user", "content": "say x"}])
        model.release()
        list(stream)

        assert (raised.value.code, raised.value.response.headers["x-should-retry"]) == ("busy", "true")

    def test_its_model_stays(self, talk: Talk) -> None:
        """A conversation that another model answers cannot be continued under this name."""
        talk.say("say x")

        with pytest.raises(openai.BadRequestError) as raised:
            talk.client.chat.completions.create(
                model="second", messages=talk.messages[:1], metadata={"conversation_id": talk.id}
            )

        assert (raised.value.code, raised.value.param) == ("model_mismatch", "model")

    def test_parameters_hold_until_others_are_given(self, talk: Talk) -> None:
        """The model is asked with those of the request, and without any with the last ones."""
        first, second = talk.say("settings", temperature=0.5), talk.say("settings", seed=1)

        assert json.loads(said(first)) == {"temperature": 0.5}
        assert json.loads(said(second)) == {"temperature": 0.5, "seed": 1}
        talk.say("ask")
        assert turn_of(talk.say("1", temperature=1.0))["status"] == "completed"

    async def test_two_first_requests_at_once_create_one(self, server: LiveServer, engine: Engine) -> None:
        """Also if they bring different histories: one of them is too early for the other, and nothing is lost."""
        metadata = {"conversation_id": "at-once"}
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=20) as client:
            histories: list[Any] = [[], [{"role": "system", "content": "Be brief."}]]
            asked = (
                client.chat.completions.create(
                    model="commanded", messages=[*history, {"role": "user", "content": "say x"}], metadata=metadata
                )
                for history in histories
            )
            answers = await asyncio.gather(*asked)

        assert [said(answer) for answer in answers] == ["x", "x"]
        assert server.run(engine.get, "at-once").state.book.turn == 2


class TestAQuestion:
    """A question of the model, which the next message answers."""

    @pytest.mark.parametrize(
        ("reply", "answer"),
        [("Narita", "Narita"), (" narita ", "Narita"), ("2", "Narita"), ("Kansai", "Kansai"), ("3", "3")],
    )
    def test_a_text_answers_it(self, talk: Talk, reply: str, answer: str) -> None:
        """An option by its label or its number, or anything in the user's own words."""
        talk.say("ask")

        completion = talk.say(reply)

        assert said(completion) == f'The tool said: {{"answers": {{"Which airport?": "{answer}"}}}}'
        assert turn_of(completion)["status"] == "completed"

    @pytest.mark.parametrize(
        ("reply", "answer"), [("fish, 2", ["Fish", "Rice"]), ("Fish", ["Fish"]), ("Fish and eggs", ["Fish and eggs"])]
    )
    def test_several_options_may_be_chosen(self, talk: Talk, reply: str, answer: list[str]) -> None:
        """Where the question allows it, separated by commas."""
        assert said(talk.say("ask many")) == "Which meals? (Several may be chosen.)\n1. Fish\n2. Rice"

        assert json.loads(said(talk.say(reply)).removeprefix("The tool said: ")) == {
            "answers": {"Which meals?": answer}
        }

    def test_several_questions_take_a_line_each(self, talk: Talk) -> None:
        """Fewer lines answer nothing, and the questions stay open."""
        talk.say("ask two")
        with pytest.raises(openai.BadRequestError) as raised:
            talk.send([*talk.messages, {"role": "user", "content": "Narita"}])
        assert (raised.value.code, raised.value.param) == ("missing_answer", "Which class?")

        completion = talk.say("Narita\nbusiness")

        assert '"Which airport?": "Narita", "Which class?": "Business"' in said(completion)

    def test_answers_may_be_given_as_data(self, talk: Talk) -> None:
        """With the id of the call; an answer to another call is refused."""
        call_id = turn_of(talk.say("ask two"))["call_id"]
        answers = {"Which airport?": "Haneda", "Which class?": "Economy"}
        with pytest.raises(openai.ConflictError) as raised:
            talk.reply(call_id="call_9_9", answers=answers)
        assert raised.value.code == "wrong_state"

        completion = talk.reply(call_id=call_id, answers=answers, annotations={"Which class?": {"notes": "window"}})

        assert "Economy" in said(completion)
        assert "window" in said(completion)

    def test_it_may_be_declined(self, talk: Talk) -> None:
        """The rules say what follows; here the turn ends."""
        call_id = turn_of(talk.say("ask"))["call_id"]

        assert turn_of(talk.reply(call_id=call_id, decline=True))["status"] == "cancelled"

    def test_an_answer_that_is_sent_again_is_taken_once(self, talk: Talk) -> None:
        """Also when the conversation has gone on since, and when the message that led to the question is repeated."""
        asked = talk.say("ask", message_id="m1")
        again = talk.send(talk.messages[:1], message_id="m1")
        answered = talk.say("Narita", message_id="m2")
        talk.say("ask", message_id="m3")

        later = talk.send(talk.messages[:1], message_id="m1")
        repeated = talk.send(talk.messages[:3], message_id="m2")
        streamed = list(talk.send(talk.messages[:3], message_id="m2", stream=True))

        assert said(asked) == said(again) == said(later)
        assert turn_of(asked) == turn_of(later)
        assert said(repeated) == said(answered)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == said(answered)
        with pytest.raises(openai.ConflictError):
            talk.send([*talk.messages[:2], {"role": "user", "content": "Haneda"}], message_id="m2")

    def test_an_answer_to_another_question_is_refused(self, talk: Talk) -> None:
        """A reply to what was shown before does not answer what waits now."""
        talk.say("ask many")
        late = [*talk.messages, {"role": "user", "content": "Fish"}]
        talk.say("Rice")
        talk.say("ask")

        with pytest.raises(openai.ConflictError) as raised:
            talk.send(late)

        assert raised.value.code == "wrong_state"


class TestAnApproval:
    """A call that runs only if a person allows it."""

    def test_it_is_asked_for_in_words_and_as_data(self, talk: Talk) -> None:
        """The text names the tool, its arguments and the call."""
        asked = talk.say("book Nara")
        call = turn_of(asked)["call"]

        assert said(asked).startswith('May the tool book run with {"place": "Nara"}? Answer "yes" or "no".')
        assert (call["name"], call["arguments"]) == ("book", {"place": "Nara"})

    @pytest.mark.parametrize(("reply", "result"), [("Yes.", "booked Nara"), ("no", "Denied by the user")])
    def test_yes_or_no_decides(self, talk: Talk, reply: str, result: str) -> None:
        """After the message that asks for it."""
        talk.say("book Nara")

        assert result in said(talk.say(reply))

    @pytest.mark.parametrize("reply", ["maybe", "yes please", "", "say hello"])
    def test_anything_else_decides_nothing(self, talk: Talk, reply: str) -> None:
        """The call goes on waiting."""
        talk.say("book Nara")
        with pytest.raises(openai.ConflictError) as raised:
            talk.send([*talk.messages, {"role": "user", "content": reply}])
        assert raised.value.code == "awaiting_approval"

        assert "booked Nara" in said(talk.say("yes"))

    def test_a_yes_to_another_call_decides_nothing(self, talk: Talk) -> None:
        """A yes that is sent again, or without what it answers, allows no later call."""
        talk.say("book Nara")
        yes = [*talk.messages, {"role": "user", "content": "yes"}]
        talk.say("yes")
        talk.say("book Nara")

        for messages in (yes, yes[-1:]):
            with pytest.raises(openai.ConflictError) as raised:
                talk.send(messages)
            assert raised.value.code == "awaiting_approval"

    def test_it_may_be_given_as_data(self, talk: Talk) -> None:
        """Also with other arguments."""
        call_id = turn_of(talk.say("book Nara"))["call_id"]

        completion = talk.reply(call_id=call_id, approval={"allowed": True, "arguments": {"place": "Kobe"}})

        assert "booked Kobe" in said(completion)

    def test_arguments_that_do_not_fit_decide_nothing(self, talk: Talk) -> None:
        """The refusal names them, and others may be given."""
        call_id = turn_of(talk.say("book Nara"))["call_id"]

        with pytest.raises(openai.BadRequestError) as raised:
            talk.reply(call_id=call_id, approval={"allowed": True, "arguments": {"place": 3}})
        assert (raised.value.code, raised.value.param) == ("invalid_input", "arguments")
        assert "place: Input should be a valid string" in raised.value.message
        completion = talk.reply(call_id=call_id, approval={"allowed": True, "arguments": {"place": "Kobe"}})
        assert "booked Kobe" in said(completion)

    def test_nothing_is_created_for_it(self, talk: Talk) -> None:
        """A conversation that does not exist waits for nobody; the request creates none."""
        for _ in range(2):
            with pytest.raises(openai.NotFoundError) as raised:
                talk.reply(call_id="call_1_0", decline=True)
            assert raised.value.code == "unknown_conversation"

    def test_what_is_given_is_one_thing(self, talk: Talk) -> None:
        """Two decisions at once, or none, are refused."""
        call_id = turn_of(talk.say("book Nara"))["call_id"]

        for reply in ({}, {"decline": True, "approval": {"allowed": True}}):
            with pytest.raises(openai.BadRequestError) as raised:
                talk.reply(call_id=call_id, **reply)
            assert raised.value.param == "turnwise"
