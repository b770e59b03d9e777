"""Texts with characters that a reader cannot see, and texts in which nothing is hidden."""

# ruff: noqa: RUF001  it holds letters that look like others

from __future__ import annotations

HIDDEN = {
    "pay\u202epal": "pay⟨U+202E⟩pal",
    "pay\u2066pal": "pay⟨U+2066⟩pal",
    "pay\u200bpal": "pay⟨U+200B⟩pal",
    "pay\u200dpal": "pay⟨U+200D⟩pal",
    "pay\u00adpal": "pay⟨U+00AD⟩pal",
    "pay\u034fpal": "pay⟨U+034F⟩pal",
    "pay\u3164pal": "pay⟨U+3164⟩pal",
    "pay\uffa0pal": "pay⟨U+FFA0⟩pal",
    "pay\u115fpal": "pay⟨U+115F⟩pal",
    "pay\u2800pal": "pay⟨U+2800⟩pal",
    "pay\u00a0pal": "pay⟨U+00A0⟩pal",
    "pay\u2003pal": "pay⟨U+2003⟩pal",
    "pay\u3000pal": "pay⟨U+3000⟩pal",
    "pay\u2028pal": "pay⟨U+2028⟩pal",
    "pay\ufe0fpal": "pay⟨U+FE0F⟩pal",
    "pay\U000e0041pal": "pay⟨U+E0041⟩pal",
    "pay\U000e0100pal": "pay⟨U+E0100⟩pal",
    "pay\x1bpal": "pay⟨U+001B⟩pal",
    "pay\x9bpal": "pay⟨U+009B⟩pal",
    "pay\ue000pal": "pay⟨U+E000⟩pal",
    "🚆\ufe0f\ufe0f": "🚆\ufe0f⟨U+FE0F⟩",
    "🚆\u200d": "🚆⟨U+200D⟩",
    "a\u0301\u0301": "a\u0301⟨U+0301⟩",
    "admin \t": "admin⟨U+0020⟩⟨U+0009⟩",
    "p\u0430ypal": "p\u0430ypal⟨Cyrillic \u0430⟩",
    "p\u0430\u200by": "p\u0430⟨U+200B⟩y⟨Cyrillic \u0430⟩",
    "payp\u03b1l": "payp\u03b1l⟨Greek \u03b1⟩",
    "\u0430\u0440\u0440\u04cf\u0435.com": "\u0430\u0440\u0440\u04cf\u0435⟨Cyrillic \u0430, \u0440, \u04cf, \u0435⟩.com",
    "\u0397\u0391\u03a4": "\u0397\u0391\u03a4⟨Greek \u0397, \u0391, \u03a4⟩",
    "c\u0585de": "c\u0585de⟨Armenian \u0585⟩",
    "p\U0001d5baypal": "p\U0001d5baypal⟨styled \U0001d5ba⟩",
    "1\u09ea0": "1\u09ea0⟨other digits \u09ea⟩",
}
"""Texts, and how they are shown to whoever must see what is in them."""

INNOCENT = (
    "Zürich → 東京\n\tשלום 🚆 é e\u0301 a\u0308\u0301",
    "I ❤\ufe0f 🚆, 👩\u200d👩\u200d👧, ❤\ufe0f\u200d🔥, 👩🏽\u200d💻, 🏳\ufe0f\u200d🌈, ☎\ufe0e and 1\ufe0f\u20e3",
    "東京\u3000大阪、２０２６年。iPhoneは",
    "क\u094d\u200dष हिन्दी, र\u094d\u200cय, ශ\u0dca\u200dරී, র\u200d\u09cdয",
    "می\u200cخواهم",
    "Привет, мир! файл.txt, с ним",
    "παιδί και το ναι, kΩ, μm, Δx",
    "한국어 kimchi김치 สวัสดีUSB",
    '{"a": [1, 2.5, true, null, "\\u202e"]}',
)
"""Texts that look as they are, in which nothing is marked."""
