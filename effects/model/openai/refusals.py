"""What a provider said when it refused a request, and what it means.

A refusal is wrapped several times: in the client library's exception, in litellm's exception around it, in the JSON of
a proxy, sometimes as JSON text within a message, and each layer may have lost or renamed a part of it. So everything
that was said is read as one text, in which the codes are found wherever they stand.

Providers agree on little. A request that is too long is refused with the status 400, 413, 422, 429 or 500, with a
code, with a sentence in English or Chinese, or with nothing but a status. Their sentences change, so a rule describes
what they have in common instead of quoting them: what is said of what. Where a sentence of one kind contains the
words of another, the rule for the narrower one stands first. The first rule that holds decides.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ....states.values.value import FailureKind

LONGEST_TEXT = 6_000
"""Characters of a refusal that are read. What comes later is the request, quoted."""

_DEEPEST_CHAIN = 8
"""Exceptions that are looked at, from the outermost one inwards."""

_ESCAPED = re.compile(r"\\+u([0-9a-f]{4})")
_MARKS = re.compile(r"[\"'`*\\]")
_WORD = re.compile(r"(?:code|type|status|reason)\b\W{0,4}\s?([a-z0-9][\w.\-]*)")
_LONG_WORD = re.compile(r"[a-z][\w.\-]{11,}")
_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body|\?xml)", re.IGNORECASE)


@dataclass(frozen=True)
class Refusal:
    """A refusal: its HTTP status, the text that came with it and its headers, whose names are in lower case.

    The status is the one of the HTTP response. Where that said nothing, because the refusal came in the middle of a
    stream, it is a code in the text, else the status that a client library gave it, else None. `is_whole` says that
    the text is what the provider sent, and not what a library says of it.
    """

    status: int | None = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False

    @classmethod
    def of_body(cls, body: object, status: int | None = None) -> Refusal:
        """The refusal that this decoded JSON, or this text, stands for: an error in the middle of a stream, for
        example. `status` counts if the body tells none. `Pure.`"""
        refusal = cls(status, _plain(body if isinstance(body, str) else json.dumps(body, default=str)))
        codes = [int(word) for word in refusal.words if re.fullmatch("[45][0-9]{2}", word)]
        return replace(refusal, status=min(codes)) if codes else refusal

    @classmethod
    def of_response(cls, status: int, text: str, headers: Mapping[str, str]) -> Refusal:
        """The refusal that an HTTP response with this text as its body stands for. `Pure.`"""
        return cls(status, _plain(text), _lowered(headers), is_whole=True)

    @cached_property
    def words(self) -> frozenset[str]:
        """The codes and types in the text, in lower case, numbers among them, and its long words: a code may also stand
        in the middle of a sentence."""
        return frozenset(word.rstrip(".") for word in (*_WORD.findall(self.text), *_LONG_WORD.findall(self.text)))


class RefusedRequest(Exception):
    """A server has refused a request. `text` is the body of its response, as it was written."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal
        self.text = text


def refusal_of(error: BaseException) -> Refusal:
    """What the provider said, as far as this error and those inside it tell it. `Pure.`"""
    chain = tuple(chain_of(error))
    response = next((found for one in chain if (found := _answered(one)) is not None), None)
    headers = _headers_in(chain, response)
    if response is None or (status := _status_of(response) or 0) < 400:
        told = " ".join(_told(chain)) if response is None else _text_of(response)
        return replace(Refusal.of_body(told, _innermost_status(chain)), headers=headers)
    return Refusal.of_response(status, _text_of(response), headers)


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """The error, then those inside it, as far as they are looked at. `Pure.`"""
    inner: BaseException | None = error
    for _ in range(_DEEPEST_CHAIN):
        if inner is None:
            return
        yield inner
        inner = inner.__cause__ or inner.__context__


def _answered(error: BaseException) -> Any:
    """The HTTP response inside an error, if it holds what the provider sent. litellm puts empty ones of its own on its
    errors."""
    response = getattr(error, "response", None)
    return response if response is not None and _text_of(response) else None


def _text_of(response: Any) -> str:
    try:
        return str(response.text)
    except Exception:  # the body of a response that was streamed may not have been read
        return ""


