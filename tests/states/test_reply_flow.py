"""The rules of the reply flow, without an engine: a profile, a search in older conversations, eight requests, and a
reply to every failure."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model.request import build_request
from turnwise.states import (
    Abort,
    DeliverToUser,
    Failed,
    Idle,
    Limits,
    LlmRequesting,
    MemoryRecalling,
    ModelSpec,
    PersistMessage,
    PersistToolResults,
    Policy,
    Profile,
    ProfileSelected,
    ProfileSelecting,
    RecallMemory,
    Recent,
    Repeats,
    RequestLlm,
    RetryWaiting,
    SelectProfile,
    Texts,
    ToolCall,
    ToolExecuting,
    Usage,
)
from turnwise.states.policy import Empty
from turnwise.states.presets import reply_flow
from turnwise.states.replies import text_of_reply

from ..support.cases import holds_for
from ..support.conversation import asking, call, completing, mailing, responding, spawning, talking
from ..support.scenarios.agents_and_flows import COOK, GUIDE, Flow

TEXTS = Texts()
SECRETIVE = Profile(name="secretive", recall=False)


def routed(**rules: Any) -> Flow:
    """A reply flow with two profiles to choose from."""
    return Flow(reply_flow(), **{"profiles": (COOK, GUIDE), **rules})


def begun(**rules: Any) -> Flow:
    """A reply flow in its first model request."""
    flow = Flow(reply_flow(), **rules)
    flow.begins("How is the weather?")
    return flow


def worked(**rules: Any) -> Flow:
    """A reply flow after a tool has given its result."""
    flow = begun(**rules)
    flow.model_calls("search")
    flow.tool_ends("search", "18 degrees")
    return flow


def search(call_id: str, arguments: str = '{"query": "weather"}', **facts: Any) -> ToolCall:
    """A search call with an id of its own."""
    return call("search", call_id=call_id, arguments=arguments, **facts)


class TestTheProfile:
    """J2: the router chooses the profile, or the first profile holds."""

    @pytest.mark.parametrize(("chosen", "profile"), [("guide", "guide"), ("cook", "cook")])
    def test_the_turn_goes_on_with_the_profile_that_is_chosen(self, chosen: str, profile: str) -> None:
        """J2: a profile that the policy knows is used by the turn."""
        flow = routed()
        flow.says()
        assert flow.wanted() == [PersistMessage, SelectProfile]

        flow.router_chooses(chosen)
        flow.recall_finds()

        assert flow.requests()[-1].profile == profile

    @pytest.mark.parametrize("chosen", ["nobody", "", "GUIDE", " guide"])
    def test_an_unknown_name_means_the_first_profile(self, chosen: str) -> None:
        """J2: a name that the policy does not know stands for the first profile, and the turn goes on."""
        flow = routed()

        flow.begins(profile=chosen)

        assert flow.requests()[-1].profile == "cook"

    @pytest.mark.parametrize("kind", ["timeout", "internal", "authentication"])
    def test_without_a_router_that_answers_the_first_profile_holds(self, kind: str) -> None:
        """J2: if the router fails or times out, the first profile holds, and the turn goes on."""
        flow = routed()
        flow.says()

        flow.breaks(SelectProfile, kind)

        assert flow.rests_in(MemoryRecalling).turn.profile == "cook"
        flow.recall_finds()
        assert flow.requests()[-1].profile == "cook"

    @pytest.mark.parametrize(
        ("rules", "profile"),
        [
            ({"profiles": (GUIDE,)}, "guide"),
            ({"profiles": ()}, ""),
            ({"profiles": (COOK, GUIDE), "route": False}, "cook"),
        ],
    )
    def test_where_there_is_no_choice_nobody_is_asked(self, rules: dict[str, Any], profile: str) -> None:
        """J2: with one profile, or without routing, the router is not asked."""
        flow = Flow(reply_flow(), **rules)

        flow.says()

        assert SelectProfile not in flow.wanted()
        assert flow.rests_in(MemoryRecalling).turn.profile == profile

    def test_each_turn_chooses_anew(self) -> None:
        """The next turn begins with the first profile again, whatever this one chose."""
        flow = routed()
        flow.begins(profile="guide")
        flow.model_says("This way.")

        flow.says("And now?")

        assert flow.rests_in(ProfileSelecting).turn.profile == "cook"

    def test_what_the_router_cost_counts(self) -> None:
        """The cost of the router is part of the cost of the turn."""
        cost = Usage(input_tokens=5, output_tokens=1)
        flow = routed()
        flow.says()

        flow.happens(ProfileSelected, effect_id=flow.flying(SelectProfile), profile="guide", usage=cost)
        flow.recall_finds(usage=cost)
        flow.model_says("Yes.", usage=cost)

        assert flow.ended.usage == cost + cost + cost

    def test_a_cancel_after_the_router_failed_ends_the_turn(self) -> None:
        """J2, P8: a cancel aborts the model request that follows, and a late answer changes nothing."""
        flow = routed()
        flow.says()
        router = flow.flying(SelectProfile)
        flow.breaks(SelectProfile)
        recall = flow.flying(RecallMemory)

        flow.cancels()

        flow.rests_in(Idle)
        assert flow.stopped() == [recall]
        assert flow.ended.status == "cancelled"
        assert flow.happens(ProfileSelected, effect_id=router, profile="guide").ignored

    def test_a_cancel_stops_the_router(self) -> None:
        """P8: a cancel aborts the router, and the turn ends."""
        flow = routed()
        flow.says()

        flow.cancels()

        assert flow.wanted() == [Abort]
        flow.rests_in(Idle)
        assert flow.delivered() == []


class TestMemory:
    """J3, J4: the turn looks for what belongs to it in older conversations, and goes on without it if nothing is
    found."""

    def test_what_was_found_belongs_to_every_request_of_the_turn(self) -> None:
        """J4, J5: every request of the turn refers to the answer that holds the block, and no request of the next turn
        does."""
        flow = Flow(reply_flow())
        flow.begins(block="You like sushi.")
        flow.model_calls("search")
        flow.tool_ends("search")
        flow.model_says("Sushi, then.")

        flow.says("And tomorrow?")
        flow.breaks(RecallMemory)

        memories = [flow.words(request.memory) for request in flow.requests()]
        assert memories == [["You like sushi."], ["You like sushi."], []]

    def test_the_search_knows_the_profile_and_how_far_back_to_look(self) -> None:
        """J3, J4: the effect holds the profile, whether to search, and how many seconds to look back."""
        flow = routed()
        flow.says()
        flow.router_chooses("guide")

        (recall,) = flow.step.effects

        assert isinstance(recall, RecallMemory)
        assert (recall.profile, recall.search, recall.recent) == ("guide", True, 300.0)

    @pytest.mark.parametrize("kind", ["timeout", "internal"])
    def test_without_a_recall_the_turn_goes_on(self, kind: str) -> None:
        """J4: if the search fails, the turn goes on without a block."""
        flow = Flow(reply_flow())
        flow.says()

        flow.breaks(RecallMemory, kind)

        flow.rests_in(LlmRequesting)
        assert flow.requests()[-1].memory is None

    def test_a_profile_that_may_not_recall_only_looks_back_some_minutes(self) -> None:
        """J3, J4: for a profile that may not recall nothing is searched, but the dialogue of the last minutes is still
        fetched."""
        flow = routed(profiles=(COOK, SECRETIVE))
        flow.says()
        flow.router_chooses("secretive")

        (recall,) = flow.step.effects

        assert isinstance(recall, RecallMemory)
        assert (recall.search, recall.recent) == (False, 300.0)

    def test_where_nothing_is_to_be_found_nothing_is_looked_for(self) -> None:
        """J4: for a profile that may not recall, in a conversation whose requests hold its whole history and that has
        no documents, no search is made."""
        flow = routed(profiles=(COOK, SECRETIVE), dialogue="transcript", documents=False)
        flow.says()

        flow.router_chooses("secretive")

        flow.rests_in(LlmRequesting)

    def test_a_profile_that_may_recall_searches(self) -> None:
        """J4: under the same rules, a profile that may recall searches."""
        flow = routed(profiles=(COOK, SECRETIVE), dialogue="transcript")
        flow.says()

        flow.router_chooses("cook")

        (recall,) = flow.step.effects
        assert isinstance(recall, RecallMemory)
        assert (recall.search, recall.recent) == (True, None)

    def test_documents_alone_are_looked_for(self) -> None:
        """J22: where only documents are wanted, the effect asks for them and for nothing else. What was found is a text
        of its own, so a replay asks for nothing again."""
        flow = Flow(Policy(documents=True))
        flow.says()
        (recall,) = (effect for effect in flow.step.effects if isinstance(effect, RecallMemory))

        flow.recall_finds(documents="The house rules.")

        assert (recall.search, recall.recent, recall.documents) == (False, None, True)
        memory = flow.requests()[-1].memory
        assert memory is not None
        assert flow.said.words(memory.replace(index=1)) == "The house rules."

    def test_the_end_of_a_turn_names_its_profile(self) -> None:
        """The record of each turn names the profile."""
        flow = routed()
        flow.begins(profile="guide")

        flow.model_says("Turn left.")

        assert flow.ended.profile == "guide"

    def test_each_request_says_when_it_is_made(self) -> None:
        """J6: each request holds its own time, for fresh context."""
        flow = begun()
        first = flow.now
        flow.model_calls("search")
        flow.now += timedelta(minutes=5)

        flow.tool_ends("search")

        assert [request.at for request in flow.requests()] == [first, flow.now]
        assert flow.now > first + timedelta(minutes=5)

    def test_the_last_minutes_are_never_condensed(self) -> None:
        """J3: where a request holds the last minutes only, a full window does not lead to a compaction, even if the
        model reports it."""
        window = 100
        flow = begun(models=(ModelSpec(name="only", window=window),), on_failure="fail")
        full = Usage(input_tokens=window)
        flow.model_calls("search", usage=full)
        flow.rests_in(ToolExecuting)
        flow.tool_ends("search")
        flow.rests_in(LlmRequesting)

        flow.model_says("Sunny.", usage=full)
        flow.begins("And tomorrow?")
        flow.rests_in(LlmRequesting)
        flow.model_fails("context_window")

        assert flow.rests_in(Failed).kind == "context_window"


class TestResults:
    """J7, J9: every call of a response has a result."""

    def test_results_and_errors_are_written_in_the_common_shape(self) -> None:
        """J7: each result is a message `{role: "tool", tool_call_id, content}`, an error is "Error: <message>", and no
        call is left without one."""
        flow = begun(parallel=3)
        flow.model_calls("a", call("b", fault="There is no tool called b."), "c")
        flow.tool_breaks("c", "It took too long.")
        flow.tool_ends("a", "18 degrees")

        frame, effect = flow.framed(), flow.requests()[-1]
        request = build_request(effect, frame.system, frame.messages, (), flow.state.book.turn)

        asked, *results = request.messages[-4:]
        assert [result["tool_call_id"] for result in results] == [made["id"] for made in asked["tool_calls"]]
        assert [(result["role"], result["content"]) for result in results] == [
            ("tool", "18 degrees"),
            ("tool", "Error: There is no tool called b."),
            ("tool", "Error: It took too long."),
        ]

    def test_a_tool_outside_the_profile_does_not_run(self) -> None:
        """J9: a call of a tool outside the profile does not run and gets an error result, and the turn goes on."""
        fault = "shell is not available here"
        flow = begun()

        flow.model_calls(call("shell", fault=fault), "search")

        assert flow.tools() == ["search"]
        assert flow.results() == {"shell": fault}
        flow.tool_ends("search")
        flow.rests_in(LlmRequesting)


class TestRepeats:
    """J8: a call that was made before does not run again."""

    def after(self, *arguments: str, window: int = 3) -> Flow:
        """A flow in which the model has searched with these arguments, one request after the other."""
        flow = begun(repeats=Repeats(window=window))
        for number, written in enumerate(arguments):
            flow.model_calls(search(f"earlier {number}", written))
            flow.tool_ends(f"earlier {number}", "18 degrees")
        return flow

    @holds_for(
        ("earlier", "later"),
        [
            ('{"query": "weather", "days": 2}', '{"days": 2, "query": "weather"}'),
            ('{"a": {"b": 1, "c": [1, 2]}}', '{"a": {"c": [1, 2], "b": 1}}'),
            ('{"query": "\\u00fcber"}', '{ "query" : "über" }'),
            ("no JSON", "no JSON"),
            ("[1, 2]", "[1, 2]"),
            ("", ""),
            ('{"n": ' + "[" * 50_000, '{"n": ' + "[" * 50_000),
            ('{"n": ' + "1" * 5_000 + "}", '{"n": ' + "1" * 5_000 + "}"),
        ],
    )
    def test_the_same_call_is_not_run_again(self, earlier: str, later: str) -> None:
        """J8: a call with the same name and the same arguments, in any order of keys, does not run; its result says to
        reuse the earlier one."""
        flow = self.after(earlier)

        flow.model_calls(search("again", later))

        flow.rests_in(LlmRequesting)
        assert flow.wanted() == [PersistMessage, PersistToolResults, RequestLlm]
        assert flow.results()["again"] == TEXTS.repeated
        assert flow.errors() == []

    @pytest.mark.parametrize(
        ("earlier", "later"),
        [
            ('{"query": "iPhone 15"}', '{"query": "iPhone 15 price"}'),
            ('{"list": [1, 2]}', '{"list": [2, 1]}'),
            ('{"n": 1}', '{"n": "1"}'),
            ('{"n": 1}', '{"n": true}'),
            ("{}", "no JSON"),
            ('{"n": null}', "{}"),
            ("NaN", "Infinity"),
        ],
    )
    def test_other_arguments_run(self, earlier: str, later: str) -> None:
        """J8: a call with other arguments runs."""
        flow = self.after(earlier)

        flow.model_calls(search("again", later))

        assert flow.tools() == ["search"]

    def test_another_tool_with_the_same_arguments_runs(self) -> None:
        """J8: a call of another tool with the same arguments runs."""
        flow = self.after("{}")

        flow.model_calls(call("other", arguments="{}"))

        assert flow.tools() == ["other"]

    def test_the_three_searches_of_the_seed_all_run(self) -> None:
        """J8: three searches in a row, each for something else, all run."""
        flow = self.after('{"query": "comparison"}', '{"query": "price"}', '{"query": "reviews"}', window=8)

        assert list(flow.results().values()) == ["18 degrees"] * 3

    @pytest.mark.parametrize(("between", "runs"), [(0, False), (1, False), (2, True)])
    def test_a_call_is_remembered_over_so_many_requests(self, between: int, runs: bool) -> None:
        """J8: with a window of two, a call is remembered over the last two requests of the turn; one made before them
        runs again."""
        flow = self.after("{}", *(f'{{"n": {number}}}' for number in range(between)), window=2)

        flow.model_calls(search("again", "{}"))

        assert (flow.tools() == ["search"]) == runs

    def test_a_request_without_calls_counts_among_them(self) -> None:
        """J8: the window counts requests, also those without calls."""
        flow = self.after("{}", window=1)
        flow.model_says("", thinking="What now?")

        flow.model_calls(search("again", "{}"))

        assert flow.tools() == ["search"]

    def test_a_repeat_that_did_not_run_is_no_call_to_remember(self) -> None:
        """J8: a repeated call does not extend the memory: when the first one leaves the window, the call runs."""
        flow = self.after("{}", window=2)
        for number in range(2):
            flow.model_calls(search(f"again {number}", "{}"))

        flow.model_calls(search("at last", "{}"))

        assert flow.tools() == ["search"]

    def test_the_same_call_twice_in_one_response_runs_once(self) -> None:
        """J8: of two equal calls in one response the first runs and the second has its result at once; both results
        stand in order."""
        flow = begun()

        flow.model_calls(search("one"), search("two"), search("three", '{"query": "news"}'))
        flow.tool_ends("one", "18 degrees")
        flow.tool_ends("three", "No news")

        assert list(flow.results().items()) == [
            ("one", "18 degrees"),
            ("two", TEXTS.repeated),
            ("three", "No news"),
        ]

    @pytest.mark.parametrize("acting", [asking, responding, talking, completing, mailing, spawning])
    def test_calls_that_act_always_run(self, acting: Any) -> None:
        """J8, B10: calls that speak, ask or write always run, since what is said twice is meant twice."""
        flow = begun()
        flow.model_calls(acting("act", call_id="one"))
        flow.tool_ends("one")

        flow.model_calls(acting("act", call_id="two"), acting("act", call_id="three"))
        flow.tool_ends("two")

        assert flow.tools() == ["act"]

    def test_a_faulty_call_keeps_its_fault(self) -> None:
        """J8: a repeated call with a fault gets the fault as its result, since there is no earlier result to reuse."""
        flow = begun()
        flow.model_calls(search("one", fault="query is missing"))

        flow.model_calls(search("two", fault="query is missing"), search("three"))

        assert flow.results() == {"one": "query is missing", "two": "query is missing"}
        assert flow.tools() == ["search"]

    def test_a_new_turn_remembers_nothing(self) -> None:
        """J8: calls are remembered within a turn; the same call in the next turn runs."""
        flow = self.after('{"query": "weather"}')
        flow.model_says("18 degrees.")
        flow.begins("And now?")

        flow.model_calls(search("again"))

        assert flow.tools() == ["search"]

    def test_without_a_window_every_call_runs(self) -> None:
        """Under rules without a window a repeated call runs."""
        flow = Flow()
        flow.says()
        flow.model_calls(search("one"), search("two"))
        flow.tool_ends("one")

        assert flow.tools() == ["search"]

    @pytest.mark.slow
    @given(st.text(max_size=30), st.integers(1, 4))
    def test_whatever_is_written_as_arguments_is_known_again(self, arguments: str, window: int) -> None:
        """J8: arguments that are no object or no JSON are compared too, without an error."""
        flow = self.after(arguments, window=window)

        flow.model_calls(search("again", arguments))

        assert flow.results()["again"] == TEXTS.repeated


class TestThinking:
    """J10: a response that holds only thinking is not shown, and the turn goes on."""

    def test_a_thought_is_followed_up_and_never_shown(self) -> None:
        """J10: the thinking is neither in the reply nor delivered, and the next request is an ordinary one."""
        flow = begun()

        flow.model_says("", thinking="I should look it up.")
        assert flow.wanted() == [PersistMessage, RequestLlm]
        flow.model_calls("search", thinking="Like this.")
        flow.tool_ends("search")
        flow.model_says("It is sunny.")

        assert flow.delivered() == ["It is sunny."]
        assert flow.words(flow.ended.final_content) == ["It is sunny."]
        assert [request.nudge for request in flow.requests()] == [None] * 3

    def test_thoughts_and_calls_go_back_within_the_turn(self) -> None:
        """J10: thinking is sent back to the same model in later requests of the turn, and not in the next turn."""
        seal = {"type": "thinking", "thinking": "Look it up.", "signature": "c2VhbA=="}
        flow = begun(dialogue="transcript")
        flow.model_calls("search", thinking="Look it up.", opaque=(seal,), model="default")
        flow.tool_ends("search")

        def thoughts() -> list[Any]:
            frame, effect = flow.framed(), flow.requests()[-1]
            request = build_request(effect, frame.system, frame.messages, (), flow.state.book.turn)
            return [message.get("thinking_blocks") for message in request.messages if message.get("tool_calls")]

        assert thoughts() == [[seal]]
        flow.model_says("Sunny.")
        flow.begins("And tomorrow?")
        assert thoughts() == [None]

    def test_a_model_that_only_thinks_is_ended_by_the_limit(self) -> None:
        """J10, J12: it has not said anything yet, so nothing but the limit ends the turn, with its sentence."""
        flow = begun()

        for _ in range(8):
            flow.rests_in(LlmRequesting)
            flow.model_says("", thinking="Hm.")

        flow.rests_in(Idle)
        assert len(flow.requests()) == 8
        assert (flow.ended.limit, flow.delivered()) == ("requests", [TEXTS.limit])

    def test_a_model_that_only_thinks_after_results_is_prompted_as_well(self) -> None:
        """J10, J11: the fallback prompt, then the plain request, then as before, up to the limit."""
        flow = worked()

        while isinstance(flow.state, LlmRequesting):
            flow.model_says("", thinking="Hm.")

        nudges = [(request.nudge is not None, request.plain) for request in flow.requests()[2:]]
        assert nudges == [(False, False), (True, False), (False, True), *[(False, False)] * 3]
        assert flow.delivered() == [TEXTS.limit]

    def test_a_model_that_is_cut_off_while_it_thinks_is_not_asked_again(self) -> None:
        """It would only think up to the same limit of its output."""
        flow = begun()

        flow.model_says("", thinking="Hm", finish_reason="length")

        assert (flow.ended.truncated, flow.delivered()) == (True, [TEXTS.ending])

    def test_elsewhere_the_turn_ends_after_the_second_thought(self) -> None:
        """P30: with the policy's sentence, unless `Empty.until_limit` is chosen."""
        flow = Flow()
        flow.says()

        flow.model_says("", thinking="Hm.")
        flow.model_says("", thinking="Hm.")

        assert flow.delivered() == [TEXTS.ending]


