"""Write the corpus of this version anew, from the root of the project: `python -m tests.corpus.write`.

It is for a version that is not released yet. What a released version wrote is never written again.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from turnwise.persistence.codec import VERSION
from turnwise.persistence.maintenance.export import export_all
from turnwise.persistence.opening import open_store

from . import interrupted, machine, scenes
from .requests import digest_of_requests

FOLDER = Path(__file__).parent / "0.1.0"

DATABASES: dict[str, Callable[[Path], Awaitable[None]]] = {
    "assistant": partial(scenes.play, "assistant"),
    "speech": partial(scenes.play, "speech"),
    "interrupted": interrupted.play,
    "simulated": machine.write_simulated,
    "walks": machine.write_walks,
}


async def described(database: Path) -> dict[str, Any]:
    """Return what expected.json says of a database."""
    store = await open_store(database, read_only=True)
    summaries = {summary.id: summary for summary in await store.list()}
    waiting = Counter(delivery.conversation_id for delivery in await store.outbox(summaries))
    conversations = {}
    async for conversation_id, lines in export_all(store):
        assert isinstance(lines, Iterator)
        entries, summary = await store.entries(conversation_id), summaries[conversation_id]
        conversations[conversation_id] = {
            "title": summary.title,
            "steps": len(entries),
            "state": summary.state,
            "chain": entries[-1].chain.hex(),
            "requests": digest_of_requests(entries),
            "outbox": waiting[conversation_id],
            "export_sha256": sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest(),
        }
    await store.close()
    return {"sha256": sha256(database.read_bytes()).hexdigest(), "conversations": conversations}


async def main() -> None:
    """Write the databases and expected.json."""
    FOLDER.mkdir(exist_ok=True)
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, write in DATABASES.items():
            database = Path(folder) / f"{name}.db"
            await write(database)
            files[database.name] = await described(database)
            (FOLDER / f"{database.name}.xz").write_bytes(lzma.compress(database.read_bytes(), preset=9))
            steps = sum(one["steps"] for one in files[database.name]["conversations"].values())
            print(f"{database.name}: {len(files[database.name]['conversations'])} conversations, {steps} steps")
    written = {"turnwise": FOLDER.name, "log_format": VERSION, "files": files}
    (FOLDER / "expected.json").write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