def _status_of(holder: Any) -> int | None:
    status = getattr(holder, "status_code", None)
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def _innermost_status(chain: Iterable[BaseException]) -> int | None:
    """litellm gives errors a status of its own, so the innermost one counts."""
    statuses = [status for error in chain if (status := _status_of(error)) is not None]
    return statuses[-1] if statuses else None


def _told(chain: Iterable[BaseException]) -> Iterator[str]:
    for error in chain:
        body = getattr(error, "body", None)
        if body is not None:
            yield body if isinstance(body, str) else json.dumps(body, default=str)
        yield _words_of(error)


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of a library may lack what its own text is made of
        return ""


def _headers_in(chain: Iterable[BaseException], response: Any) -> dict[str, str]:
    """The headers of all layers; those of the provider's own response win."""
    found: dict[str, str] = {}
    for error in chain:
        for holder in (getattr(error, "response", None), error):
            for name in ("headers", "litellm_response_headers"):
                headers = getattr(holder, name, None)
                found |= {} if not isinstance(headers, Mapping) else _lowered(headers)
    return found | _lowered(getattr(response, "headers", None) or {})


def _lowered(headers: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _plain(text: str) -> str:
    """The text in lower case, on one line, without quotation marks and escapes, so that it reads the same whether it
    was JSON, JSON within JSON, or a Python literal. Nothing is left of a web page but its title."""
    if _PAGE.match(text):
        title = re.search(r"<title>(.*?)</title>", text[:LONGEST_TEXT], re.IGNORECASE | re.DOTALL)
        text = html.unescape(title[1]) if title else ""
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text[:LONGEST_TEXT].lower())
    text = re.sub(r"\\+[nrt]", " ", text)
    return " ".join(_MARKS.sub("", text).split())


_MEDIA = (
    r"(?:images?|image_urls?|input_image|pictures?|photos?|screenshots?|vision|visual|multi-?modal\w*|audios?|"
    r"input_audio|videos?|video_url|pdfs?|documents?|files?|input_file|attachments?)"
)
_MEDIA_IN_CHINESE = "(?:图片|图像|视觉|多模态|音频|视频|文件|文档)"
_REQUEST = (
    r"(?:prompts?|inputs?|requests?|messages?|conversation|history|context|query|text|payload|body|entity|content|"
    r"sequence|tokens?|chat|documents?)"
)
_NOT = r"(?:not|no|never|without|cannot|cant|doesnt|dont|isnt|arent|wont)"
_PARAMETERS = (
    r"\b(?:json_?schemas?|input_schema|schemas?|functions?|tools?|parameters?|propert(?:y|ies)|oneof|anyof|allof|"
    r"temperature|top_[pk]|min_p|seed|logprobs|logit_bias|stop|response_format|tool_choice|parallel_tool_calls|"
    r"max_(?:completion_|output_)?tokens|(?:presence|frequency|repetition)_penalty)\b"
)
"""What a refusal speaks of that is not about the messages of a request. Names of tools and of their arguments may be
any words, such as `file`, and advice may point to documents."""

_SIZE = r"(?:length|window|size|limit|len)"


@dataclass(frozen=True)
class Rule:
    """Refusals with one of these `words` among their codes and types, or whose text contains the pattern `says`, are of
    this kind.

    With `statuses`, only those with such a status; without words and pattern, all of those. With `media`, only if the
    request holds an image, a sound or a file. `source` says who answers like that, and where it is documented.
    """

    kind: FailureKind
    source: str
    words: frozenset[str] = frozenset()
    says: str = ""
    statuses: frozenset[int | None] = frozenset()
    media: bool = False

    def holds(self, refusal: Refusal, has_media: bool) -> bool:
        """Whether the refusal is of this kind. `Pure.`"""
        if (self.media and not has_media) or (self.statuses and refusal.status not in self.statuses):
            return False
        if not self.words and not self.says:
            return True
        return not self.words.isdisjoint(refusal.words) or bool(self.says and re.search(self.says, refusal.text))


def _rule(
    kind: FailureKind,
    source: str,
    *says: str,
    words: str = "",
    statuses: Iterable[int | None] = (),
    media: bool = False,
) -> Rule:
    return Rule(kind, source, frozenset(words.split()), _any(*says), frozenset(statuses), media)