class TestEmptyResponses:
    """J11, J20: after tool results, an empty response leads to another request in other words, and then to the end of
    the turn."""

    @pytest.mark.parametrize("content", ["", " \n", "TOOL search weather"])
    def test_an_empty_first_response_is_asked_for_again(self, content: str) -> None:
        """J12: nothing but the limit of eight requests ends such a turn, with a sentence."""
        flow = begun()

        for number in range(1, 9):
            assert len(flow.requests()) == number
            flow.model_says(content)

        flow.rests_in(Idle)
        assert (flow.ended.status, flow.ended.limit) == ("incomplete", "requests")
        assert flow.delivered() == [TEXTS.limit]

    def test_a_text_after_empty_responses_is_the_reply(self) -> None:
        """The next request is like the first."""
        flow = begun()
        flow.model_says("")
        flow.model_says("", thinking="Hm.")

        flow.model_says("Sunny.")

        assert (flow.ended.status, flow.delivered()) == ("completed", ["Sunny."])
        assert {(request.nudge, request.plain) for request in flow.requests()} == {(None, False)}

    def test_after_results_the_fallback_prompt_is_given_once(self) -> None:
        """J11: an empty response after tool results leads to the fallback prompt; a second one ends the turn."""
        flow = worked(plain_retry=0)

        flow.model_says("")
        assert flow.nudge() == TEXTS.fallback
        flow.model_says("")

        flow.rests_in(Idle)
        assert flow.ended.status == "incomplete"
        assert len(flow.requests()) == 3

    def test_text_after_the_fallback_prompt_is_the_reply(self) -> None:
        """J11: a text after the fallback prompt is the reply, and the prompt is not part of the dialogue."""
        flow = worked()
        flow.model_says("")

        flow.model_says("It is sunny.")

        assert flow.delivered() == ["It is sunny."]
        assert flow.ended.status == "completed"
        assert TEXTS.fallback not in [message.text for message in flow.transcript]

    def test_so_many_empty_responses_in_a_row_come_first(self) -> None:
        """J11: the fallback prompt follows n empty responses in a row; until then the same request is sent again."""
        flow = worked(empty=Empty(in_a_row=3))

        nudges = []
        for _ in range(3):
            flow.model_says("")
            nudges.append(flow.nudge())

        assert nudges == [None, None, TEXTS.fallback]

    def test_calls_in_between_are_not_empty(self) -> None:
        """J11: a response that calls tools resets the count of empty responses."""
        flow = worked(empty=Empty(in_a_row=2))
        flow.model_says("")
        flow.model_calls("look")
        flow.tool_ends("look")

        flow.model_says("")

        assert flow.nudge() is None

    def test_after_calls_the_fallback_prompt_is_not_given_again(self) -> None:
        """J11: the fallback prompt is given once in a turn."""
        flow = worked(plain_retry=0)
        flow.model_says("")
        flow.model_calls("look")
        flow.tool_ends("look")
        assert flow.nudge() is None

        flow.model_says("")

        flow.rests_in(Idle)

    def test_no_prompt_goes_beyond_the_limit(self) -> None:
        """J11: the fallback prompt is not given if no request is left."""
        flow = worked(limits=Limits(requests=2, last="plain"))

        flow.model_says("")

        flow.rests_in(Idle)
        assert len(flow.requests()) == 2

    def test_a_defined_ending_may_be_a_sentence(self) -> None:
        """J11: the policy decides whether the turn ends with a sentence; the presets have one."""
        for sentence in ("I have nothing to say.", ""):
            flow = Flow(texts=Texts(ending=sentence))
            flow.says()

            flow.model_says("")

            assert flow.delivered() == ([sentence] if sentence else [])

    def test_what_was_said_beside_a_call_is_no_reply(self) -> None:
        """J20: a text beside an earlier call is no reply: the turn ends with the policy's sentence."""
        flow = begun()
        flow.model_calls("search", content="Let me look.")
        flow.tool_ends("search")

        while not isinstance(flow.state, Idle):
            flow.model_says("")

        assert flow.delivered() == [TEXTS.ending]

    def test_the_plain_retry_comes_after_the_fallback_prompt(self) -> None:
        """J20: an empty response to the fallback prompt leads to one plain request, with only the system prompt and the
        user's text and without tools."""
        flow = worked()
        flow.model_says("")

        flow.model_says("")

        request = flow.requests()[-1]
        assert (request.plain, request.tool_choice, request.nudge) == (True, "none", None)

    @pytest.mark.parametrize(
        ("content", "reply"), [("It is sunny.", ["It is sunny."]), ("", [TEXTS.ending]), ("TOOL x", [TEXTS.ending])]
    )
    def test_the_plain_retry_is_the_last_word(self, content: str, reply: list[str]) -> None:
        """J20: a text in response to the plain request is the reply; without one the turn ends with a sentence."""
        flow = worked()
        flow.model_says("")
        flow.model_says("")

        flow.model_says(content)

        flow.rests_in(Idle)
        assert flow.delivered() == reply
        assert len(flow.requests()) == 4

    def test_the_plain_retry_counts_against_the_limit(self) -> None:
        """J20: the plain request counts against the limit of requests."""
        flow = worked(limits=Limits(requests=3, last="plain"))
        flow.model_says("")

        flow.model_says("")

        flow.rests_in(Idle)
        assert [request.plain for request in flow.requests()] == [False, False, False]

    def test_a_call_in_answer_to_the_plain_request_is_a_call(self) -> None:
        """J20: a call in response to the plain request runs, although no tools were offered, and the turn goes on as
        usual."""
        flow = worked()
        flow.model_says("")
        flow.model_says("")

        flow.model_calls(call("search", call_id="wild", fault="There is no tool called search."))

        assert flow.requests()[-1].plain is False
        flow.model_says("Sunny.")
        assert flow.delivered() == ["Sunny."]


