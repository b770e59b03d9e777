"""Assembles an answer from the chunks in which it streams.

litellm's function for that, `stream_chunk_builder`, loses calls without an id, merges calls that a provider sends under
the same index, and repeats the text of a sealed thinking block, which the provider then refuses.

A chunk here is plain data in the shape of OpenAI's chat completions, as servers write them: the text may be a list of
parts, the thinking may stand under another name, a finish reason may come on every chunk or on none, an error may stand
in place of a choice, the usage may be anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from ....states.values.messages import Citation, Usage
from ....states.values.value import FailureKind, encodable
from ..families import CONTENT
from ..port import THOUGHTS, ModelAnswer, ModelCall, ModelRequest, Token, UnreadableContent, read_content, read_thinking
from ..spoken_words import StreamedSpeech
from .citations import MOST_CITATIONS, citation_of, citations_in, grounding_citations
from .failures import BrokenAnswer, MalformedChunk, kind_of_ending
from .stream_calls import AmbiguousCalls, Fragment, assemble_calls, is_object, merged
from .think_tags import OPENING, ThinkTags

MOST_REPETITIONS = 100
"""Equal pieces in a row, of more than two characters, that a model writes only when it does not end by itself. The
number is litellm's."""

PAUSED = "pause_turn"
"""The finish reason of an answer that its provider continues when it gets it back."""

_ENDINGS = {
    **{reason: reason for reason in ("stop", "length", "tool_calls", PAUSED)},
    **dict.fromkeys(("max_tokens", "max_output_tokens", "token_limit"), "length"),
    **dict.fromkeys(("tool_use", "tool_call", "function_call"), "tool_calls"),
}
"""Finish reasons in OpenAI's words, in lower case. Any other one says that the answer has ended."""

_KINDS: tuple[Literal["text", "thinking"], ...] = ("text", "thinking")

CITED, BLOCKS, GROUNDING = "cited", "content_blocks", "grounding"
"""Fields of a delta for what a provider writes elsewhere: the passages that are cited, each with its part of the text;
the blocks of the message, where they go back as they are; the metadata that grounds a text."""

_OF_SOURCES = ("annotations", "citations", "search_results", CITED, GROUNDING)

_KNOWN = frozenset(
    {"role", "content", "tool_calls", "function_call", "refusal", "thinking_blocks", "name", "audio", "images"}
    | {"token_ids", "stop_reason", "logprobs", "obfuscation", "padding", BLOCKS}
    | {*_OF_SOURCES, *THOUGHTS}
)
"""The fields of a delta that do not go back to their provider as they are."""

_ARGUMENTS = ("arguments", "parameters", "input", "args")
_KNOWN_OF_CALL = frozenset({"index", "id", "type", "function"})
_KNOWN_OF_FUNCTION = frozenset({"name", *_ARGUMENTS})

_ERRORS = ("error", "detail", "message", "error_msg", "error_message")
"""Where an error stands in a chunk that has no choices; `error` also where it has."""


