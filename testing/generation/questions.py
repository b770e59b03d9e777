"""Generated questions of tools to people, and answers to them."""

from __future__ import annotations

from collections.abc import Iterable

from ...states.values.questions import MAX_HEADER, Answers, QuestionOption, UserQuestion
from .chance import Chance


def question_set(chance: Chance) -> tuple[UserQuestion, ...]:
    """One to four questions that may be asked together. Some are open: they offer no answers."""
    asked = [_question(chance) for _ in range(chance.pick((1, 1, 2, 4)))]
    texts = _distinct([question.question for question in asked])
    return tuple(question.model_copy(update={"question": text}) for question, text in zip(asked, texts, strict=True))


def _question(chance: Chance) -> UserQuestion:
    multi_select = chance.often()
    labels = [_label(chance) for _ in range(chance.pick((2, 2, 3, 4)))]
    described = chance.rarely(4)
    header = chance.pick((None, "Time", "x" * MAX_HEADER))
    if chance.rarely(6):
        return UserQuestion(question=chance.words(), header=header)
    return UserQuestion(
        question=chance.words(),
        header=header,
        options=tuple(
            QuestionOption(
                label=label,
                description=chance.words() if described else None,
                preview=chance.words() if described and not multi_select else None,
            )
            for label in _distinct(labels)
        ),
        multi_select=multi_select,
    )


def _label(chance: Chance) -> str:
    label = chance.words()
    return f"{label}?" if label.strip().casefold() == "other" else label


def _distinct(texts: Iterable[str]) -> list[str]:
    """These texts, with a mark added to those that stand there already."""
    seen: list[str] = []
    for text in texts:
        while text in seen:
            text += "+"
        seen.append(text)
    return seen


def any_answers(chance: Chance) -> Answers:
    """Answers to whatever was asked: unknown questions, empty texts, lists where one label belongs."""
    return {chance.text(): _any_answer(chance) for _ in range(chance.below(4))}


def _any_answer(chance: Chance) -> str | tuple[str, ...]:
    return tuple(chance.text() for _ in range(chance.below(4))) if chance.rarely(3) else chance.text()


def any_answer_to(chance: Chance, question: UserQuestion) -> str | tuple[str, ...]:
    """An answer that this question takes: a label, several where that is allowed, or words of one's own."""
    labels = tuple(option.label for option in question.options) or (chance.words(),)
    match chance.below(4):
        case 1 if question.multi_select:
            return labels
        case 2:
            return chance.words()
        case 3:
            return labels[-1]
        case _:
            return labels[0]