def _any(*patterns: str) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _unless(excluded: str, pattern: str) -> str:
    """A pattern for texts that do not contain the excluded one."""
    return rf"^(?!.*(?:{excluded})).*(?:{pattern})"


_NO_NUMBER_OF_TOKENS = (
    r"\b(?:parallel_tool_calls|tool_choice|temperature|top_[pk]|seed|stop|schemas?|propert(?:y|ies))\b"
)
"""What has numbers of its own."""

_NUMBERS_OF_TOKENS = (
    r"\b(?:inputs?|prompt|messages?|tokens?)\b.{0,50}\b(?:must|should|can|may|cannot|has to|have to)\b.{0,30}"
    r"(?:<=?|\b(?:less|fewer|at most|no more|not exceed|exceed|up to|shorter|below|under|within)\b).{0,30}\d",
    r"\b(?:range of|valid range|within the range)\b.{0,20}\binput\b|\binput length\b.{0,30}\b(?:range|between)",
    r"token count\b.{0,20}\d+.{0,30}\bbut\b",
    r"\d[\d,._]* (?:input |prompt |context )?tokens\b.{0,80}\b(?:limit|maximum|max|allowed|supports?|only)\b"
    r".{0,40}\d{3}",
    r"\b(?:limit|maximum|max|allows?|supports?|up to)\b.{0,40}\d[\d,._]*k? (?:input |prompt |context )?"
    r"tokens\b",
)

