"""What the travel desk of the demonstration says and asks. Its trains, prices and times are made up."""

from __future__ import annotations

from typing import Any

TRAIN_PREVIEWS = {
    "RJX 163": "Zürich HB      8:40\nBuchs          9:50\nInnsbruck     12:18\nWien Hbf      16:30\n\n€ 84, no change",
    "NJ 467": "Zürich HB     20:40\nBuchs         22:02\nLinz           6:14\nWien Hbf       7:55\n\n€ 129, with a bed",
    "EC 191": "Zürich HB     10:33\nMünchen Hbf   14:05\nSalzburg      16:58\nWien Hbf      19:21\n\n€ 61, one change",
}

WHICH_TRAIN: dict[str, Any] = {
    "question": "Which train shall I plan with?",
    "header": "Train",
    "options": [{"label": train, "preview": preview} for train, preview in TRAIN_PREVIEWS.items()],
}

PLAN = """\
Here is the plan. **Take an umbrella**: it rains from four o'clock on.

| | Saturday |
|---|---|
| Train | RJX 163, no change |
| Leaves Zürich HB | 8:40 |
| Arrives at Wien Hbf | 16:30 |
| For two | € 168 |

- *The Kiss* hangs in the [Upper Belvedere](https://www.belvedere.at/en), ten minutes from the station.
- It is open until six, so reserve tickets for `16:45`.
"""

CONNECTION = """\
1. Leave the station at **Arsenalstraße**.
2. Walk straight on for ten minutes, or take the tram to *Schloss Belvedere*.
3. Go in through the garden: from there you see the palace as it was meant to be seen.

> Tickets with a time are only valid for half an hour. You have fifteen minutes to spare.
"""

WHICH_WAY: dict[str, Any] = {
    "question": "Which way would you like to go?",
    "header": "Way",
    "options": [
        {
            "label": "Along the sea",
            "description": "Three trains, one night in Barcelona.",
            "preview": "Day 1   Genève 8:30 → Barcelona 16:34\nDay 2   Barcelona 9:00 → Madrid 11:45\n"
            "        Madrid 15:20 → Lisboa 23:58",
        },
        {
            "label": "Over Paris",
            "description": "Four trains, one night in Hendaye.",
            "preview": "Day 1   Genève 8:29 → Paris 11:42\n        Paris 13:52 → Hendaye 18:36\n"
            "Day 2   Hendaye 8:03 → Madrid 13:20\n        Madrid 15:20 → Lisboa 23:58",
        },
        {
            "label": "With the ferry",
            "description": "Two trains and a ship, two nights at sea.",
            "preview": "Day 1   Genève 9:12 → Genova 14:50\n        Genova 20:00, by ship\n"
            "Day 3   Tanger 10:00 → Tarifa 11:00\n        Algeciras 15:05 → Lisboa 23:58",
        },
    ],
}

PACKING: list[dict[str, Any]] = [
    {
        "question": "What do you have already?",
        "header": "Equipment",
        "multiSelect": True,
        "options": [
            {"label": "Boots", "description": "Worn in, with a sole that grips."},
            {"label": "A rain jacket", "description": "It rains every third day."},
            {"label": "A sleeping bag liner", "description": "The huts ask for one."},
            {"label": "Poles", "description": "For the way down."},
        ],
    },
    {
        "question": "Where do you sleep?",
        "header": "Nights",
        "options": [
            {"label": "In huts", "description": "Less to carry, and a warm supper."},
            {"label": "In a tent", "description": "Allowed above the trees, for one night."},
        ],
    },
]

CITIES = ("Vienna", "Prague", "Rome")

FOUND = "Sun in Vienna until the afternoon; rain in Prague and Rome."
"""What the scout reports."""

PASSED_ON = "**Vienna** it is: my scout reports sun there until the afternoon, and rain in Prague and Rome."
"""What the user reads of it."""
