"""Labels stand in the places of secrets: deterministic, idempotent, linear, and counted."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwise import ConfigurationError, Redaction, RedactionRule, SecretSpan
from turnwise.effects.redaction.redaction import NOT_INSTALLED

from ...support.cases import holds_for
from ...support.secrets import ALL, SECRETS, WRITTEN, found_in, load_sample

TUNING = load_sample("tuning")
FRAGMENTS = [
    *(one["text"] for half in TUNING.values() for one in half),
    *("[EMAIL]", "[X", "]", "password", "=", ":", " is ", "your code is ", "123456", "\n", "@", "4111", "sk-", "://"),
    *("?token=", "&", '"', "'", "\\", "+358", "-", "\u200b", "é", "\ue000", "\ud800", "{", "}", "["),
]


def fragment_at(index: int) -> str:
    """Return one of the fragments."""
    return FRAGMENTS[index]


def cuttings() -> st.SearchStrategy[str]:
    """Parts of texts with and without secrets, put together in any way."""
    fragment = st.integers(0, len(FRAGMENTS) - 1).map(fragment_at)
    part = st.tuples(fragment, st.integers(0, 80), st.integers(0, 80)).map(lambda cut: cut[0][cut[1] : -cut[2] or None])
    return st.lists(fragment | part, max_size=6).map("".join)


@pytest.fixture(scope="module")
def redaction() -> Redaction:
    """The built-in rules."""
    return Redaction()


class TestEveryKind:
    """J1: each kind of secret is replaced by a label."""

    @holds_for("kind", SECRETS)
    def test_is_found(self, redaction: Redaction, kind: str) -> None:
        """J1: the value is gone, and a label stands in its place."""
        redacted = redaction.redact(WRITTEN[kind].format(SECRETS[kind]))

        assert not found_in(redacted)
        assert "[" in redacted

    def test_is_found_beside_others(self, redaction: Redaction) -> None:
        """J1: also in one text with all the others, whose other words stay."""
        redacted = redaction.redact(ALL)

        assert not found_in(redacted)
        assert "Pay to [IBAN] by Friday." in redacted
        assert "See https://api.test/items?page=2&access_token=[TOKEN]&sort=asc" in redacted

    @holds_for(
        ("written", "redacted"),
        [
            ("Card \uff14\uff11\uff11\uff11 \uff11\uff11\uff11\uff11 1111 1111.", "Card [CARD]."),
            ("Card 4111\u202f1111\u202f1111\u202f1111.", "Card [CARD]."),
            ("k\u200ba\u200bte@hidden.example now", "[EMAIL] now"),
            ("p\u0430ssword=hunter2", "p\u0430ssword=[PASSWORD]"),
            ("\u0455k-proj-abcdEFGH1234ijkl", "[API_KEY]"),
            ("4242 4242\n4242 4242 is it", "[CARD] is it"),
            ("ghp_aB3dE5fG7hI9jK1lM3nO\n5pQ7rS9tU1vW3xY5 end", "[API_KEY] end"),
            ("half \ud800 anna@posti.example", "half \ud800 [EMAIL]"),
            ("keys=[AKIAIOSFODNN7EXAMPLE]", "keys=[[API_KEY]]"),
            ("[FI2112345600000785]", "[[IBAN]]"),
            ("[DEADBEEF01234567DEADBEEF0123456A]", "[[HEX]]"),
        ],
    )
    def test_is_found_in_disguise(self, redaction: Redaction, written: str, redacted: str) -> None:
        """Look-alikes, invisible characters, line breaks and half characters hide nothing."""
        assert redaction.redact(written) == redacted


class TestNumbersAndSpeech:
    """J1: secrets as they are read out, and numbers that look like them in tables."""

    @holds_for(
        ("spoken", "redacted"),
        [
            ("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 expires 1 2 2 5", "[CARD] expires 1 2 2 5"),
            ("4111 1111 1111 1111 5555 5555 5555 4444 3782 822463 10005", "[CARD] [CARD] [CARD]"),
            ("The password for the wifi is bluefish42.", "The password for the wifi is [PASSWORD]."),
            ("The password for the wifi is on the fridge.", "The password for the wifi is on the fridge."),
            ("anna dot berg at example dot org", "[EMAIL]"),
            ("Write to anna at gmail dot com.", "Write to [EMAIL]."),
            ("Meet me at the dot in the middle.", "Meet me at the dot in the middle."),
            ("Koodisi on 482913", "Koodisi on [CODE]"),
            ("验证码是482913", "验证码是[CODE]"),
            ("Il tuo codice è 482913", "Il tuo codice è [CODE]"),
            ("Authorization: Bearer abcdef.ghijkl", "Authorization: Bearer [TOKEN]"),
            ("Authorization: Bearer authentication", "Authorization: Bearer authentication"),
            ("Authorization: Bearer YOUR_TOKEN", "Authorization: Bearer YOUR_TOKEN"),
            ("api key: 12345678-1234-1234-1234-123456789abc", "api key: [PASSWORD]"),
            ("Password: 8-20 characters", "Password: 8-20 characters"),
            ("order 415-555-2671, call 415-555-2671", "order 415-555-2671, call [PHONE]"),
        ],
    )
    def test_what_people_say(self, redaction: Redaction, spoken: str, redacted: str) -> None:
        """J1: a secret is found in a sentence, and a sentence without one stays."""
        assert redaction.redact(spoken) == redacted

    @pytest.mark.slow
    @holds_for("separator", [" ", "\n"])
    @holds_for("digits", [1, 2, 3, 4])
    def test_a_list_of_numbers_stays(self, redaction: Redaction, digits: int, separator: str) -> None:
        """J1: among members of a list some always look like a card together; it counts only where the list begins."""
        random = Random(digits)
        lists = (separator.join(str(random.randrange(10**digits)).zfill(digits) for _ in range(40)) for _ in range(100))
        assert sum(redaction.redact(numbers) != numbers for numbers in lists) < 10

    def test_fractions_stay(self, redaction: Redaction) -> None:
        """J1: of sixteen digits, as programs write them."""
        random = Random(1)
        text = " ".join(f"{random.random():.16f}" for _ in range(1_000))
        assert redaction.redact(text) == text


class TestJson:
    """JSON stays JSON."""

    @holds_for(
        ("written", "redacted"),
        [
            ({"to": "anna@posti.example", "n": 3}, {"to": "[EMAIL]", "n": 3}),
            ({"password": "swordfish"}, {"password": "[PASSWORD]"}),
            ({"auth": {"apiKey": "qwe"}, "pin": 4711}, {"auth": {"apiKey": "[PASSWORD]"}, "pin": "[CODE]"}),
            ({"headers": {"Authorization": "Bearer abc.def"}}, {"headers": {"Authorization": "[TOKEN]"}}),
            ([4111111111111111, True, None, 1.5], ["[CARD]", True, None, 1.5]),
            ({"anna@posti.example": 1, "otto@posti.example": 2}, {"[EMAIL]": 1, "[EMAIL] 2": 2}),
            ({"inner": '{"password": "swordfish"}'}, {"inner": '{"password": "[PASSWORD]"}'}),
            ({"passwords": ["swordfish"], "tokens": 12345678}, {"passwords": ["[PASSWORD]"], "tokens": 12345678}),
            ({"passwordConfirm": "swordfish"}, {"passwordConfirm": "[PASSWORD]"}),
            ({"name": "DB_PASSWORD", "value": "swordfish"}, {"name": "DB_PASSWORD", "value": "[PASSWORD]"}),
            ({"name": "password", "value": "string"}, {"name": "password", "value": "string"}),
            ({"password": {"type": "string"}}, {"password": {"type": "string"}}),
            ('{"cut": 1, "password": "swordf', '{"cut": 1, "password": "[PASSWORD]'),
            ("<Password>swordfish</Password>", "<Password>[PASSWORD]</Password>"),
            ({"max_tokens": 512, "next_page_token": "abc123def"}, {"max_tokens": 512, "next_page_token": "abc123def"}),
        ],
    )
    def test_secrets_are_known_by_form_and_by_name(self, redaction: Redaction, written: Any, redacted: Any) -> None:
        """J1: the values are looked at one by one, and so are the names of the members that hold them."""
        assert json.loads(redaction.redact(json.dumps(written))) == redacted
        assert redaction.redact_json(written) == redacted

    def test_what_holds_no_secret_stays_as_it_was_written(self, redaction: Redaction) -> None:
        """With its spaces and its numbers."""
        written = '{ "a" : 1.0,\n "b": "\\u00e9" }'

        assert redaction.redact(written) == written

    def test_a_member_that_another_one_hides_is_not_kept(self, redaction: Redaction) -> None:
        """Of two members with one name a parser has the last."""
        assert "hunter2" not in redaction.redact('{"a": "password=hunter2 now", "a": 1}')

    def test_depth_is_no_hiding_place(self, redaction: Redaction) -> None:
        """A value that is too deep for the parser is read as a text."""
        deep = "[" * 50_000 + '"anna@posti.example"' + "]" * 50_000

        assert "anna" not in redaction.redact(deep)


class TestLaws:
    """What holds for every text."""

    @given(cuttings())
    @example("user=bob;pwd=Tr0ub4dor&3;timeout=30")
    def test_redaction_is_idempotent(self, text: str) -> None:
        """A text that was redacted stays as it is, whatever stood beside the secrets."""
        redaction = Redaction()
        once = redaction.redact(text)

        assert redaction.redact(once) == once

    @pytest.mark.slow
    @settings(max_examples=15)
    @given(st.recursive(cuttings(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(cuttings(), inner)))
    def test_redaction_of_json_is_idempotent(self, value: Any) -> None:
        """At any depth, and in names."""
        redaction = Redaction()
        once = redaction.redact_json(value)

        assert redaction.redact_json(once) == once

    @given(st.text())
    def test_any_text_can_be_redacted(self, text: str) -> None:
        """Nothing is raised, and the same text always becomes the same."""
        assert Redaction().redact(text) == Redaction().redact(text)

    def test_labels_are_left_alone(self, redaction: Redaction) -> None:
        """Also those of an application, and behind a name."""
        text = "password=[PASSWORD], [BADGE] [EMAIL], code: [CODE]"

        assert redaction.redact(text) == text

    def test_files_in_data_urls_are_left_alone(self, redaction: Redaction) -> None:
        """An image is no text."""
        text = "data:image/png;base64," + "AKIAIOSFODNN7EXAMPLE" * 8

        assert redaction.redact(text) == text


UNITS = [
    *("a", "1 ", "a@", "a.a@a.", "+1 ", "(", "://a:", "&token=a", "password=", 'password: "', "password is ", "code: "),
    *("your code ", "1234 is your ", "eyJa.", "sk-", "xoxb-1-", "-----BEGIN PRIVATE KEY-----", "AA11 ", "deadbeef "),
    *(
        "\u200b",
        "[A",
        "/token/a1",
        "authorization: bearer ",
        "call me ",
        "4 ",
        "a%40",
        '{"a":',
        "curl -u ",
        "mysql -p ",
        "a dot ",
        "password for a ",
        "4111 ",
    ),
]


@pytest.mark.slow
class TestTime:
    """A hostile text takes no longer than another one of its length."""

    @holds_for("unit", UNITS)
    def test_time_grows_with_the_length(self, redaction: Redaction, unit: str) -> None:
        """Eight times the text takes about eight times the processor's time, not sixty-four times."""

        def seconds(length: int) -> float:
            text = unit * (length // len(unit))
            began = time.thread_time()
            redaction.redact(text)
            return time.thread_time() - began

        redaction.redact("warm up sk- +358401234567")
        short = max(min(seconds(1_000) for _ in range(3)), 0.0005)

        assert min(seconds(8_000) for _ in range(2)) < 32 * short


def shouts(text: str) -> Iterator[SecretSpan]:
    """A rule of an application: words in capitals."""
    for word in ("ABRACADABRA", "SESAME"):
        if (start := text.find(word)) >= 0:
            yield SecretSpan(start, start + len(word), "WORD")


def fails(text: str) -> Iterator[SecretSpan]:
    """A rule that is broken, and quotes the text."""
    if "boom" in text:
        raise ValueError(f"cannot read {text}")
    return iter(())


class TestRules:
    """An application adds rules, or brings its own."""

    def test_extra_rules_are_added(self) -> None:
        """A pattern, a group of it, a check, and a function."""
        rules = [
            RedactionRule("BADGE", r"B-[0-9]{6}"),
            RedactionRule("ROOM", r"room (?P<secret>[0-9]+)"),
            RedactionRule("EVEN", r"even [0-9]+", check=lambda text: text[-1] in "02468"),
            shouts,
        ]
        redaction = Redaction(extra_rules=rules)

        redacted = redaction.redact("B-123456 in room 12, even 3, even 4, SESAME, anna@posti.example")

        assert redacted == "[BADGE] in room [ROOM], even 3, [EVEN], [WORD], [EMAIL]"
        assert dict(redaction.counts) == {"BADGE": 1, "ROOM": 1, "EVEN": 1, "WORD": 1, "EMAIL": 1}

    def test_own_rules_replace_the_built_in_ones(self) -> None:
        """Then nothing else is looked for, and no library is needed."""
        redaction = Redaction(rules=[shouts])

        assert redaction.redact("SESAME anna@posti.example") == "[WORD] anna@posti.example"
        assert redaction.fault is None

    def test_where_rules_overlap_there_is_one_label(self) -> None:
        """That of the first rule, for all that they found together."""
        rules = [RedactionRule("LONG", "abc"), RedactionRule("WIDE", "bcd")]

        assert Redaction(rules=rules).redact("xabcdx") == "x[LONG]x"

    @pytest.mark.parametrize("broken", [fails, lambda text: [SecretSpan(-1, 2, "BAD")] if "boom" in text else []])
    def test_a_broken_rule_lets_nothing_through(self, broken: Any, caplog: pytest.LogCaptureFixture) -> None:
        """The text is replaced as a whole; the log tells why and does not quote it."""
        redaction = Redaction(rules=[broken])

        with caplog.at_level(logging.DEBUG):
            redacted = redaction.redact_json({"a": "boom swordfish", "b": "fine"})

        assert redacted == {"a": "[REDACTED]", "b": "fine"}
        assert "ValueError" in caplog.text
        assert "swordfish" not in caplog.text

    def test_a_rule_that_always_finds_something_comes_to_an_end(self) -> None:
        """It cannot be satisfied, so the text is replaced as a whole."""
        rule = RedactionRule("NEW", r"(?<=\ue000)x|^x")

        assert Redaction(rules=[rule]).redact("x" * 100) == "[REDACTED]"

    @pytest.mark.parametrize(
        "make",
        [
            lambda: RedactionRule("badge", "x"),
            lambda: RedactionRule("BADGE", "("),
            lambda: RedactionRule("BADGE", b"x"),  # type: ignore[arg-type]
            lambda: Redaction(rules=["x"]),  # type: ignore[list-item]
            lambda: Redaction(extra_rules=3),  # type: ignore[arg-type]
        ],
    )
    def test_what_is_no_rule_is_refused(self, make: Callable[[], object]) -> None:
        """In one sentence, where it is given."""
        with pytest.raises(ConfigurationError):
            make()

    def test_counts_cannot_be_changed(self) -> None:
        """They are read."""
        with pytest.raises(TypeError):
            Redaction().counts["EMAIL"] = 3  # type: ignore[index]


class TestLibraries:
    """The built-in rules use libraries of an extra."""

    def test_without_them_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One sentence, and nothing passes unredacted."""
        monkeypatch.setattr("turnwise.effects.redaction.redaction.find_spec", lambda name: None)
        redaction = Redaction()

        assert redaction.fault == NOT_INSTALLED
        with pytest.raises(ConfigurationError, match=r'pip install "turnwise\[redact\]"'):
            redaction.redact("anna@posti.example")

    @pytest.mark.slow
    def test_they_are_imported_by_the_first_text(self) -> None:
        """Not by turnwise, nor by an engine."""
        program = (
            "import sys, turnwise; turnwise.Redaction();"
            "print([name for name in ('detect_secrets', 'phonenumbers', 'stdnum') if name in sys.modules])"
        )

        printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

        assert printed.strip() == "[]"


# --- How many secrets the built-in rules find, and how often they are wrong, on texts that nobody tuned them on.


DOCS = Path(__file__).parents[3] / "docs" / "guides" / "redaction.md"


@dataclass(frozen=True)
class Figures:
    """What came of one half of the sample."""

    secrets: int
    found: int
    innocents: int
    taken: int


def measured(name: str) -> Figures:
    """Apply the rules to one half of the sample."""
    redaction, sample = Redaction(), load_sample(name)
    found = [one for one in sample["secrets"] if one["secret"] not in redaction.redact(one["text"])]
    taken = [one for one in sample["innocents"] if redaction.redact(one["text"]) != one["text"]]
    return Figures(len(sample["secrets"]), len(found), len(sample["innocents"]), len(taken))


def documented(name: str) -> Figures:
    """Return what docs/guides/redaction.md says of one half of the sample."""
    row = re.search(rf"\| {name} \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", DOCS.read_text(encoding="utf-8"))
    assert row is not None
    return Figures(*map(int, row.groups()))


@pytest.mark.parametrize(("half", "called"), [("tuning", "tuning"), ("held_out", "held out")])
def test_the_documentation_states_what_is_measured(half: str, called: str) -> None:
    """J1: hits and false alarms of both halves."""
    assert documented(called) == measured(half)


@pytest.mark.parametrize("half", ["tuning", "held_out"])
def test_a_half_is_large_enough(half: str) -> None:
    """J1: at least 50 secrets of all kinds, and as many innocent texts, no text twice."""
    sample = load_sample(half)
    texts = Counter(one["text"] for one in (*sample["secrets"], *sample["innocents"]))

    assert min(map(len, sample.values())) >= 50
    assert len({one["kind"] for one in sample["secrets"]}) >= 11
    assert max(texts.values()) == 1
    assert all(one["secret"] in one["text"] for one in sample["secrets"])


def test_the_halves_have_nothing_in_common() -> None:
    """What the rules were tuned on says nothing about them."""
    tuning, held_out = (
        {one["text"] for one in (*load_sample(half)["secrets"], *load_sample(half)["innocents"])}
        for half in ("tuning", "held_out")
    )

    assert not tuning & held_out
