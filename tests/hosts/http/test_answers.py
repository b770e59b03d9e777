"""Every operation of the HTTP host: that it succeeds, and each way in which it is refused.

Each answer is held against the OpenAPI document, and each answer that the document has is given by a test.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnwise.hosts.http import create_app

from ...support.cases import holds_for
from ...support.engine_scenarios import full_disk
from ...support.http.documented_client import (
    NO_BODY,
    DocumentedClient,
    api_document,
    calling,
    operations_of,
    serving_here,
)
from ...support.http.obedient_model import CALL, Conversations, leave_in_doubt, naming_call, obedient_engine

ANSWERS = {"When?": "6:30 PM"}

EVERYWHERE = {401, 403, 429, 503}
"""How every operation may be refused; test_refusals_everywhere.py has them."""

OF_BODIES = {400, 408, 413, 415}
"""How every body may be refused, beside 422; the same."""

STREAMS = {"followConversation", "followConversations"}
"""Operations that do not end; tests/hosts/http/streams has them."""

ELSEWHERE = {"createChatCompletion", "listChatModels", "getChatModel", "runAgent"}
"""Operations of other protocols; tests/hosts/http/doors has them."""


@dataclass(frozen=True)
class Case:
    """A request to a conversation in a `state`, and how it is answered."""

    operation: str
    status: int
    code: str = ""
    body: Any = NO_BODY
    state: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    async def answered(self, api: DocumentedClient, conversations: Conversations) -> httpx.Response:
        """Make the request, to a conversation in the state where one is named."""
        parameters, body = dict(self.parameters), self.body
        if self.state:
            conversation = await getattr(conversations, self.state)()
            body = naming_call(body, conversation)
            if "{conversation_id}" in api.operations[self.operation][1]:
                parameters["conversation_id"] = conversation.id
        return await api.call(self.operation, body, **parameters)


def unknown(operation: str, body: Any = NO_BODY, **parameters: Any) -> Case:
    """The operation asks for a conversation that does not exist."""
    return Case(operation, 404, "unknown_conversation", body, parameters={"conversation_id": "nobody", **parameters})


def invalid(operation: str, body: Any, state: str = "idle") -> Case:
    """The operation is given a body of the wrong form."""
    return Case(operation, 422, "invalid_input", body, state)


HISTORY = ("getTranscript", "getMessages", "listTurns", "getUsage")

WRONG = {"nonsense": True}
"""A body that no operation takes."""

CASES = [
    Case("createConversation", 201, body={"title": "Dinner", "system": "Be kind.", "metadata": {"a": [1]}}),
    Case("createConversation", 201, body={"preset": "foreground", "model": "obedient", "tools": ["pay"]}),
    Case("createConversation", 201, body={"policy": {"nudges": 3}, "messages": [{"role": "user", "content": "Hi"}]}),
    Case("createConversation", 404, "unknown_conversation", {"role": "background", "works_for": "nobody"}),
    Case("createConversation", 422, "invalid_input", {"preset": "talk", "policy": {}}),
    Case("createConversation", 422, "invalid_input", {"policy": {"nudges": "3"}}),
    Case("createConversation", 422, "invalid_input", {"policy": []}),
    Case("createConversation", 422, "invalid_input", {"id": "../etc"}),
    Case("createConversation", 422, "configuration", {"model": "unknown"}),
    Case("createConversation", 422, "configuration", {"tools": ["unknown"]}),
    Case("createConversation", 422, "invalid_input", WRONG),
    Case("listConversations", 200, state="idle", parameters={"limit": 1, "role": "foreground", "state": "idle"}),
    Case("listConversations", 404, "unknown_conversation", parameters={"before": "nobody"}),
    Case("listConversations", 422, "invalid_input", parameters={"limit": 0}),
    Case("listConversations", 422, "invalid_input", parameters={"role": "nobody"}),
    Case("getConversation", 200, state="asking"),
    unknown("getConversation"),
    Case("changeConversation", 200, body={"title": "New", "metadata": {"a": 1}, "tools": None}, state="idle"),
    Case("changeConversation", 409, "closed", {"title": "New"}, "closed"),
    Case("changeConversation", 422, "unknown_profile", {"profile": "nobody"}, "idle"),
    Case("changeConversation", 422, "configuration", {"tools": ["unknown"]}, "idle"),
    invalid("changeConversation", {"title": None}),
    unknown("changeConversation", {"title": "New"}),
    Case("deleteConversation", 204, state="running"),
    unknown("deleteConversation"),
    Case("listChildren", 200, state="idle"),
    unknown("listChildren"),
    Case("forkConversation", 201, state="running"),
    Case("forkConversation", 201, body={"at": 1}, state="idle"),
    Case("forkConversation", 422, "invalid_input", {"at": 1000}, "idle"),
    unknown("forkConversation"),
    Case("sendMessage", 202, body={"text": "Hello"}, state="idle"),
    Case("sendMessage", 202, body={"text": "Hello"}, state="running"),
    Case("sendMessage", 409, "busy", {"text": "Hello", "when_busy": "refuse"}, "running"),
    Case("sendMessage", 409, "closed", {"text": "Hello"}, "closed"),
    Case("sendMessage", 422, "invalid_input", {"text": "Look", "files": ["file:///etc/passwd"]}, "idle"),
    invalid("sendMessage", {"text": 1}),
    unknown("sendMessage", {"text": "Hello"}),
    Case("answerQuestions", 200, body={"answers": ANSWERS, "call_id": CALL}, state="asking"),
    Case("answerQuestions", 409, "wrong_state", {"answers": ANSWERS}, "idle"),
    Case("answerQuestions", 409, "wrong_state", {"answers": ANSWERS, "call_id": "another"}, "asking"),
    Case("answerQuestions", 422, "unknown_question", {"answers": {"Where?": "Here"} | ANSWERS}, "asking"),
    Case("answerQuestions", 422, "missing_answer", {"answers": {}}, "asking"),
    Case("answerQuestions", 422, "invalid_answer", {"answers": {"When?": ["6:30 PM", "8:15 PM"]}}, "asking"),
    invalid("answerQuestions", {"answers": {"When?": 6}}, "asking"),
    unknown("answerQuestions", {"answers": {}}),
    Case("declineQuestions", 200, state="asking"),
    Case("declineQuestions", 200, body={"call_id": CALL}, state="asking"),
    Case("declineQuestions", 409, "wrong_state", state="idle"),
    invalid("declineQuestions", WRONG),
    unknown("declineQuestions"),
    Case("cancelTurn", 200, state="running"),
    Case("cancelTurn", 200, body={"turn": 7}, state="running"),
    Case("cancelTurn", 409, "event_id_reused", {"request_id": "queued"}, "running"),
    invalid("cancelTurn", {"turn": -1}),
    unknown("cancelTurn"),
    Case("approveCall", 200, body={"call_id": CALL, "allowed": True, "arguments": {"amount": 2}}, state="approving"),
    Case("approveCall", 200, body={"call_id": CALL, "allowed": False, "note": "No"}, state="approving"),
    Case("approveCall", 409, "wrong_state", {"call_id": "another", "allowed": True}, "approving"),
    Case("approveCall", 409, "wrong_state", {"call_id": "another", "allowed": True, "arguments": {}}, "approving"),
    invalid("approveCall", {"call_id": CALL, "allowed": True, "arguments": {"amount": "two"}}, "approving"),
    invalid("approveCall", {"call_id": CALL, "allowed": "yes"}, "approving"),
    unknown("approveCall", {"call_id": CALL, "allowed": True}),
    Case("resolveCall", 409, "wrong_state", {"call_id": CALL, "verdict": "ran"}, "idle"),
    invalid("resolveCall", {"call_id": CALL, "verdict": "perhaps"}),
    unknown("resolveCall", {"call_id": CALL, "verdict": "ran"}),
    Case("retryTurn", 200, state="failed"),
    Case("retryTurn", 409, "wrong_state", state="idle"),
    invalid("retryTurn", WRONG),
    unknown("retryTurn"),
    Case("withdrawMessage", 200, body={"message_id": "queued"}, state="running"),
    Case("withdrawMessage", 409, "not_waiting", {"message_id": "another"}, "running"),
    invalid("withdrawMessage", {}),
    unknown("withdrawMessage", {"message_id": "queued"}),
    Case("compactConversation", 202, state="idle"),
    Case("compactConversation", 409, "busy", state="running"),
    invalid("compactConversation", WRONG),
    unknown("compactConversation"),
    Case("closeConversation", 200, state="running"),
    Case("closeConversation", 409, "event_id_reused", {"request_id": "queued"}, "running"),
    invalid("closeConversation", WRONG),
    unknown("closeConversation"),
    *(
        Case(operation, 200, state="approving")
        for operation in ("getTranscript", "getMessages", "listTurns", "getUsage")
    ),
    *(unknown(operation) for operation in ("getTranscript", "getMessages", "listTurns", "getUsage")),
    Case("editMessage", 409, "closed", {"message_id": "first", "text": "Hello"}, "closed"),
    Case("editMessage", 422, "unknown_message", {"message_id": "m", "text": "Hello"}, "closed"),
    invalid("editMessage", WRONG),
    unknown("editMessage", {"message_id": "m", "text": "Hello"}),
    Case("regenerateTurn", 202, state="idle"),
    Case("regenerateTurn", 409, "closed", state="closed"),
    invalid("regenerateTurn", WRONG),
    unknown("regenerateTurn"),
    Case("rewindConversation", 200, body={"to": 0}, state="idle"),
    Case("rewindConversation", 409, "closed", {"to": 0}, "closed"),
    invalid("rewindConversation", WRONG),
    unknown("rewindConversation", {"to": 0}),
    invalid("switchBranch", WRONG),
    unknown("switchBranch", {"branch": 0}),
    Case("listBranches", 200, state="idle"),
    unknown("listBranches"),
    Case("getOutbox", 200, state="idle"),
    unknown("getOutbox"),
    Case("replayConversation", 200, state="asking"),
    unknown("replayConversation"),
    Case("getLog", 200, state="asking", parameters={"after": 1, "limit": 2}),
    Case("getLog", 422, "invalid_input", state="idle", parameters={"after": -1}),
    unknown("getLog"),
    Case("getModelRequest", 200, state="idle", parameters={"seq": 2}),
    Case("getModelRequest", 422, "invalid_input", state="idle", parameters={"seq": 1}),
    Case("getModelRequest", 422, "invalid_input", state="idle", parameters={"seq": 1000}),
    Case("getModelRequest", 422, "invalid_input", state="idle", parameters={"seq": "first"}),
    unknown("getModelRequest", seq=1),
    Case("getMachine", 200),
    Case("listModels", 200),
    Case("listTools", 200),
    Case("listPermissions", 200),
    Case("renderMarkdown", 200, body={"texts": ["*Hello* [you](https://example.org)", "1. a\n2. b", "```py\nx\n```"]}),
    Case("renderMarkdown", 422, "invalid_input", {"texts": ["x"] * 51}),
    Case("openSession", 204, body={"token": "any"}),
    Case("openSession", 422, "invalid_input", {}),
    Case("closeSession", 204),
    Case("getHealth", 200),
]


class TestEveryAnswer:
    """H1: each operation's success and each refusal."""

    @pytest.mark.slow
    @holds_for("operation", sorted({case.operation for case in CASES}))
    async def test_is_as_documented(self, operation: str) -> None:
        """H1: each answer has the status and the code, and the form that the document says."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            for case in CASES:
                if case.operation == operation:
                    answer = await case.answered(api, Conversations(engine))
                    assert answer.status_code == case.status, f"{case}: {answer.text}"
                    assert not case.code or answer.json()["code"] == case.code, f"{case}: {answer.text}"

    def test_every_documented_answer_is_tested(self) -> None:
        """H1: no operation and no answer of it is forgotten here."""
        tested = defaultdict(set)
        for case in CASES:
            tested[case.operation].add(case.status)
        tested["createConversation"] |= {200, 409}  # below
        tested["forkConversation"] |= {409}  # test_repeated_requests.py
        tested["resolveCall"] |= {200}
        tested["editMessage"] |= {202, 409}  # test_branches.py
        tested["switchBranch"] |= {200, 409}
        tested["uploadFile"] |= {201, 404, 409, 422}  # test_files.py
        tested["getFile"] |= {200, 206, 304, 404, 416, 422}

        for name, (_, _, operation) in operations_of(api_document()).items():
            if name not in STREAMS | ELSEWHERE:
                documented = {int(status) for status in operation["responses"]} - EVERYWHERE
                assert tested[name] == documented - (OF_BODIES if "requestBody" in operation else set()), name

    async def test_a_call_in_doubt_is_resolved(self, tmp_path: Path) -> None:
        """H1: after a restart, what was running waits for a verdict, which is taken once."""
        doubtful = await leave_in_doubt(tmp_path / "doubt.db")
        async with serving_here(obedient_engine(tmp_path / "doubt.db")) as api:
            shown = await api.result("getConversation", conversation_id=doubtful)
            body = {"call_id": shown["state"]["data"]["call_id"], "verdict": "ran"}
            turn = await api.result("resolveCall", body, conversation_id=doubtful)
            again = await api.problem("resolveCall", body, conversation_id=doubtful)

        assert shown["state"]["type"] == "in_doubt"
        assert turn["turn"]["turn"] == 1
        assert again == (409, "wrong_state")

    async def test_a_full_disk_is_said(self) -> None:
        """H1: what cannot be stored is refused with 503 and may be sent again."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).idle()
            async with full_disk(engine):
                refused = await api.problem("sendMessage", {"text": "Hello"}, conversation_id=conversation.id)
            sent = await api.call("sendMessage", {"text": "Hello"}, conversation_id=conversation.id)

        assert refused == (503, "storage")
        assert sent.status_code == 202

    async def test_a_closed_engine_is_said(self) -> None:
        """H1: once the engine is closed, every operation that needs it is refused with 503."""
        engine = obedient_engine()
        app = create_app(engine)
        async with calling(app) as api:
            assert await api.problem("getHealth") == (503, "engine_closed")
            async with engine:
                assert (await api.result("getHealth")) == {"status": "ok"}
            assert await api.problem("getHealth") == (503, "engine_closed")
            assert await api.problem("listConversations") == (503, "engine_closed")
            assert await api.problem("createConversation", {}) == (503, "engine_closed")
            assert await api.problem("getConversation", conversation_id="c") == (503, "engine_closed")
