"""What models have answered is innocent, and what came in since may be what was refused."""

from __future__ import annotations

from turnwise.states.transcript import Acceptance, Suspicion
from turnwise.states.values.messages import Image, Message, Withheld

from ...support.pictures import PNG

PICTURE = Image.of(PNG)


def message(role: str, seq: int, turn: int = 1, text: str = "Hello", **fields: object) -> Message:
    """A message that entered at this step."""
    return Message(role=role, text=text, seq=seq, turn=turn, **fields)


def after_an_answer(at: int = 5, model: str = "m") -> Acceptance:
    """What is accepted once this model has answered."""
    acceptance = Acceptance()
    acceptance.accept(model, at)
    return acceptance


def held(suspicion: Suspicion, *messages: Message) -> list[str]:
    """What a request with these messages holds of each suspect."""
    return list(suspicion.held(messages, messages))


def test_what_came_in_before_the_answer_is_no_suspect() -> None:
    """The model has taken it."""
    suspicion = after_an_answer().suspicion("m", turn=2, first_try=2)

    assert held(suspicion, message("user", 1), message("tool", 3)) == []


def test_words_are_told_from_what_nobody_has_said() -> None:
    """A result is an addition, a message of this turn is words, an answer of this turn is an answer."""
    suspicion = after_an_answer().suspicion("m", turn=2, first_try=2)

    said = [message("user", 6, 2), message("assistant", 6, 2), message("tool", 7, 2)]

    assert [held(suspicion, one) for one in said] == [["words"], ["answers"], ["additions"]]


def test_words_of_a_turn_that_failed_are_an_addition() -> None:
    """They belong to no turn that could fail because of them."""
    suspicion = after_an_answer().suspicion("m", turn=3, first_try=3)

    assert held(suspicion, message("user", 6, 2)) == ["additions"]


def test_another_model_may_refuse_what_the_first_one_took() -> None:
    """And only from that one it is withheld."""
    suspicion = after_an_answer().suspicion("other", turn=2, first_try=2)

    assert held(suspicion, message("user", 1)) == ["earlier"]
    assert suspicion.mark("earlier", "content_filter", "text").model == "other"


def test_everything_is_a_suspect_when_two_turns_in_a_row_are_refused() -> None:
    """Providers change their minds about what they took."""
    acceptance = after_an_answer()
    acceptance.refuse(2)

    assert held(acceptance.suspicion("m", turn=2, first_try=2), message("user", 1)) == []
    assert held(acceptance.suspicion("m", turn=3, first_try=3), message("user", 1)) == ["earlier"]


def test_an_answer_clears_every_suspicion() -> None:
    """What was withheld before it was rightly withheld, and is no longer on trial."""
    acceptance = after_an_answer()
    acceptance.refuse(2)
    acceptance.tried.append((0, Withheld(what="text", kind="content_filter")))

    acceptance.accept("m", 9)

    assert (acceptance.refused, acceptance.tried) == (None, [])


def test_a_model_that_has_taken_an_image_is_not_blind() -> None:
    """Its images are suspects, its sight is not."""
    old, new = (message("user", seq, turn, images=(PICTURE,)) for seq, turn in ((1, 1), (6, 2)))
    seeing = after_an_answer().suspicion("m", turn=2, first_try=2)
    untried = after_an_answer(at=0).suspicion("m", turn=2, first_try=2)

    assert "sight" not in held(seeing, old, new)
    assert "sight" in held(untried, new)


def test_what_is_withheld_is_no_suspect() -> None:
    """The model does not see it."""
    suspicion = after_an_answer().suspicion("m", turn=2, first_try=2)
    hidden = (Withheld(what="text", kind="content_filter"),)

    assert held(suspicion, message("tool", 7, 2, withheld=hidden)) == []


def test_a_copy_grows_on_its_own() -> None:
    """A fork accepts what its own models answer."""
    acceptance = after_an_answer()
    copied = acceptance.copy()

    copied.accept("other", 9)

    assert (acceptance.newest, acceptance.by_model) == (5, {"m": 5})