class StreamAssembler:
    """The part of an answer that has arrived so far; `show` is called with each piece of its text. `names` are those of
    the tools that the model was offered, and `spoken` those of them that speak, as the request names them.

    `is_empty` says that no text, thinking or call has come. `finish_reason` is the last one that came, as it was
    written, or None; `error` is what came in place of an answer. `usage` has what was told of it, in the names of the
    provider.
    """

    def __init__(
        self,
        show: Callable[[Token], None],
        names: Collection[str] = (),
        output: str = "",
        spoken: Mapping[str, str] | None = None,
    ) -> None:
        self.is_empty: bool = True
        self.is_whole: bool = False
        self.finish_reason: str | None = None
        self.error: Any = None
        self.usage: dict[str, Any] = {}
        self.opaque_fields: dict[str, Any] = {}
        self.thinking_field: str = ""
        self._failed: FailureKind | None = None
        self._show = show
        self._output = output
        self._output_index: int | None = None
        self._speech = StreamedSpeech(spoken, show) if spoken else None
        self._names = names
        self._pieces: dict[str, list[str]] = {"text": [], "thinking": []}
        self._held = {"text": "", "thinking": ""}
        self._is_of_messages = False
        self._fragments: list[Fragment] = []
        self._of_functions: list[Fragment] = []
        self._deltas = 0
        self._choice: object = None
        self._thinking = _ThinkingBlocks()
        self._tags = ThinkTags()
        self._written: list[str] = []
        """The text as it was written, with the thinking between its tags."""
        self._sources: dict[str, Any] = {}
        self._logprobs: dict[str, list[Any]] = {}
        self._last_piece = ""
        self._repeated = 0

    def add(self, chunk: Mapping[str, Any]) -> bool:
        """Add the next chunk, and show its text. Return whether it held a part of the answer. Raises
        `MalformedChunk`."""
        self._add_usage(chunk.get("usage") or _usage_elsewhere(chunk))
        choices = chunk.get("choices")
        if not chunk.keys().isdisjoint(_OF_SOURCES):
            self._add_sources(chunk)
        if (error := _error_in(chunk)) is not None:
            self.error = error
            return False
        if choices is None:
            return False
        came = False
        for choice in _listed(choices):
            came |= self._add_choice(choice)
        if "finish_reason" in chunk:
            self._add_reasons(chunk)
        return came

    def go_on(self) -> None:
        """Tell that the answer goes on, with a piece that is not shown."""
        self._show(Token(""))

    def close(self) -> None:
        """Show what was held back: half a character whose other half has not come, or half a tag."""
        self.end_text()
        for kind in _KINDS:
            if held := self._held[kind]:
                self._held[kind] = ""
                self._show(Token(encodable(held), kind))

    def end_text(self) -> None:
        """Take the text for complete: what may have been the beginning of a tag is none, and a tag that stands behind a
        text and was never closed is text, too."""
        if (rest := self._tags.rest()) is not None:
            self._add_text(rest[1], "thinking" if rest[0] == "thinking" else "text")
        if unclosed := self._tags.unclosed:
            self._pieces["thinking"] = ["".join(self._pieces["thinking"]).removesuffix(unclosed)]
            self._add_text(f"{OPENING}{unclosed}", "text")

    @classmethod
    def of(cls, request: ModelRequest, show: Callable[[Token], None]) -> StreamAssembler:
        """What assembles the answer to this request."""
        output = "" if request.output is None else request.output.tool
        return cls(show, {tool["function"]["name"] for tool in request.tools}, output, request.spoken)

    @property
    def is_finished(self) -> bool:
        """Whether a finish reason has come, and an answer before it, unless it says that there is none."""
        return self._failed is not None or (bool(self.finish_reason) and not self.is_empty)

    def check(self, *, is_marked: bool) -> None:
        """Raise `BrokenAnswer` if this is no complete answer. `is_marked` says that the server has marked the end of
        the stream."""
        if self.error is not None:
            raise BrokenAnswer("server_error", "the stream holds an error", self.error)
        if self._failed is not None:
            raise BrokenAnswer(self._failed, f"the finish reason is {self.finish_reason}")
        if not self.finish_reason and (self.is_empty or not (is_marked or self.is_whole)):
            kind: FailureKind = "malformed_response" if self.is_empty else "network"
            raise BrokenAnswer(kind, "the stream ended without a finish reason")

    @property
    def is_cut(self) -> bool:
        """Whether the answer was stopped before it was complete."""
        return self.usual_finish_reason == "length"

    @property
    def text(self) -> str:
        """The text of the answer."""
        return encodable("".join(self._pieces["text"]))

    @property
    def thinking(self) -> str:
        """The thinking of the model, as far as it was told."""
        return encodable("".join(self._pieces["thinking"]))

    @property
    def written(self) -> str:
        """All that the model has written, as far as it has come: its thinking, its text, and the arguments of calls."""
        return "".join([self.thinking, self.text, *(fragment.arguments for fragment in self._fragments)])

    def tool_calls(self) -> tuple[ModelCall, ...]:
        """The calls, in the order in which they began. Raises `BrokenAnswer` if they cannot be told apart, or if an
        answer without a finish reason may have been stopped before their arguments were complete."""
        try:
            # The older form of a call, where a server does not write the same call in both.
            calls = assemble_calls(self._fragments or self._of_functions, self._names, is_cut=self.is_cut)
        except AmbiguousCalls as error:
            raise BrokenAnswer("malformed_response", str(error)) from None
        if not self.finish_reason and not all(is_object(call.arguments) for call in calls):
            raise BrokenAnswer("malformed_response", "the arguments of a call are not complete")
        return tuple(call if call.arguments else replace(call, arguments="{}") for call in calls)

    @property
    def usual_finish_reason(self) -> str:
        """The finish reason in OpenAI's words."""
        return _ENDINGS.get((self.finish_reason or "").lower(), "stop")

    def answer(self, usage: Usage, model: str) -> ModelAnswer:
        """The complete answer of the model of this name. Raises `BrokenAnswer` if it cannot be used."""
        ending = self.finish_reason or ""
        if (kind := kind_of_ending(ending, self.is_empty and usage.output_tokens <= 1)) is not None:
            raise BrokenAnswer(kind, f"the answer ended with {ending}")
        return ModelAnswer(
            content=self.text,
            thinking=self.thinking,
            opaque=self.thinking_blocks(),
            tool_calls=self.tool_calls(),
            finish_reason=self.usual_finish_reason,
            usage=usage,
            model=model,
            opaque_fields=self.opaque_fields,
            thinking_field=self.thinking_field or "reasoning_content",
            citations=self.citations(model),
            logprobs=self.logprobs,
        )

    def thinking_blocks(self) -> tuple[dict[str, Any], ...]:
        """The sealed thinking blocks, in the form in which their provider wants them back."""
        return tuple(self._thinking.blocks)

    # --- the parts of a chunk

    def _add_choice(self, choice: Any) -> bool:
        if not isinstance(choice, Mapping):
            raise MalformedChunk
        number = choice.get("index") or 0
        if self._choice is None:
            self._choice = number
        if number != self._choice:
            return False  # another answer to the same request
        self._add_usage(choice.get("usage"))
        self.error = choice.get("error") or self.error
        if logprobs := choice.get("logprobs"):
            self._add_logprobs(logprobs)
        self._add_reasons(choice)
        return self._add_delta(self._delta_of(choice))

    def _delta_of(self, choice: Mapping[str, Any]) -> Mapping[str, Any]:
        """The delta; or what is new in the message of a whole answer; or the text of an old completion."""
        delta, message = choice.get("delta"), choice.get("message")
        if not delta and not message:
            return {"content": choice.get("text")}
        found = delta or message
        if not isinstance(found, Mapping):
            raise MalformedChunk
        return found if delta else self._news_in(found)

    def _news_in(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a message tells beyond what has come: all of it, or what stands behind the same beginning, or calls.
        Messages that are pieces follow one another; one that ends an answer in pieces says nothing new otherwise."""
        is_first, self.is_whole = self.is_empty, self.is_empty
        content, text = message.get("content"), "".join(self._written)
        self._is_of_messages |= is_first
        if is_first:
            return message
        news: dict[str, Any] = {}
        if isinstance(content, str) and content.startswith(text):
            news["content"] = content[len(text) :]
        elif self._is_of_messages:
            news["content"] = content
        if not self._fragments or (self._is_of_messages and message.get("tool_calls")):
            self._fragments.clear()
            news |= {name: message[name] for name in ("tool_calls", "function_call") if message.get(name)}
        return news

    def _add_reasons(self, choice: Mapping[str, Any]) -> None:
        reason, native = choice.get("finish_reason"), choice.get("native_finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
        for word in (native, reason):
            if isinstance(word, str) and (kind := kind_of_ending(word, is_empty=False)) is not None:
                self._failed = kind

    def _add_delta(self, delta: Mapping[str, Any]) -> bool:
        self._deltas += 1
        came = self._add_thinking(delta)
        if content := delta.get("content"):
            came |= self._add_content(content)
        if len(delta) > 1 or not content:
            came |= self._add_rarer_fields(delta)
        return came

    def _add_rarer_fields(self, delta: Mapping[str, Any]) -> bool:
        came = isinstance(refusal := delta.get("refusal"), str) and bool(refusal) and self._add_content(refusal)
        if blocks := delta.get("thinking_blocks"):
            self._thinking.add(blocks)
            self.is_empty = False
        if calls := delta.get("tool_calls"):
            self._add_calls(calls, self._fragments)
            came = True
        if call := delta.get("function_call"):
            self._add_calls({"function": call}, self._of_functions)
            came = True
        if not delta.keys().isdisjoint(_OF_SOURCES):
            self._add_sources(delta)
        if isinstance(blocks := delta.get(BLOCKS), list) and blocks:
            self.opaque_fields[CONTENT] = [*blocks]
        if opaque := {name: value for name, value in delta.items() if name not in _KNOWN and value is not None}:
            self.opaque_fields = merged(self.opaque_fields, opaque)
        return came

    def _add_thinking(self, delta: Mapping[str, Any]) -> bool:
        if delta.keys().isdisjoint(THOUGHTS):
            return False
        thinking = read_thinking(delta)
        if thinking and not self.thinking_field:
            self.thinking_field = next(name for name in THOUGHTS if read_thinking({name: delta.get(name)}))
        return self._add_text(thinking, "thinking")

    def _add_content(self, content: Any) -> bool:
        if isinstance(content, str):
            return self._add_written(content)
        try:
            text, thinking = read_content(content)
        except (UnreadableContent, RecursionError):
            raise MalformedChunk from None
        if references := [part for part in content if _is_reference(part)] if isinstance(content, list) else ():
            self._sources["annotations"] = [*self._sources.get("annotations", ()), *references]
        return self._add_text(thinking, "thinking") | self._add_written(text)

    def _add_written(self, text: str) -> bool:
        """Add text in which thinking may stand between tags."""
        if not text:
            return False
        self.is_empty = False
        self._written.append(text)
        for kind, part in self._tags.parts_of(text):
            if kind == "was thinking":
                self._pieces["thinking"] += self._pieces["text"]
                self._pieces["text"] = []
            else:
                self._add_text(part, "thinking" if kind == "thinking" else "text")
        if self._tags.around:
            self.thinking_field = self._tags.around
        return True

    def _add_sources(self, told: Mapping[str, Any]) -> None:
        """Add the sources that are told. Annotations come one after the other, everything else is told anew."""
        for name in _OF_SOURCES:
            if (found := told.get(name)) and isinstance(found, list | Mapping):
                before = self._sources.get(name, ()) if name == "annotations" else ()
                self._sources[name] = found if isinstance(found, Mapping) else [*before, *found]

    def _add_logprobs(self, logprobs: Any) -> None:
        for name, tokens in logprobs.items() if isinstance(logprobs, Mapping) else ():
            if isinstance(tokens, list):
                self._logprobs.setdefault(str(name), []).extend(tokens)

    def citations(self, model: str) -> tuple[Citation, ...]:
        """The sources that the model of this name tells, in the order in which it told them."""
        sources, found = self._sources, list[Citation]()
        found += citations_in(_each(sources.get("annotations")), model)
        for one in _each(sources.get(CITED)):
            if isinstance(one, Mapping):
                found.append(citation_of(one.get("given"), model, _place(one.get("start")), _place(one.get("end"))))
        if isinstance(grounding := sources.get(GROUNDING), Mapping):
            found += grounding_citations(grounding, self.text, model)
        if not found:
            found += citations_in(_each(sources.get("search_results") or sources.get("citations")), model)
        return tuple(found[:MOST_CITATIONS])

    @property
    def logprobs(self) -> dict[str, Any] | None:
        """The probabilities of the tokens, as they were written; None if none were told."""
        return dict(self._logprobs) or None

    def _add_text(self, text: str, kind: Literal["text", "thinking"]) -> bool:
        if not text:
            return False
        self.is_empty = False
        self._note_repetition(text)
        self._pieces[kind].append(text)
        shown = self._held[kind] + text
        # Half a character waits for the other half.
        self._held[kind] = shown[-1] if "\ud800" <= shown[-1] <= "\udbff" else ""
        if shown := shown[:-1] if self._held[kind] else shown:
            self._show(Token(encodable(shown), kind))
        return True

    def _note_repetition(self, text: str) -> None:
        self._repeated = self._repeated + 1 if text == self._last_piece and len(text) > 2 else 1
        self._last_piece = text
        if self._repeated >= MOST_REPETITIONS:
            raise BrokenAnswer("server_error", "the model repeats the same piece of text without end")

    def _add_calls(self, calls: Any, to: list[Fragment]) -> None:
        self.is_empty = False
        fragments = [_fragment(call, self._deltas) for call in _listed(calls)]
        to += fragments
        if any(fragment.name or fragment.arguments for fragment in fragments):
            self.go_on()
        if self._output:
            self._show_output(fragments)
        if self._speech is not None:
            self._show_speech(self._speech, fragments)

    def _show_output(self, fragments: Iterable[Fragment]) -> None:
        """Show the pieces of the first call by which a typed answer is given. What a server writes in another order is
        not shown; it is read once it is complete."""
        for fragment in fragments:
            if fragment.name and self._output_index is None and fragment.name == self._output:
                self._output_index = -1 if fragment.index is None else fragment.index
            elif fragment.name or self._output_index not in (fragment.index, -1):
                continue
            if fragment.arguments and self._output_index is not None:
                self._show(Token(encodable(fragment.arguments), "output"))

    def _show_speech(self, speech: StreamedSpeech, fragments: Iterable[Fragment]) -> None:
        for fragment in fragments:
            if name := fragment.name.strip():
                speech.begin(fragment.index, name, fragment.id)
            if fragment.arguments:
                speech.add(fragment.index, fragment.arguments)

    def _add_usage(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self.usage = _told_of(self.usage, usage)


def _each(value: Any) -> list[Any]:
    return [value] if isinstance(value, Mapping) else list(value or ())


def _place(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _is_reference(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "reference"


def _listed(value: Any) -> list[Any]:
    """The list that a server writes, or leaves out around the only item. Raises `MalformedChunk`."""
    if not isinstance(value, list | Mapping):
        raise MalformedChunk
    return [value] if isinstance(value, Mapping) else value


def _fragment(call: Any, delta: int) -> Fragment:
    """The fragment of a call, whose function may stand in it or around it. Raises `MalformedChunk`."""
    if not isinstance(call, Mapping):
        raise MalformedChunk
    function = call.get("function") or {name: call[name] for name in _KNOWN_OF_FUNCTION if name in call}
    if not isinstance(function, Mapping):
        raise MalformedChunk
    name, call_id = function.get("name") or "", call.get("id") or ""
    if not isinstance(name, str) or not isinstance(call_id, str | int):
        raise MalformedChunk
    known = _KNOWN_OF_CALL if call.get("function") else _KNOWN_OF_CALL | _KNOWN_OF_FUNCTION
    opaque = {name: value for name, value in call.items() if name not in known and value is not None}
    return Fragment(delta, _index_of(call), str(call_id), name, _arguments_in(function), opaque)


def _arguments_in(function: Mapping[str, Any]) -> str:
    """The arguments, under any of their names. Raises `MalformedChunk` where an object stands under another one: it may
    be the arguments."""
    told = [function[name] for name in _ARGUMENTS if function.get(name) is not None]
    if not told and any(isinstance(value, Mapping) and value for value in function.values()):
        raise MalformedChunk
    arguments = told[0] if told else ""
    if isinstance(arguments, Mapping):
        return json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        raise MalformedChunk
    return arguments


def _index_of(call: Mapping[str, Any]) -> int | None:
    index = call.get("index")
    if isinstance(index, bool) or not isinstance(index, int | float | str):
        return None
    try:
        return int(index)
    except (ValueError, OverflowError):  # no number, or none that counts
        return None


def _error_in(chunk: Mapping[str, Any]) -> Any:
    """What stands in place of an answer, if anything does."""
    if error := chunk.get("error"):
        return error
    if chunk.get("choices"):
        return None
    if chunk.get("object") == "error":
        return chunk
    response = chunk.get("base_resp")
    if isinstance(response, Mapping) and response.get("status_code"):
        return response
    return None if "choices" in chunk else next((chunk for name in _ERRORS if chunk.get(name)), None)


def _usage_elsewhere(chunk: Mapping[str, Any]) -> Any:
    """The usage where a server does not write it as a field of the chunk."""
    groq = chunk.get("x_groq")
    return groq.get("usage") if isinstance(groq, Mapping) else chunk.get("usageMetadata")


def _told_of(before: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    """The usage with what a later chunk tells of it. Nulls and zeros take nothing back."""
    told = dict(before)
    for name, value in usage.items():
        earlier = told.get(name)
        if isinstance(value, Mapping) and isinstance(earlier, Mapping):
            told[name] = _told_of(earlier, value)
        elif value or name not in told:
            told[name] = value
    return told


class _ThinkingBlocks:
    """The thinking blocks that have arrived so far. The text of a block comes in pieces, then a signature seals it."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._text = ""

    def add(self, pieces: Any) -> None:
        """Add these pieces. Raises `MalformedChunk`."""
        for piece in pieces if isinstance(pieces, list) else [None]:
            if not isinstance(piece, Mapping):
                raise MalformedChunk
            self._add_piece(piece)

    def _add_piece(self, piece: Mapping[str, Any]) -> None:
        if piece.get("type") != "thinking":
            self.blocks.append(dict(piece))
        elif not piece.get("signature"):
            self._text += piece.get("thinking") or ""
        else:
            # Together with the signature litellm sends the whole text again.
            self.blocks.append({**piece, "thinking": self._text or piece.get("thinking") or ""})
            self._text = ""