class TestTheLimit:
    """J12: a turn has exactly eight requests."""

    def test_eight_responses_that_only_call_are_eight_requests(self) -> None:
        """J12: the eighth request is like the others; the calls in its response do not run, the turn ends with the
        stated text, and the history is valid."""
        flow = begun()

        for number in range(1, 9):
            flow.model_calls(search(f"call {number}", f'{{"n": {number}}}'))
            if number < 8:
                flow.tool_ends(f"call {number}")

        flow.rests_in(Idle)
        assert len(flow.requests()) == 8
        assert {(request.tool_choice, request.plain) for request in flow.requests()} == {("auto", False)}
        assert flow.results()["call 8"] == TEXTS.not_run
        assert flow.errors() == ["call 8"]
        assert (flow.ended.status, flow.delivered()) == ("incomplete", [TEXTS.limit])
        assert flow.roles() == ["user", *["assistant", "tool"] * 8, "assistant"]

    def test_the_next_turn_has_eight_requests_again(self) -> None:
        """J12, P34: the requests are counted anew with every message."""
        flow = begun(limits=Limits(requests=1, last="plain"))
        flow.model_calls("search")

        flow.begins("Well?")
        flow.model_says("Sunny.")

        assert flow.delivered() == [TEXTS.limit, "Sunny."]

    def test_the_eighth_may_answer(self) -> None:
        """J12: a text in response to the eighth request is the reply."""
        flow = begun(limits=Limits(requests=2, last="plain"))
        flow.model_calls("search")
        flow.tool_ends("search")

        flow.model_says("Sunny.")

        assert (flow.ended.status, flow.delivered()) == ("completed", ["Sunny."])

    def test_with_answer_now_the_last_request_goes_without_tools(self) -> None:
        """J12: with `last="answer_now"` the last request is sent without tools."""
        flow = begun(limits=Limits(requests=2, last="answer_now"))
        flow.model_calls("search")

        flow.tool_ends("search")

        assert [request.tool_choice for request in flow.requests()] == ["auto", "none"]

    def test_a_call_that_is_repeated_is_a_request_all_the_same(self) -> None:
        """J8, J12: a model that repeats one call reaches the limit like any other."""
        flow = begun()
        flow.model_calls(search("call 1"))
        flow.tool_ends("call 1")

        for number in range(2, 9):
            flow.model_calls(search(f"call {number}"))

        flow.rests_in(Idle)
        assert len(flow.requests()) == 8
        assert flow.results()["call 8"] == TEXTS.not_run