RULES: tuple[Rule, ...] = (
    # --- one request is more than a minute's allowance: waiting does not help
    _rule(
        "context_window",
        "Groq and OpenAI, 413 or 429 'Request too large … tokens per minute: Limit …, Requested …': "
        "console.groq.com/docs/errors, platform.openai.com/docs/guides/rate-limits",
        r"request too large\b.*\b(?:tokens per|tpm|requested)",
        r"message larger than max",
    ),
    # --- money
    _rule(
        "no_credit",
        "OpenAI: platform.openai.com/docs/guides/error-codes; DashScope: help.aliyun.com, error code Arrearage; "
        "Zhipu 1113: docs.bigmodel.cn, error codes; Kimi: platform.moonshot.ai/docs, errors; Volcengine",
        words="insufficient_quota billing_hard_limit_reached billing_not_active access_terminated arrearage 1113 "
        "exceeded_current_quota_error insufficient_balance insufficient_credits insufficient_funds billing_error "
        "accountoverdueerror invalid_payment_instrument payment_required billing_disabled out_of_credits "
        "insufficient_user_quota credit_limit_exceeded",
    ),
    _rule("no_credit", "RFC 9110, section 15.5.3; OpenRouter, DeepSeek, Hugging Face", statuses=(402,)),
    # --- rates, told by a code: their sentences may speak of plans, payment and numbers of tokens
    _rule(
        "rate_limit",
        "OpenAI and its followers; Google RESOURCE_EXHAUSTED: ai.google.dev/gemini-api/docs/troubleshooting; Bedrock "
        "ThrottlingException; DashScope Throttling; Zhipu 1302, 1303",
        words="rate_limit_exceeded rate_limit_error rate_limit resource_exhausted throttlingexception throttling "
        "throttling.ratequota throttling.allocationquota throttling.user limit_requests limit_burst_rate "
        "too_many_requests toomanyrequestsexception rate_limit_reached_error ratelimitreached 1302 1303 "
        "limitexceeded servicequotaexceededexception",
    ),
    _rule(
        "rate_limit",
        "any provider's sentence about requests or tokens in a time",
        r"rate[ _-]?limit(?:s|ed)?\b",
        r"too many (?:concurrent )?requests",
        r"(?:requests?|tokens?|calls?|queries) (?:per|/|a|each) ?(?:second|sec|minute|min|hour|day|month)\b",
        r"too many tokens\b.{0,40}(?:wait|try again)",
        r"throttl(?:ed|ing)",
        r"concurren(?:cy|t)\b.{0,20}\blimit",
        r"slow down",
        r"quotaresetdelay|quota metric",
        "频率|速率|频繁|并发|限流|每分钟|レート制限",
    ),
    _rule(
        "no_credit",
        "Anthropic: docs.anthropic.com, errors ('credit balance is too low'); OpenRouter: openrouter.ai/docs, errors; "
        "xAI: docs.x.ai; DeepSeek 'Insufficient Balance': api-docs.deepseek.com/quick_start/error_codes; SiliconFlow",
        r"(?:insufficient|not enough|low|negative|no) (?:account )?(?:balance|credits?|funds|quota)\b",
        r"\bbalance\b.{0,20}\b(?:too low|insufficient|not enough|exhausted|depleted|negative)",
        r"\bcredits?\b.{0,30}\b(?:exhausted|depleted|used up|run out|ran out|expired|insufficient|too low)",
        r"(?:used|exhausted|spent|consumed|exceeded|run|ran|requires?|needs?|out of|add|buy|purchase)\b"
        r".{0,40}\bcredits?\b",
        r"(?:exceeded|exhausted|reached)\b.{0,30}\b(?:quota|usage limits?|spend\w* limits?|budget)\b",
        r"billing\b.{0,30}\b(?:limit|not active|inactive|disabled|enabled|details|issue|problem)",
        r"payment (?:is )?required|(?:payment method|past due|unpaid invoice)",
        r"account\b.{0,40}\b(?:good standing|overdue|arrears|not active|suspended|recharge|top up)",
        "余额|欠费|充值|额度不足|额度已|账户已停用|残高",
    ),
    # --- the key
    _rule(
        "authentication",
        "Gemini 400 API_KEY_INVALID; xAI 400 'Incorrect API key'; DashScope InvalidApiKey",
        r"(?:incorrect|invalid|missing|wrong|expired|no|unknown) (?:api|access|auth\w*)[ _-]?(?:key|token)\b",
        r"api[ _-]?key\b.{0,15}\b(?:not valid|invalid|expired|not found|missing|incorrect|required)",
        r"authentication (?:fails|failed|error|required)|unauthorized\b",
        words="invalid_api_key invalidapikey api_key_invalid authentication_error invalid_authentication_error "
        "unauthorized unauthenticated incorrect_api_key",
    ),
    # --- what may not be said
    _rule(
        "content_filter",
        "Azure: learn.microsoft.com, content filtering; OpenAI invalid_prompt; DashScope DataInspectionFailed; Zhipu "
        "1301; Gemini blockReason: ai.google.dev/api/generate-content; MiniMax 1026, 1027; Volcengine",
        words="content_filter content_policy_violation responsibleaipolicyviolation invalid_prompt 1301 1026 1027 "
        "data_inspection_failed datainspectionfailed moderation_blocked content_filtered content_moderation "
        "prohibited_content blocklist spii safety image_safety sensitivecontentdetected "
        "inputtextsensitivecontentdetected outputtextsensitivecontentdetected "
        "inputimagesensitivecontentdetected content_blocked moderation_error safety_check_failed",
    ),
    _rule(
        "content_filter",
        "OpenAI, Azure, xAI, OpenRouter (403), DeepSeek 'Content Exists Risk', Anthropic 'content filtering policy'",
        r"content[ _-](?:management|filter\w*|moderation|safety|usage)[ _-]?(?:polic|system|result)?",
        r"(?:content|usage|safety|acceptable use|moderation) (?:polic(?:y|ies)|guidelines)",
        r"violat\w+\b.{0,60}\b(?:polic|guideline|terms of (?:use|service)|"
        r"(?:our|usage|content|community|safety|platform|service) (?:terms|rules))",
        r"\bsafety (?:system|reasons|filter|settings?|check|concern)",
        r"requires moderation|\bwas flagged|been flagged|\binappropriate\b|content exists risk|high risk",
        r"\b(?:unsafe|harmful|prohibited|sensitive|objectionable) (?:content|words?|information|material|prompt)",
        r"blocked\b.{0,30}\b(?:content|safety|policy|filter|moderation|guardrail)|guardrail",
        r"\bblock_?reason\b",
        r"\bnew_sensitive\b",
        "敏感|违规|不安全|违反|不合规|风控|内容审核|安全审核",
    ),
    # --- images, sounds and files: their form first, because it may be 'not supported' as well
    _rule(
        "unreadable_content",
        "OpenAI invalid_image_format, image_parse_error: platform.openai.com/docs/api-reference; Anthropic: "
        "docs.anthropic.com/en/docs/build-with-claude/vision; Gemini 'Unsupported MIME type'; Qwen-VL's sizes",
        rf"(?:unsupported|invalid|unknown|unrecognized|wrong)\b.{{0,30}}\b(?:{_MEDIA}[ _-]?)?"
        r"(?:formats?|mime[ _]?types?|media[ _]types?|file types?|extensions?)\b",
        r"(?<![_\w])(?:formats?|mime[ _]?types?|media[ _]types?|file types?)\b.{0,60}\b"
        r"(?:not (?:supported|allowed|valid)|"
        r"unsupported|invalid|mismatch|appears to be)",
        r"unsupported images?\b(?! (?:input|content|part|url|message))",
        r"(?<!data:)\bimage/(?:jpe?g|png|gif|webp)\b",
        _unless(
            r"\btokens?\b",
            rf"\b{_MEDIA}\b.{{0,60}}\b(?:dimensions?|pixels?|resolution|exceeds?|too (?:large|small|big|many)|"
            r"(?:larger|smaller|bigger) than|width|height|megabytes|mb\b)",
        ),
        rf"at most [1-9][0-9]* {_MEDIA}|too many {_MEDIA}\b",
        rf"{_MEDIA_IN_CHINESE}.{{0,20}}(?:格式|过大|过小|无法|失败|损坏|尺寸|大小|解析|下载)",
        words="invalid_image invalid_image_format image_parse_error invalid_image_url image_too_large image_too_small "
        "invalid_base64_image invalid_image_mode unsupported_image_media_type empty_image_file "
        "failed_to_download_image image_file_not_found image_file_too_large unsupported_file "
        "invalid_file_data",
    ),
    _rule(
        "unreadable_content",
        "Anthropic 'Could not process image'; OpenAI 'Failed to download image'; Gemini 'Unable to process input "
        "image'",
        r"(?:could not|cannot|cant|unable to|failed to|failure to|errors?(?: while| when| in)?) (?:\w+ ){0,2}"
        r"(?:process|identify|decod|load|open|read|pars|download|fetch|access|retriev|extract|convert)\w*\b"
        rf".{{0,40}}\b(?:{_MEDIA}|url|base64)\b",
        rf"\b{_MEDIA}\b.{{0,40}}\b(?:could not|cannot|failed to|unable to) (?:be )?(?:process|identif|decod|load|"
        r"open|read|pars|download|fetch|access|retriev|extract)",
        r"(?:error|timeout|timed out|failed) while downloading|failed to download",
        r"\b(?:invalid|illegal|bad|malformed|incorrect)\b.{0,10}\bbase64|base64\b.{0,30}\b(?:invalid|illegal|error)",
    ),
    # --- kinds of content that the model does not take at all
    _rule(
        "unsupported_content",
        "DeepSeek, OpenRouter (404), Qianfan, vLLM, llama.cpp (500), Ollama, Groq, Mistral, Bedrock, SiliconFlow: an "
        "image, a sound or a file for a model that only reads text",
        rf"unknown variant (?:{_MEDIA}|input_\w+)",
        rf"\b{_NOT}\b.{{0,25}}\b(?:support\w*|accept\w*|allow\w*|take|understand|enabled?|capable of)\b"
        rf".{{0,40}}\b{_MEDIA}\b",
        rf"\b{_MEDIA}\b.{{0,40}}\b(?:(?:not|only|never|isnt|arent)(?: currently| yet)? (?:\w+ )?(?:supported|"
        r"allowed|"
        r"accepted|enabled|available|permitted|implemented)|unsupported|disabled)\b",
        r"\bnot an? (?:\w+ ){0,2}(?:multi-?modal|vision|vlm|visual|vl)\b|\bnon-?(?:vision|multi-?modal)\b",
        r"\btext[ -]only\b|\bonly (?:support\w*|accept\w*|takes?|allows?|handles?|reads?) (?:the )?text\b",
        r"\bonly text\b.{0,40}\b(?:support|accept|allow)",
        rf"at most 0 {_MEDIA}",
        rf"mmproj|missing\b.{{0,40}}\b{_MEDIA} input",
        r"no (?:image|vision|audio) (?:processor|encoder|projector|model)",
        r"(?:invalid|unsupported|unexpected|unknown)\b.{0,15}\b(?:content|part|block|message|value)\b.{0,20}"
        rf"\b(?:{_MEDIA}|input_\w+)\b",
        rf"unsupported {_MEDIA}\b",
        rf"不支持.{{0,12}}{_MEDIA_IN_CHINESE}|{_MEDIA_IN_CHINESE}.{{0,12}}不支持",
    ),
    _rule(
        "unsupported_content",
        "Groq, Text Generation Inference, FastAPI: a list of parts where only text is taken",
        r"(?:content|messages)\b.*(?:must be a string|expected (?:a )?str|valid string|invalid type: sequence|"
        r"string_type|not of type string)",
        media=True,
    ),
    _rule("unreadable_content", "RFC 9110, section 15.5.16: the form of the content", statuses=(415,), media=True),
    _rule(
        "unreadable_content",
        "Gemini 'Provided image is not valid'; OpenAI 'does not represent a valid image'; Anthropic on PDF files",
        _unless(
            _PARAMETERS,
            rf"\b(?:invalid|corrupt\w*|malformed|broken|truncated|damaged|empty|incomplete|illegal)\b.{{0,25}}\b{_MEDIA}\b|"
            rf"\b{_MEDIA}\b.{{0,30}}\b(?:not (?:a )?valid|invalid|corrupt\w*|malformed|empty|damaged|truncated|"
            r"unreadable|no pages|password|encrypted)\b|"
            rf"\bvalid (?:{_MEDIA}|base64)\b",
        ),
        statuses=(None, 400, 404, 415, 422, 500),
        media=True,
    ),
    # --- a part of the request that has a limit of its own: shorter messages would not help
    _rule(
        "invalid_request",
        "OpenAI string_above_max_length for anything but messages, array_above_max_length: the text of a tool, an id",
        _unless(
            r"\b(?:messages(?:\[\d+\]\.content\S*)?|input(?:\[\d+\]\.content\S*)?): (?:string|array) too long",
            r"(?:string|array) too long|string_above_max_length|array_above_max_length",
        ),
    ),
    _rule(
        "invalid_request",
        "Anthropic, Gemini, Mistral: tools, their names and descriptions, stop sequences",
        _unless(
            r"\b(?:context|prompt|messages|input|tokens?)\b",
            r"\b(?:tools?|functions?|descriptions?|names?|schemas?|parameters?|properties|stop sequences?|metadata|"
            r"tool_calls?|tool_call_id|function_declarations?)\b.{0,50}\b(?:too (?:long|large|many)|exceeds?|at most|"
            r"longer than|maximum)|too many (?:tools|functions|stop)",
        ),
    ),
    _rule(
        "context_window",
        "vLLM, when the prompt leaves no room: 'max_tokens must be at least 1, got -12'",
        r"max_(?:completion_)?tokens must be at least 1, got -",
    ),
    _rule(
        "invalid_request",
        "OpenAI 'max_tokens is too large', DeepSeek 'the valid range of max_tokens', Anthropic 'max_tokens: … > …'",
        _unless(
            r"\b(?:context|prompts?|inputs?|messages|conversation)\b",
            r"\bmax_?(?:completion_?|output_?|new_?)?tokens\b",
        ),
    ),
    # --- too long
    _rule(
        "context_window",
        "OpenAI context_length_exceeded; llama.cpp exceed_context_size_error; Anthropic request_too_large and "
        "model_context_window_exceeded; GitHub tokens_limit_reached; Zhipu 1261; Qianfan 336007, 336103-336105",
        words="context_length_exceeded context_window_exceeded model_context_window_exceeded context_length_error "
        "exceed_context_size_error exceeds_context_length request_too_large input_too_long prompt_too_long "
        "tokens_limit_reached token_limit_exceeded tokens_exceeded model_max_prompt_tokens_exceeded "
        "max_context_length_exceeded context_overflow context_limit_exceeded input_length_exceeded "
        "contextlengthexceeded contextwindowexceeded contextwindowexceedederror payload_too_large "
        "1261 336007 336103 336104 336105",
    ),
    _rule(
        "context_window",
        "what is said of the window: OpenAI, Azure, vLLM, SGLang, llama.cpp, LM Studio, Cloudflare, MiniMax",
        rf"context[ _-]?{_SIZE}s?\b.{{0,80}}\b(?:exceed\w*|too (?:long|large|small|big)|larger|longer|reached|"
        r"overflow\w*|not enough|insufficient|surpass\w*|greater|is full|shorter)",
        r"\b(?:exceed\w*|larger than|longer than|greater than|more than|beyond|overflow\w*|surpass\w*|outside|"
        r"fit\w*|reached|ran out of|out of|too (?:long|large|big) for)\b.{0,80}\bcontext\b",
        r"\bcontext (?:the )?overflows?|\bcontext(?:[ _-](?:window|length|size))? (?:is )?full\b",
        r"\bkv[ _-]?cache\b.{0,40}\b(?:full|no (?:space|room|slot)|exceed\w*|out of)|\bmemory slot for batch",
        r"\bmax(?:imum)?[ _-](?:allowed )?(?:context|prompt|input|sequence|seq|model|total|message)s?[ _-]?"
        rf"(?:tokens?[ _-])?(?:{_SIZE}|tokens?|count|characters)\b",
    ),
    _rule(
        "context_window",
        "what is said of the request: Anthropic 'prompt is too long', Bedrock 'Input is too long', Cohere, Databricks, "
        "GitHub, RFC 9110 'Content Too Large'",
        rf"\b{_REQUEST}\b(?: (?:tokens?|text|{_SIZE}|count|messages?|history|data|body|entity|content))*"
        r"(?: \([^)]*\))?(?: is| are| was| were| has become| got)?(?: far| much| way)? too (?:long|large|big)\b",
        r"\btoo many (?:input |prompt |total |context |message |text )*(?:tokens|messages|characters|bytes)\b",
        r"\bmax\w* (?:request |message |prompt |input |body |payload )+size\b.{0,30}\bexceeded",
        r"\blimited to \d[\d,._]*k? (?:input |prompt |context )?tokens\b",
        rf"\b{_REQUEST}\b.{{0,80}}\b(?:exceed\w*|surpass\w*|longer than|larger than|greater than|more than|over)\b"
        r".{0,80}\b(?:limit\w*|max\w*|allowed|length|capacity|tokens?)\b",
        r"\b(?:exceed\w*|over|beyond|surpass\w*)\b.{0,60}\b(?:tokens?|input|prompt|length|request|message)[ _-]?"
        r"(?:limit|length|count|size|maximum|max)\b",
        r"\b(?:messages(?:\[\d+\]\.content\S*)?|input(?:\[\d+\]\.content\S*)?): (?:string|array) too long",
        rf"\b(?:tokens?|input|prompt|length|context)[ _](?:{_SIZE}|count)\w*(?: was| is| has been)? "
        r"(?:exceeded|reached)",
        rf"\b{_REQUEST}\b.{{0,50}}\b{_NOT}(?: \w+)? fit\b",
        r"\b(?:longer|larger|bigger) than (?:what )?(?:the|this) model",
        r"\b(?:expected )?max_?length: \d+, actual: \d+",
        r"\bmax(?:imum)? (?:number of )?(?:input )?tokens\b.{0,30}\bexceeded",
    ),
    _rule(
        "context_window",
        "numbers of tokens: Text Generation Inference, watsonx, Gemini 'only supports up to', DashScope 'Range of "
        "input length'",
        _unless(_NO_NUMBER_OF_TOKENS, _any(*_NUMBERS_OF_TOKENS)),
    ),
    _rule(
        "context_window",
        "the advice: OpenAI 'reduce the length of the messages', Cohere 'using a shorter prompt'",
        r"\b(?:reduce|shorten|decrease|trim|truncate)\b.{0,40}\b(?:prompt|inputs?|messages?|conversation|context|"
        r"history|length|tokens)\b",
        r"\bshorter (?:prompt|input|message|conversation|context)|\b(?:start|begin) a new (?:chat|conversation)",
    ),
    _rule(
        "context_window",
        "Zhipu, DashScope, Qianfan, StepFun and others in Chinese; Japanese and Korean servers",
        "(?:上下文|输入|提示词?|消息|对话|请求|文本|内容|长度|token|prompt|message)[^。]{0,30}"
        "(?:超过|超出|超长|过长|太长|超限|过大|溢出|大于)",
        "(?:超过|超出)[^。]{0,30}(?:上下文|长度|上限|token|字数|输入)",
        "(?:プロンプト|入力|コンテキスト|トークン)[^。]{0,30}(?:長すぎ|超え|超過)",
        "(?:프롬프트|입력|컨텍스트|토큰).{0,30}(?:초과|너무 깁|너무 길)",
    ),
    # --- the model
    _rule(
        "unknown_model",
        "OpenAI, Azure DeploymentNotFound, Groq model_decommissioned, Zhipu 1211, Mistral invalid_model",
        words="model_not_found modelnotfound deploymentnotfound model_decommissioned invalid_model model_not_available "
        "1211 model_not_supported invalidendpointormodel.notfound model_not_exist unknown_model "
        "unsupported_model",
    ),
    _rule(
        "unknown_model",
        "DeepSeek 'Model Not Exist', Ollama 'try pulling it first', OpenRouter 'not a valid model ID', LM Studio",
        r"\bmodels?\b.{0,80}\b(?:(?:does|do|did) not exist|doesnt exist|not exist|not found|not be found|no longer "
        r"(?:available|supported)|decommissioned|deprecated|retired|not loaded)\b",
        r"\bmodel(?: \S+)? (?:is |was )?(?:unknown|unavailable|invalid|(?:not|un)(?: currently)? ?(?:available|"
        r"supported|valid|recognized|enabled))\b(?! with)",
        r"\b(?:unknown|invalid|no such|unrecognized|nonexistent) model\b(?! (?:parameter|request|input))",
        r"model identifier is invalid|on-demand throughput isnt supported|not a valid model|"
        r"no models? (?:is |are )?loaded|pulling it",
        "模型.{0,20}(?:不存在|未开通|下线|不可用)",
    ),
    # --- too much to do
    _rule(
        "server_error",
        "Anthropic overloaded_error (529); Gemini UNAVAILABLE; Groq 498; DeepSeek 503",
        r"\boverloaded\b|\b(?:over|at) capacity\b|capacity exceeded|no (?:available )?capacity",
        r"temporarily (?:un|not )available|service unavailable",
        r"\b(?:server|service|engine) (?:is )?(?:currently )?busy",
        "繁忙|过载",
        words="overloaded_error engine_overloaded_error overloaded server_overloaded unavailable",
        statuses=(None, 200, 400, 424, 498, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529, 530),
    ),
    _rule(
        "unreadable_content",
        "a refusal of a request with an image, a sound or a file, which speaks of one in words that no rule knows",
        _unless(_PARAMETERS, rf"(?!\b(?:files?|documents?)\b)\b{_MEDIA}\b|{_MEDIA_IN_CHINESE}"),
        statuses=(400, 404, 415, 422),
        media=True,
    ),
)
"""The rules, the narrowest first."""

_NAMES_A_PART = (
    r"\b(?:param(?:eter)?s?: (?!null|none)\w|parameters?\b|arguments?\b|fields?\b|propert|tools?\b|tool_|functions?\b|"
    r"schemas?\b|role|thinking|reasoning|signature|thought|temperature|top_p|stream|stop\b|must |required|missing|"
    r"unexpected|unrecogni[sz]ed|unsupported|not supported|does not support|extra |deserialize|alternat|empty|"
    r"format\b|json)"
)
"""What a refusal speaks of that gives its reason. One without any of this says only that the request was refused."""


def kind_of_refusal(refusal: Refusal, has_media: bool = False) -> FailureKind | None:
    """The kind of the first rule that holds, or None. `has_media` says whether the request holds an image, a sound or a
    file. `Pure.`"""
    if not refusal.text and refusal.status is None:
        return None
    return next((rule.kind for rule in RULES if rule.holds(refusal, has_media)), None)


def gives_no_reason(refusal: Refusal) -> bool:
    """Whether the request was refused as such, with the status 400, 413 or 422, without any word about what was wrong
    with it. `Pure.`"""
    return refusal.status in {400, 413, 422} and re.search(_NAMES_A_PART, refusal.text) is None
