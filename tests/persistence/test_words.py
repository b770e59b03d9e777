"""Texts and keywords are split into words that are found in every language."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from turnwise.persistence.sqlite.search import expressions, indexed_words
from turnwise.persistence.words import LONGEST_WORD, MAX_KEYWORDS, MAX_PARTS, holds, keywords_of, words_of

from ..support.cases import holds_for

SAMPLE = {
    "我想明天晚上吃寿司, 两个人": ["寿司", "明天", "晚上", "两个人", "吃寿司"],
    "请帮我预订一家日本餐厅的桌子": ["餐厅", "预订", "日本餐厅", "桌子"],
    "我对花生过敏, 不能吃坚果": ["花生", "过敏", "坚果", "花生过敏"],
    "iPhone手机的电池坏了": ["手机", "iPhone", "电池", "iphone手机"],
    "東京でラーメンを食べたい": ["東京", "ラーメン", "食べ"],
    "서울에서 호텔을 예약했어요": ["서울", "호텔", "예약"],
    "Varaa pöytä ravintolasta kahdelle": ["ravintola", "ravintolassa", "pöytä"],
    "Haluaisin tehdä varauksen perjantai-illaksi": ["varaus", "perjantai", "perjantaina"],
    "Olen allerginen maapähkinöille ja pähkinöille": ["allergia", "pähkinä", "maapähkinä", "maapähkinät"],
    "Lentomme Helsingistä Ouluun lähtee aamulla": ["Helsinki", "Oulu", "lento", "aamu"],
    "I am allergic to peanuts": ["allergy", "allergic", "peanut", "peanuts"],
    "The flight to Berlin was cancelled": ["flights", "berlin", "cancel"],
    "हिन्दी में बात करो": ["हिन्दी", "बात"],
    "ฉันอยากกินซูชิ": ["ซูชิ"],
}
"""Texts, and keywords that must find them. Of 43 Finnish keywords of a larger sample, 31 found their text; SQLite's
`unicode61` found 6, with prefixes 15, and `trigram` 17. Of 30 in Chinese, Japanese and Korean all did; `unicode61`
found one, with prefixes 7, and `trigram` 8."""


@holds_for("text", SAMPLE)
def test_keywords_find_their_text(text: str) -> None:
    """And at most one other text of the sample, which has a related word."""
    for keyword in keywords_of(SAMPLE[text]):
        found = [each for each in SAMPLE if holds(words_of(each), keyword)]
        assert text in found
        assert len(found) <= 2


def test_case_accents_and_forms_do_not_count() -> None:
    """Full-width letters, ligatures and the sharp s are written out, and a half-width syllable with its mark is one
    character."""
    assert words_of("CAFÉ ﬁn Straße \uff21\uff42\uff11") == ["cafe", "fin", "strasse", "ab1"]
    assert words_of("ﾊﾞ") == words_of("バ") == ["バ"]
    assert words_of("한국") == ["한", "국"]


def test_long_words_are_cut() -> None:
    """In texts and keywords alike, so that a long one is found by its beginning."""
    assert words_of("x" * 1000) == ["x" * LONGEST_WORD]


def test_the_number_of_keywords_is_bounded() -> None:
    """And so is what one of them looks for. Repeated ones count once."""
    assert len(keywords_of(f"word{number}" for number in range(1000))) == MAX_KEYWORDS
    assert [len(keyword) for keyword in keywords_of(["a b c d e f g h i j k l"])] == [MAX_PARTS]
    assert len(keywords_of(["sushi", "Sushi", "SUSHI ", "sushi"])) == 1
    assert keywords_of(["", " ", "-", '"', "\0", "\ud800", "👩"]) == ()


def test_short_words_and_numbers_are_found_as_they_are() -> None:
    """What begins with them is another word."""
    assert expressions(1, ["yö", "2024", "寿司"]) == ('"1zyo"', '"1z2024"', '"1z寿 1z司"')
    assert expressions(1, ["sushi bar"]) == ('("1zsushi"* OR "1zsush"*) AND ("1zbar"*)',)


@given(st.lists(st.text(max_size=20), max_size=5), st.integers(0, 2**48))
def test_an_expression_holds_nothing_but_words(keywords: list[str], scope: int) -> None:
    """Outside of quotes there are only the operators that stand in this module."""
    found = "".join(expressions(scope, keywords))

    quoted = re.findall(r'"([^"]*)"', found)
    rest = re.sub(r'"[^"]*"', "", found)
    assert not any(re.search(r"[\x00-\x1f!-/:-@\[-`{-\x7f]", text) for text in quoted)
    assert re.fullmatch(r"( AND | OR |[()*])*", rest)


@given(st.text(max_size=50))
def test_the_index_holds_the_words_of_a_text(text: str) -> None:
    """SQLite's tokenizer `ascii`, which splits at ASCII characters that are neither letters nor digits, finds exactly
    these."""
    indexed = indexed_words(7, text)

    assert re.findall(r"[A-Za-z0-9\x80-\U0010ffff]+", indexed) == [f"7z{word}" for word in words_of(text)]