class TestTheMarker:
    """J13: lines of the model's tool protocol are removed from the text for people."""

    @holds_for(
        ("content", "reply"),
        [
            ("TOOL: search", ""),
            ("TOOL", ""),
            ("Sunny.\nTOOL: search\nAnd warm.", "Sunny.\nAnd warm."),
            ("  TOOL search\nSunny.", "Sunny."),
            ("\tTOOL\r\nSunny.", "Sunny."),
            ("Use the TOOL: it is good.", "Use the TOOL: it is good."),
            ("TOOLBOX sale today", "TOOLBOX sale today"),
            ("TOOL_X", "TOOL_X"),
            ("Tools are useful.\ntool: no marker", "Tools are useful.\ntool: no marker"),
            ("", ""),
        ],
    )
    def test_a_line_that_begins_with_the_marker_is_removed(self, content: str, reply: str) -> None:
        """J13: a line that begins with the marker is removed; a marker within a line stays, and so does a longer
        word."""
        assert text_of_reply(content, reply_flow()) == reply

    def test_a_marker_may_be_a_sign(self) -> None:
        """A marker that does not end in a letter may be followed by anything."""
        assert text_of_reply("@@search\n@@ look\n@ home", Policy(marker="@@")) == "@ home"
        assert text_of_reply("TOOL: a\nTOOL:b\nTOOL c", Policy(marker="TOOL:")) == "TOOL c"

    def test_a_marker_may_be_one_letter(self) -> None:
        """J13: a marker of one letter is a word too: a longer word that begins with it stays."""
        assert text_of_reply("T: search\nToday", Policy(marker="T")) == "Today"

    @given(st.text())
    def test_without_a_marker_nothing_is_removed(self, content: str) -> None:
        """J13: without a marker the text stays as it is."""
        assert text_of_reply(content, Policy()) == content

    def test_a_reply_of_markers_alone_is_no_reply(self) -> None:
        """J13: a text of which nothing is left is an empty response."""
        flow = worked()

        flow.model_says("TOOL: search\nTOOL: search again")

        assert flow.nudge() == TEXTS.fallback

    def test_a_reply_with_markers_ends_the_turn(self) -> None:
        """J13: what is left of the text is the reply."""
        flow = worked()

        flow.model_says("TOOL: search\nIt is sunny.")

        assert flow.ended.status == "completed"
        assert [text_of_reply(text, reply_flow()) for text in flow.delivered()] == ["It is sunny."]


