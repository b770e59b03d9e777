"""Reads the sources that a model names for its answer.

Every provider writes them in another place and shape: annotations of a message, numbered addresses beside it, search
results, passages below a block of text, metadata of the candidate. What they have in common becomes a `Citation`, and
the rest stays with it as it was written. What has none of the known shapes is still a citation: it says that there is
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....states.values.messages import Citation
from ....states.values.value import encodable
from ..families import storable_block

Json = Mapping[str, Any]

_INNER = ("url_citation", "file_citation", "container_file_citation", "web", "retrievedContext", "maps")
"""Where the citation itself stands in what a provider writes."""

_URLS = ("url", "uri", "link")
_TITLES = ("title", "document_title", "filename", "source")
_QUOTES = ("cited_text", "quote", "snippet", "text")
_STARTS = ("start_index", "startIndex", "start")
_ENDS = ("end_index", "endIndex", "end")

MOST_CITATIONS = 1_000
"""The most citations of one answer that are kept: more than a person could look at."""


def citation_of(given: object, model: str, start: int | None = None, end: int | None = None) -> Citation:
    """The citation that a provider has written, for this part of the text or for the one that it names. `Pure.`"""
    if isinstance(given, str):
        return Citation(url=encodable(given), start=start, end=end)
    if not isinstance(given, Mapping):
        return Citation(start=start, end=end)
    inner = next((one for name in _INNER if isinstance(one := given.get(name), Mapping)), given)
    return Citation(
        url=_text_in(inner, _URLS),
        title=_text_in(inner, _TITLES),
        quote=_text_in(inner, _QUOTES),
        start=_place_in(inner, _STARTS) if start is None else start,
        end=_place_in(inner, _ENDS) if end is None else end,
        given=storable_block(given, model) or {},
    )


def citations_in(found: Iterable[object], model: str) -> Iterator[Citation]:
    """The citations in a list of annotations, addresses or search results. `Pure.`"""
    for given in found:
        yield citation_of(given, model)


def grounding_citations(metadata: Json, text: str, model: str) -> Iterator[Citation]:
    """The citations in the metadata with which Gemini grounds a text: each part of the text with each of its sources,
    then the sources that no part names. Its places count bytes. `Pure.`"""
    chunks = _list_in(metadata, "groundingChunks")
    written, named = text.encode("utf-8", "surrogatepass"), set[int]()
    for support in _list_in(metadata, "groundingSupports"):
        if not isinstance(support, Mapping):
            continue
        segment = support.get("segment")
        start, end = _segment_of(segment if isinstance(segment, Mapping) else {}, written)
        for place in _list_in(support, "groundingChunkIndices"):
            if isinstance(place, int) and 0 <= place < len(chunks):
                named.add(place)
                yield citation_of(chunks[place], model, start, end)
    yield from (citation_of(chunk, model) for place, chunk in enumerate(chunks) if place not in named)


def _segment_of(segment: Json, written: bytes) -> tuple[int | None, int | None]:
    end = segment.get("endIndex")
    if type(end) is not int:
        return None, None
    start = segment.get("startIndex") or 0
    places = [len(written[: max(one, 0)].decode("utf-8", "ignore")) for one in (start, end) if type(one) is int]
    return (places[0], places[1]) if len(places) == 2 else (None, None)


def _list_in(value: Json, name: str) -> Sequence[Any]:
    found = value.get(name)
    return found if isinstance(found, list) else []


def _text_in(given: Json, names: Iterable[str]) -> str:
    return next((encodable(text) for name in names if isinstance(text := given.get(name), str) and text), "")


def _place_in(given: Json, names: Iterable[str]) -> int | None:
    return next((place for name in names if type(place := given.get(name)) is int and place >= 0), None)
