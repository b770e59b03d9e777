"""What a request to a model costs in a dialogue of 1,000 turns: does it follow what is sent, or what is stored?

Each turn has a message of a person, a call of a tool and a reply. Model and tool answer at once, and the database is in
memory, so what is left is turnwise itself. For each request the processor time is measured from the moment at which
the engine asks for it to the moment at which the model has it. The first fifth of the turns is compared with the last.

    python benchmarks/long_dialogue.py                 all rules, about a minute
    python benchmarks/long_dialogue.py --turns 300     shorter
    python benchmarks/long_dialogue.py --quick         a few turns, to see that it works; its figures say little

| rules | what a request holds |
|---|---|
| last minutes | the turn and twenty texts before it, as in a reply flow, and what was recalled for the turn |
| recalled | the whole dialogue, and what was recalled for the turn |
| whole | the whole dialogue |

Where the whole dialogue is sent, a request grows by nature. So there the cost is given for each message that is sent.
What recalling itself takes is not in the figures. The ratios say more than the times, which a busy machine stretches.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import process_time
from typing import Any

from figures import Figure, at_most

from turnwise import EffectContext, Engine, ModelAnswer, ModelCall, ModelRequest, Policy, Recent, Token, tool
from turnwise.effects.dispatcher import Performer
from turnwise.engine.composition import Performers, PortWrappers, wrapped_ports
from turnwise.states import Effect, RecallMemory, RecentText, RequestLlm
from turnwise.states.events import MemoryRecalled

QUESTION = "What is the weather like, and should I take an umbrella when I go out? " * 3
ANSWER = "It is mild and dry, so you can leave the umbrella at home this afternoon. " * 3
TEXTS = 20
"""How many texts of the last minutes a request holds."""

RULES = {
    "last minutes": Policy(dialogue=Recent(), recall=True, describe_tools=True),
    "recalled": Policy(recall=True, describe_tools=True),
    "whole": Policy(describe_tools=True),
}


@tool(crash="pure")
async def forecast(city: str) -> str:
    """Forecast the weather."""
    return f"18 degrees in {city}, dry. " * 10


@dataclass
class Model:
    """Calls the tool once in each turn, and then answers. `costs` has for each request the seconds that it took to
    build, and the number of its messages."""

    name = "instant"
    costs: list[tuple[float, int]] = field(default_factory=list)
    asked: float = 0.0

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer at once."""
        self.costs.append((process_time() - self.asked, len(request.messages)))
        last = [message["role"] for message in request.messages[-2:]]  # what was recalled may stand behind a result
        if "tool" not in last:
            return ModelAnswer(tool_calls=(ModelCall(id="a", name="forecast", arguments='{"city": "Espoo"}'),))
        return ModelAnswer(content=ANSWER)


async def recall(effect: RecallMemory, context: EffectContext) -> MemoryRecalled:
    """Find a text that differs from turn to turn, and the texts of the last minutes if they are wanted."""
    roles: Any = ("user", "assistant") * (TEXTS // 2)
    recent = tuple(RecentText(role=role, text=f"{context.turn}: {ANSWER}") for role in roles) if effect.recent else ()
    return MemoryRecalled(
        effect_id=effect.effect_id, at=datetime.now(UTC), block=f"Found for turn {context.turn}.", recent=recent
    )


def timed(model: Model) -> Callable[[Performers], Performers]:
    """Return what lets the model know when the engine asks for each request."""

    def wrap(performers: Performers) -> Performers:
        perform: Performer = performers[RequestLlm]

        async def asked(effect: Effect, context: EffectContext) -> Any:
            model.asked = process_time()
            return await perform(effect, context)

        return {**performers, RequestLlm: asked}

    return wrap


async def talk(policy: Policy, turns: int) -> tuple[list[tuple[float, int]], list[float]]:
    """Talk for so many turns; return the costs of the requests, and the seconds of processor time of each turn."""
    model, seconds = Model(), []
    with wrapped_ports(PortWrappers(performers=timed(model))):
        engine = Engine.open("sqlite://", model=model, tools=[forecast], performers={RecallMemory: recall})
    async with engine:
        conversation = await engine.create(policy=policy, system="You are a guide. " * 20)
        for _ in range(turns):
            began = process_time()
            await conversation.send(QUESTION)
            seconds.append(process_time() - began)
    return model.costs, seconds


def per_request(costs: list[tuple[float, int]]) -> list[float]:
    """Return for each turn the mean of its two requests, of which the first has more to do."""
    return [(first + second) / 2 for (first, _), (second, _) in zip(costs[::2], costs[1::2], strict=True)]


def figures(rules: str, turns: int) -> Iterator[Figure]:
    """Talk under these rules, and compare the ends of the dialogue."""
    costs, seconds = asyncio.run(talk(RULES[rules], turns))
    fifth = max(1, turns // 5)
    ends = costs[: 2 * fifth], costs[-2 * fifth :]
    early, late = (statistics.median(per_request(part)) for part in ends)
    sent = tuple(statistics.mean(count for _, count in part) for part in ends)
    yield Figure(f"{rules}: messages sent, first fifth, last", f"{sent[0]:.0f}, {sent[1]:.0f}")
    yield Figure("  to build a request", f"{early * 1e6:.0f} µs, {late * 1e6:.0f} µs")
    if rules == "last minutes":
        yield at_most("  the late request", late / early, 1.2, "of the early one")
        turn = statistics.median(seconds[-fifth:]) / statistics.median(seconds[:fifth])
        yield at_most("  the late turn as a whole", turn, 1.2, "of the early one")
    else:
        yield at_most("  the late request, for each message", late / sent[1] * sent[0] / early, 1.2, "of the early one")


def main() -> None:
    """Print the figures of the rules that are asked for."""
    parser = argparse.ArgumentParser(description="What a request costs in a long dialogue.")
    parser.add_argument("rules", nargs="*", choices=[*RULES, []], help="which rules; all of them by default")
    parser.add_argument("--turns", type=int, default=1000, help="how many turns the dialogue has")
    parser.add_argument("--quick", action="store_true", help="a few turns, to see that it works")
    given = parser.parse_args()
    for rules in given.rules or RULES:
        for figure in figures(rules, 10 if given.quick else given.turns):
            print(figure)


if __name__ == "__main__":
    main()
