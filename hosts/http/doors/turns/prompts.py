"""What a person is asked, as text for a client that can show nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from .....effects.printable import with_hidden_shown
from .....effects.tools.tool import shown_arguments
from .....engine.turns import Turn, WaitsForAnswer, WaitsForApproval, WaitsForResolution
from .....states.values.questions import UserQuestion


def prompt_of(turn: Turn) -> str | None:
    """Return what the turn asks of a person, None if it asks nothing. The prompt about a call names the call by its
    id, so that a late reply is not taken for another call. `Pure.`"""
    match turn:
        case WaitsForAnswer(questions=questions):
            return "\n\n".join(map(question_text, questions))
        case WaitsForApproval(call=call):
            tool, arguments = with_hidden_shown(call.name), shown_arguments(call)
            if call.approval_by == "operator":
                return f"An operator decides whether the tool {tool} may run with {arguments}. [{call.call_id}]"
            return f'May the tool {tool} run with {arguments}? Answer "yes" or "no". [{call.call_id}]'
        case WaitsForResolution(call=call):
            tool, arguments = with_hidden_shown(call.name), shown_arguments(call)
            return (
                f"The tool {tool} was interrupted while it ran with {arguments}, and it is unknown whether it"
                f' finished. Answer "ran", "did not run" or "again". [{call.call_id}]'
            )
        case _:
            return None


def question_text(question: UserQuestion) -> str:
    """Return a question with its options, each on a line with its number. `Pure.`"""
    return "\n".join(_lines(question))


def _lines(question: UserQuestion) -> Iterator[str]:
    yield question.question + (" (Several may be chosen.)" if question.multi_select else "")
    for number, option in enumerate(question.options, start=1):
        yield f"{number}. {option.label}" + (f": {option.description}" if option.description else "")
