"""P11: every error that litellm raises has exactly one kind, and the wait that a provider asks for is read from it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pkgutil import resolve_name

import pytest

from turnwise.effects.model.litellm.errors import kind_of, kinds, retry_after
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.effects.model.litellm.refusals import Refusal
from turnwise.states.values.value import FailureKind

from ....support.cases import holds_for

NEVER_RAISED_BY_REQUESTS = {
    "CookieConflict",
    "InvalidWebhookSignatureError",
    "WebSocketConnectionClosedError",
    "WebSocketQueueFullError",
}


def exceptions_of(module: str) -> dict[str, type[BaseException]]:
    """The public exception classes of a module."""
    classes = inspect.getmembers(resolve_name(module), inspect.isclass)
    return {name: cls for name, cls in classes if issubclass(cls, Exception) and not name.startswith("_")}


@pytest.mark.parametrize("module", ["litellm.exceptions", "openai", "httpx"])
def test_every_class_has_a_kind(module: str) -> None:
    """Each class is in the table or has a parent that is; the others are never raised by a model request."""
    load_litellm()

    unlisted = {
        name for name, cls in exceptions_of(module).items() if not any(parent in kinds() for parent in cls.__mro__)
    }

    assert unlisted <= NEVER_RAISED_BY_REQUESTS


def test_no_class_that_litellm_lists_is_internal() -> None:
    """Instances are made without arguments, so the class alone decides."""
    load_litellm()
    raised = [*resolve_name("litellm:LITELLM_EXCEPTION_TYPES"), *exceptions_of("litellm.exceptions").values()]

    assert {cls.__name__ for cls in raised if kind_of(cls.__new__(cls)) == "internal"} == set()


@holds_for(
    ("name", "kind"),
    [
        ("ContextWindowExceededError", "context_window"),
        ("ContentPolicyViolationError", "content_filter"),
        ("BadRequestError", "invalid_request"),
        ("PermissionDeniedError", "authentication"),
        ("NotFoundError", "unknown_model"),
        ("MidStreamFallbackError", "network"),
        ("ServiceUnavailableError", "server_error"),
        ("Timeout", "timeout"),
        ("APIConnectionError", "network"),
        ("BudgetExceededError", "rate_limit"),
    ],
)
def test_the_most_specific_class_decides(name: str, kind: FailureKind) -> None:
    """A subclass with a meaning of its own does not get its parent's kind."""
    load_litellm()
    cls = resolve_name(f"litellm.exceptions:{name}")

    assert kind_of(cls.__new__(cls)) == kind


def test_an_unknown_class_is_classified_by_its_http_status() -> None:
    """A provider's own error class may have one."""
    error = Exception()
    error.status_code = 503  # type: ignore[attr-defined]

    assert kind_of(error) == "server_error"


def test_an_error_without_class_and_status_is_internal() -> None:
    """A fault of this program is not blamed on a provider."""
    assert kind_of(ZeroDivisionError()) == "internal"


@pytest.mark.slow
def test_the_first_error_loads_litellm_without_its_downloads() -> None:
    """An error may be judged before litellm was imported; it must not fetch its price list then."""
    program = (
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'litellm':\n"
        "            print(os.environ.get('LITELLM_LOCAL_MODEL_COST_MAP'))\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from turnwise.effects.model.litellm.errors import kind_of\n"
        "assert 'litellm' not in sys.modules\n"
        "assert kind_of(ZeroDivisionError()) == 'internal'\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "LITELLM_LOCAL_MODEL_COST_MAP"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=200)

    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("-3", 0), ("0.5", 0.5), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None), ("nan", None), ("inf", None)],
)
def test_a_header_is_a_wait_of_zero_seconds_or_more(header: str, seconds: float | None) -> None:
    """A moment in the past needs no wait; a header that cannot be read counts as none."""
    assert retry_after(Refusal(429, headers={"retry-after": header})) == seconds


@holds_for(
    ("sentence", "seconds"),
    [
        ("retry attempts: 3", None),
        ("retry budget 500 exceeded", None),
        ("Retry after 3 attempts.", None),
        ("Retries: 5. Resets 12 limits.", None),
        ("Quota available: 20", None),
        ("retry in 3", 3),
        ("please retry your request after 20", 20),
        ("retry_after: 7", 7),
        ("Try again in 500ms", 0.5),
        ("The limit resets in 1m30s.", 90),
        ("Please wait 5 seconds.", 5),
    ],
)
def test_a_number_is_a_wait_if_the_sentence_says_so(sentence: str, seconds: float | None) -> None:
    """It has a unit, or a word before it that tells a time."""
    assert retry_after(Refusal.of_body(sentence, 429)) == seconds