class TestFailures:
    """J16: every failure ends the turn in a defined way."""

    def test_a_model_that_never_answers_leaves_a_reply(self) -> None:
        """J16: if every attempt times out, the turn ends with an error reply and rests in Idle."""
        flow = begun()

        for _ in range(2):
            flow.model_fails("timeout")
            flow.rests_in(RetryWaiting)
            flow.timer_rings()
        flow.model_fails("timeout")

        flow.rests_in(Idle)
        assert flow.ended.status == "failed"
        assert flow.delivered() == [f"{TEXTS.error} Failed after 3 attempts: The model is not well."]
        assert flow.roles() == ["user", "assistant"]

    def test_by_policy_it_rests_in_failed(self) -> None:
        """J16: the policy decides whether a failed turn rests in Idle or in Failed."""
        flow = begun(on_failure="fail")

        flow.model_fails("authentication")

        flow.rests_in(Failed)
        assert flow.delivered() == []

    def test_what_was_said_before_the_failure_stays_unsaid(self) -> None:
        """J16, S8: of a failed turn only the error reaches the user."""
        flow = begun()
        flow.model_calls("search", content="Let me look.")
        flow.tool_ends("search")

        flow.model_fails("authentication")

        assert flow.delivered() == [f"{TEXTS.error} The model is not well."]

    def test_the_next_message_is_answered(self) -> None:
        """J16: the message after a failed turn is answered."""
        flow = begun()
        flow.model_fails("authentication")

        flow.begins("Try again")
        flow.model_says("Sunny.")

        assert flow.delivered()[-1] == "Sunny."


class TestPlans:
    """J21: a plan in the model's text is ordinary text."""

    @pytest.mark.parametrize(
        "plan",
        [
            '{"steps": [{"tool": "webSearch", "arguments": {"query": "weather"}}, {"FINAL_RESPONSE": "Sunny."}]}',
            "FINAL_RESPONSE: Sunny.",
            "ANALYZE the results",
        ],
    )
    def test_a_plan_in_the_content_is_not_executed(self, plan: str) -> None:
        """J21: a text that looks like a plan ends the turn and is the reply."""
        flow = begun()

        flow.model_says(plan)

        flow.rests_in(Idle)
        assert flow.wanted() == [PersistMessage, DeliverToUser]
        assert flow.delivered() == [plan]


class TestRecentRules:
    """J3: the number of seconds in the rule is used by the search."""

    def test_the_window_is_a_setting(self) -> None:
        """J3: `dialogue_window_sec` is stored as the seconds of `Recent`."""
        flow = Flow(reply_flow(), dialogue=Recent(seconds=60))

        flow.says()

        (recall,) = (effect for effect in flow.step.effects if isinstance(effect, RecallMemory))
        assert recall.recent == 60
