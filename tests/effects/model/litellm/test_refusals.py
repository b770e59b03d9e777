"""What a provider's error means: the kinds of failures, and requests whose content was refused."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from typing import Any, get_args

import pytest

from tests.support.servers.model_server import (
    DIALECTS,
    Answer,
    Data,
    Dialect,
    Failure,
    ModelServer,
    Tokens,
    answers,
    fails,
)
from turnwise import Llm, LlmFailure, ModelRequest
from turnwise.effects.model.litellm.errors import kind_of, kinds
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.effects.model.openai.failures import retry_after
from turnwise.effects.model.openai.refusals import RULES, Refusal, kind_of_refusal
from turnwise.states.values.value import REFUSED_CONTENT, FailureKind

from ....support.cases import holds_for

# --- What providers say when they refuse a request, and how long to wait, understood over a real socket.
#
# The sentences are those of public documentation and of bug reports of other projects. Case P11.


TEXT = {"role": "user", "content": "What is this?"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
LOOK = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]}

SENTENCES: dict[FailureKind, tuple[tuple[int, str], ...]] = {
    "context_window": (
        (400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
        (
            400,
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens. Please reduce the length of the messages.",
        ),
        (400, "prompt is too long: 205000 tokens > 200000 maximum"),
        (
            400,
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
        ),
        (413, "Request exceeds the maximum size"),
        (
            413,
            '{"error":{"type":"request_too_large","message":"Request exceeds the maximum allowed number of bytes."}}',
        ),
        (
            400,
            "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
        ),
        (
            400,
            "Reached context length of 4096 tokens with model (arch: llama), but this model does not currently support mid-generation context overflow.",
        ),
        (400, "too many total text bytes: 24,812,374 > 9,000,000"),
        (400, "Maximum request body size 4194304 exceeded, actual body size 5024123"),
        (400, "context window full"),
        (400, "The KV cache is full: n_ctx = 4096"),
        (500, "failed to find a memory slot for batch of size 512"),
        (400, "This model is limited to 8192 tokens, you sent 9000."),
        (500, "input is too large to process. increase the physical batch size"),
        (
            500,
            "the request exceeds the available context size. try increasing the context size or enable context shift",
        ),
        (400, "input length exceeds maximum context length"),
        (400, "Prompt length 9000 is greater than max_seq_len 4096"),
        (400, "Requested tokens (5000) exceed context window of 2048"),
        (400, "The input (9000 tokens) is longer than the model's context length (4096 tokens)."),
        (
            400,
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens",
        ),
        (
            400,
            "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens). Use a shorter input or enable --allow-auto-truncate.",
        ),
        (400, "Request prompt has 5000 tokens in total, larger than the model input length limit 4096"),
        (400, "prompt length (5000) should not exceed max input length (4096)"),
        (400, "Too many input tokens. Max input tokens: 8192, request input token count: 9000"),
        (
            400,
            "Malformed input request: expected maxLength: 50000, actual: 60000, please reformat your input and try again.",
        ),
        (
            400,
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt, or a smaller max_tokens value.",
        ),
        (400, "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"),
        (400, "max tokens of 8192 exceeded"),
        (
            400,
            "The estimated number of input and maximum output tokens (9000) exceeded this model context window limit (8192).",
        ),
        (413, "Request body too large for gpt-4o model. Max size: 8000 tokens."),
        (
            400,
            '{"error":{"message":"prompt token count of 70000 exceeds the limit of 64000","code":"model_max_prompt_tokens_exceeded"}}',
        ),
        (400, "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model"),
        (400, "Input length 140000 exceeds the maximum length 131072"),
        (400, "Total tokens of image and text exceed max message tokens"),
        (400, "the max input characters is 11200"),
        (400, "prompt tokens too long"),
        (400, "invalid params, context window exceeds limit (2013)"),
        (
            400,
            "Unable to submit request because the input token count is 40000 but model only supports up to 32768. Reduce the input token count and try again.",
        ),
        (400, "Request payload size exceeds the limit: 20971520 bytes."),
        (400, "total message size 300000 exceeds limit 262144"),
        (
            400,
            "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got a string with length 2000000 instead.",
        ),
        (
            400,
            "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 3000 instead.",
        ),
        (400, "Invalid 'input': string too long. Expected a string with maximum length 10485760"),
        (400, "max_tokens must be at least 1, got -1200."),
        (
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 16384 tokens and your request has 9000 input tokens (8192 > 16384 - 9000).",
        ),
        (
            400,
            'This endpoint\'s maximum context length is 128000 tokens. However, you requested about 200000 tokens (200000 of text input). Please reduce the length of either one, or use the "middle-out" transform to compress your prompt automatically.',
        ),
        (400, "输入内容过长，请缩短后重试"),
        (400, "Prompt 超长"),
        (400, "\\u8f93\\u5165\\u8d85\\u8fc7\\u6700\\u5927\\u957f\\u5ea6"),
        (400, "tokens总数超过模型上限"),
        (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"),
        (400, "Input should have at most 30000 tokens"),
        (400, "The prompt size exceeds the context window size and cannot be processed."),
        (500, "This model's maximum context length is 4096 tokens"),
        (
            429,
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 37000. The input or output tokens must be reduced in order to run successfully.",
        ),
        (400, "Conversation is too long"),
        (400, "The conversation history is too long for this model."),
        (400, "The model's context window has been exceeded"),
        (400, "token limit exceeded"),
        (400, "Model token limit exceeded (8192)"),
        (
            400,
            "You passed 9000 input tokens and requested 100 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 8092 tokens. Please reduce the length of the input prompt.",
        ),
        (400, "This model has a limit of 8192 tokens"),
        (400, "Provided prompt (9000 tokens) does not fit"),
        (400, "Your request contained 9000 tokens, which is over the limit of 8192"),
        (400, "sequence length of 9000 is longer than the maximum sequence length 8192"),
        (400, "The text is longer than what the model can process"),
        (400, "prompt has too many tokens"),
        (400, "ContextWindowExceededError"),
        (400, "Context size has been exceeded."),
        (400, "The number of tokens in the prompt (9000) is greater than the model limit (8192)"),
        (422, '{"detail":[{"type":"value_error","loc":["body"],"msg":"Prompt too large: 9000 tokens, max 8192"}]}'),
        (
            400,
            '{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\\"error\\":{\\"message\\":\\"prompt is too long: 9 tokens > 8 maximum\\"}}"}}}',
        ),
    ),
    "rate_limit": (
        (
            429,
            "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 3000. Please try again in 4s. You can increase your rate limit by adding a payment method to your account at https://platform.openai.com/account/billing.",
        ),
        (429, "Too many tokens, please wait before trying again."),
        (429, "Number of request tokens has exceeded your per-minute rate limit"),
        (
            429,
            '{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}',
        ),
        (429, "This request would exceed your organization's rate limit of 40,000 input tokens per minute"),
        (400, "Throttled: rate limit exceeded"),
        (429, "您的账户已达到速率限制，请您控制请求频率"),
        (429, "Requests rate limit exceeded"),
    ),
    "no_credit": (
        (
            429,
            '{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}',
        ),
        (429, "You exceeded your current quota, please check your plan and billing details."),
        (402, "Insufficient Balance"),
        (
            402,
            "This request requires more credits, or fewer max_tokens. You requested up to 64000 tokens, but can only afford 12000.",
        ),
        (
            400,
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
        ),
        (400, "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."),
        (403, "Your team 1 has either used all available credits or reached its monthly spending limit."),
        (
            400,
            '{"error":{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing."}}',
        ),
        (429, '{"error":{"code":"1113","message":"您的账户已欠费，请充值后重试"}}'),
        (403, "Sorry, your account balance is insufficient"),
        (429, "Your account xxx is suspended, please check your plan and billing details"),
        (429, "Your account is not active, please check your billing details on our website."),
        (402, "You have exceeded your monthly included credits for Inference Providers."),
    ),
    "content_filter": (
        (400, "output new_sensitive (1027)"),
        (400, "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."),
        (400, "Invalid prompt: your prompt was flagged as potentially violating our usage policy."),
        (400, "Content Exists Risk"),
        (400, "Output blocked by content filtering policy"),
        (400, '{"code":"DataInspectionFailed","message":"Input data may contain inappropriate content."}'),
        (400, '{"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容"}}'),
        (403, 'google/gemini requires moderation. Your input was flagged for "sexual".'),
        (403, "Content violates usage guidelines."),
        (400, "The request was rejected because it was considered high risk"),
        (400, "Your request was rejected as a result of our safety system."),
        (400, '{"error":{"message":"","code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}'),
    ),
    "unknown_model": (
        (
            400,
            "Invocation of model ID anthropic.claude-x with on-demand throughput isn't supported. Retry your request with the ID of an inference profile.",
        ),
        (404, "The model `gpt-9` does not exist or you do not have access to it."),
        (404, 'model "llama9" not found, try pulling it first'),
        (400, "Model Not Exist"),
        (400, "foo/bar is not a valid model ID"),
        (400, "The provided model identifier is invalid."),
        (404, "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent."),
        (400, "Invalid model: x"),
        (400, '{"error":{"code":"1211","message":"模型不存在，请检查模型代码。"}}'),
        (400, "The requested model 'x' is not supported by any provider you have enabled."),
        (404, "The API deployment for this resource does not exist. DeploymentNotFound"),
        (400, "No models loaded. Please load a model in the developer page"),
        (404, "No endpoints found that support tool use"),
    ),
    "authentication": (
        (400, "API key not valid. Please pass a valid API key."),
        (400, "Incorrect API key provided: sk-x"),
        (401, "Authentication Fails (no such user)"),
    ),
    "unsupported_content": (
        (
            422,
            "Failed to deserialize the JSON body into the target type: messages[3]: unknown variant `image_url`, expected `text` at line 1 column 4795",
        ),
        (404, "No endpoints found that support image input"),
        (400, "Invalid content type. image_url is only supported by certain models"),
        (400, "At most 0 image(s) may be provided in one request."),
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        (400, "Qwen/Qwen3 is not a multimodal model"),
        (400, "This model does not support image input"),
        (400, "The model is not a VLM (Vision Language Model). Please use VLM instead."),
        (400, "Image input is not enabled for this model"),
        (400, "This model doesn't support the image content block that you provided."),
        (400, "Content type 'image_url' is not supported by model"),
        (400, "Image inputs are not supported by this model"),
        (400, "模型不支持图片输入"),
        (400, "this model is missing data required for image input"),
        (400, "Audio input is not supported for this model."),
        (400, "This model does not support PDF documents"),
        (404, "No endpoints found that support file input"),
        (400, "The model only accepts text inputs"),
        (
            400,
            "'messages.1' : for 'role:user' the following must be satisfied[('messages.1.content' : value must be a string)]",
        ),
        (400, "Invalid value: 'input_audio'. Supported values are: 'text'"),
        (400, "Model llama3 does not support images"),
        (400, "images are not supported for this model"),
        (400, "Vision is not supported"),
    ),
    "unreadable_content": (
        (400, "messages.2.content.1.image.source.base64.data: Could not process image"),
        (400, "illegal base64 data at input byte 4"),
        (400, "Invalid base64 image_url."),
        (
            400,
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].",
        ),
        (
            400,
            "messages.0.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels",
        ),
        (400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"),
        (400, "Failed to download image from https://x/y.png"),
        (400, "Unable to process input image. Please retry or report in https://"),
        (400, "Provided image is not valid."),
        (400, "The image data you provided does not represent a valid image. Please check your input and try again"),
        (400, "Unsupported MIME type: text/x-c"),
        (400, "media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"),
        (
            400,
            "The image length and width do not meet the model restrictions. [height:2 or width:2 must be larger than 10]",
        ),
        (400, "cannot identify image file <_io.BytesIO object>"),
        (400, "The PDF specified was not valid."),
        (400, "At most 1 image(s) may be provided in one request."),
        (400, "图片格式错误"),
        (400, "Image does not match the provided media type image/png"),
        (400, "Error while downloading https://example.com/a.png"),
        (400, "The document has no pages."),
        (400, "Unsupported image format"),
        (400, "Failed to load image: cannot decode"),
        (400, "Image size 2x2 is too small"),
    ),
    "server_error": (
        (529, "Overloaded"),
        (503, "The model is overloaded. Please try again later."),
        (503, "The engine is currently overloaded, please try again later"),
        (500, "Internal server error"),
    ),
    "invalid_request": (
        (
            400,
            "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 2000 instead.",
        ),
        (400, "string too long. Expected a string with maximum length 1024"),
        (400, "tool description too long"),
        (
            400,
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
        ),
        (400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        (400, "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x"),
        (
            400,
            "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 44 instead.",
        ),
        (
            400,
            "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 200 instead.",
        ),
        (400, "Unsupported parameter: 'temperature' is not supported with this model."),
        (400, "registry.ollama.ai/library/gemma does not support tools"),
        (400, "tools.0.custom.description: String should have at most 1024 characters"),
        (400, 'messages: roles must alternate between "user" and "assistant"'),
        (400, "Invalid schema for function 'x': In context=('properties','a'), array schema missing items"),
        (400, "Unrecognized request argument supplied: parallel_tool_calls"),
        (400, "Bad Request"),
        (400, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after"),
        (
            400,
            "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
        ),
        (400, "developer is not one of ['system', 'assistant', 'user', 'tool']"),
        (400, "auto tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"),
        (400, "tool_choice 'none' is not supported by this model"),
        (400, "Stream options can only be defined when `stream=True`."),
        (400, "Value error, content should not be empty"),
        (400, "Your organization must be verified to stream this model. Please go to"),
        (400, "'response_format' of type 'json_schema' is not supported with this model"),
        (400, "The `reasoning_content` in the thinking mode must be passed back to the API."),
        (400, "Function call is missing a thought_signature in functionCall parts."),
    ),
}
"""By kind: the status, and the message of the error, or the whole body where that is JSON."""


def refused(status: int, sentence: str, **headers: str) -> Failure:
    """Refuse as OpenAI does, or with the sentence itself if it is a body."""
    body = json.loads(sentence) if sentence.startswith("{") else {"error": {"message": sentence}}
    return fails(status, body, **headers)


async def failure_of(model: Llm, *messages: dict[str, Any]) -> LlmFailure:
    """Ask, and return how that failed."""
    with pytest.raises(LlmFailure) as raised:
        await model.complete(ModelRequest("m", messages or (TEXT,)), lambda _: None)
    return raised.value


@pytest.mark.usefixtures("each_client")
@pytest.mark.slow
@holds_for(
    ("kind", "status", "sentence"),
    [(kind, status, sentence) for kind, said in SENTENCES.items() for status, sentence in said],
)
async def test_a_sentence_has_its_kind(kind: FailureKind, status: int, sentence: str) -> None:
    """Whatever litellm makes of it."""
    async with ModelServer([refused(status, sentence)]) as server:
        failure = await failure_of(server.llm(), LOOK if kind in REFUSED_CONTENT else TEXT)

    assert failure.kind == kind


SHAPES: dict[str, Any] = {
    "an object": lambda text, code: {"error": {"message": text, "type": "error", "code": code}},
    "a list around it": lambda text, code: [{"error": {"message": text, "code": 400, "status": code}}],
    "a text": lambda text, code: {"error": text, "code": code},
    "without error": lambda text, code: {"object": "error", "message": text, "code": code},
    "detail": lambda text, code: {"detail": text, "code": code},
    "detail in a list": lambda text, code: {"detail": [{"loc": ["body"], "msg": text, "type": code}]},
    "JSON in the message": lambda text, code: {"error": {"message": json.dumps({"message": text, "code": code})}},
    "JSON in JSON in the message": lambda text, code: {
        "error": {"message": json.dumps({"error": {"message": json.dumps({"message": text, "code": code})}})}
    },
    "what the provider said": lambda text, code: {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": json.dumps({"error": {"message": text, "code": code}}), "provider_name": "Other"},
        }
    },
    "Python in the message": lambda text, code: {
        "error": {
            "message": f"litellm.BadRequestError: Error code: 400 - { ({'error': {'message': text, 'code': code}}) }"
        }
    },
    "plain text": lambda text, code: f"{text} ({code})",
}
"""How proxies and servers wrap a refusal."""

EXAMPLES: list[tuple[FailureKind, str, str]] = [
    ("context_window", "prompt is too long: 205000 tokens > 200000 maximum", "invalid_request_error"),
    ("context_window", "No.", "context_length_exceeded"),
    ("context_window", "输入长度超过模型上限", "1"),
    ("no_credit", "Your credit balance is too low to access the API.", "invalid_request_error"),
    ("content_filter", "No.", "content_filter"),
    ("unknown_model", "The model `x` does not exist", "404"),
    ("unsupported_content", "This model does not support image input", "invalid_value"),
    ("unreadable_content", "Could not process image", "invalid_request_error"),
]


@pytest.mark.usefixtures("each_client")
@pytest.mark.slow
@holds_for("shape", SHAPES)
async def test_it_is_found_in_whatever_shape(shape: str) -> None:
    """A proxy wraps what the provider said, once or several times, as JSON, as JSON text or as Python's."""
    replies = [fails(400, SHAPES[shape](text, code)) for _, text, code in EXAMPLES]
    async with ModelServer(replies) as server:
        found = [(await failure_of(server.llm(), LOOK)).kind for _ in EXAMPLES]

    assert found == [kind for kind, _, _ in EXAMPLES]


OTHERS = [
    "groq/m",
    "deepseek/m",
    "mistral/m",
    "openrouter/a/b",
    "together_ai/m",
    "dashscope/qwen-max",
    "xai/grok-4",
    "hosted_vllm/m",
    "moonshot/kimi-k2",
    "lm_studio/m",
    "fireworks_ai/m",
    "cerebras/m",
]


@pytest.mark.slow
@holds_for("model", OTHERS)
async def test_it_is_found_under_the_name_of_any_provider(model: str) -> None:
    """litellm maps the errors of each in a way of its own."""
    replies = [fails(400, SHAPES["an object"](text, code)) for _, text, code in EXAMPLES]
    async with ModelServer(replies) as server:
        found = [(await failure_of(server.llm(model, takes={"image": True}), LOOK)).kind for _ in EXAMPLES]

    assert found == [kind for kind, _, _ in EXAMPLES]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [DIALECTS[name] for name in ("anthropic", "gemini", "ollama")])
async def test_it_is_found_in_any_protocol(dialect: Dialect) -> None:
    """Also where litellm keeps no more of it than its bytes."""
    replies = [fails(400, SHAPES["an object"](text, code)) for _, text, code in EXAMPLES]
    async with ModelServer(replies, dialect) as server:
        found = [(await failure_of(server.llm(), TEXT)).kind for _ in EXAMPLES]

    assert found == [kind for kind, _, _ in EXAMPLES]


@pytest.mark.usefixtures("each_client")
class TestInTheMiddleOfAStream:
    """The status was 200; the refusal is an event."""

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            ({"code": 400, "message": "the request exceeds the available context size"}, "context_window"),
            ({"message": "No.", "type": "invalid_request_error", "code": "context_length_exceeded"}, "context_window"),
            ({"message": "Overloaded", "type": "overloaded_error"}, "server_error"),
            ({"message": "Slow down. Please try again in 2s.", "code": "rate_limit_exceeded"}, "rate_limit"),
            ({"message": "You have no credits left", "code": 402}, "no_credit"),
            ({"message": "The response was filtered", "code": "content_filter"}, "content_filter"),
            ({"message": "image input is not supported", "code": 500}, "unsupported_content"),
        ],
    )
    async def test_openai(self, error: dict[str, Any], kind: FailureKind) -> None:
        """An object `error` in place of a chunk."""
        async with ModelServer([answers(Data({"error": error}))]) as server:
            assert (await failure_of(server.llm())).kind == kind

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            ({"type": "overloaded_error", "message": "Overloaded"}, "server_error"),
            ({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}, "context_window"),
            ({"type": "rate_limit_error", "message": "Number of requests has exceeded your rate limit"}, "rate_limit"),
        ],
    )
    async def test_anthropic(self, error: dict[str, Any], kind: FailureKind) -> None:
        """An event of the type `error`."""
        async with ModelServer([answers(Data({"type": "error", "error": error}))], DIALECTS["anthropic"]) as server:
            assert (await failure_of(server.llm())).kind == kind


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("length", "context_window"),
        ("model_context_window_exceeded", "context_window"),
        ("content_filter", "content_filter"),
        ("insufficient_system_resource", "server_error"),
    ],
)
async def test_a_finish_reason_without_an_answer(finish: str, kind: FailureKind) -> None:
    """The request was taken, and then there was no room for a single token, or nothing that may be said."""
    async with ModelServer([answers(finish=finish, usage=Tokens(output=0))]) as server:
        assert (await failure_of(server.llm())).kind == kind


@pytest.mark.parametrize(
    "reply",
    [answers("Half an ans", finish="length"), answers(finish="length", usage=Tokens(output=500, reasoning=500))],
)
async def test_an_answer_that_was_cut_off_is_an_answer(reply: Answer) -> None:
    """Also where all of it was thinking that is not shown: shorter messages would not help."""
    async with ModelServer([reply]) as server:
        answer = await server.llm().complete(ModelRequest("m", (TEXT,)), lambda _: None)

    assert answer.finish_reason == "length"


@pytest.mark.usefixtures("each_client")
class TestARefusalWithoutAReason:
    """It is taken for one of a request that is too long if no request as large was ever accepted."""

    async def test_of_a_larger_request_than_any_before(self) -> None:
        """Nothing else about it is new."""
        async with ModelServer([answers("Fine."), refused(400, "Bad Request")]) as server:
            model = server.llm()
            await model.complete(ModelRequest("m", (TEXT,)), lambda _: None)

            assert (await failure_of(model, TEXT, {"role": "assistant", "content": "Fine."}, TEXT)).kind == (
                "context_window"
            )

    async def test_of_one_that_was_accepted_before(self) -> None:
        """It is not its size."""
        async with ModelServer([answers("Fine."), refused(400, "Bad Request")]) as server:
            model = server.llm()
            await model.complete(ModelRequest("m", (TEXT,)), lambda _: None)

            assert (await failure_of(model, TEXT)).kind == "invalid_request"

    async def test_of_the_first_one(self) -> None:
        """A small one is not too long for any model; one that fills a window of 32,000 tokens may be."""
        async with ModelServer([refused(400, "Bad Request")]) as server:
            assert (await failure_of(server.llm())).kind == "invalid_request"
            assert (await failure_of(server.llm(), {"role": "user", "content": "word " * 30_000})).kind == (
                "context_window"
            )

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("status", "sentence"),
        [
            (400, "Unsupported parameter: 'temperature' is not supported with this model."),
            (400, "Invalid schema for function 'look'"),
            (400, "Conversation roles must alternate user/assistant/user/assistant"),
            (400, '{"error": {"message": "Invalid value", "param": "tools[0]"}}'),
            (500, "Internal server error"),
            (503, "Bad gateway"),
        ],
    )
    async def test_one_with_a_reason_is_taken_at_its_word(self, status: int, sentence: str) -> None:
        """And a server that fails is asked again, whatever it was asked."""
        async with ModelServer([answers("Fine."), refused(status, sentence)]) as server:
            model = server.llm()
            await model.complete(ModelRequest("m", (TEXT,)), lambda _: None)

            failure = await failure_of(model, TEXT, {"role": "assistant", "content": "Fine."}, TEXT)

        assert failure.kind == ("invalid_request" if status == 400 else "server_error")


@holds_for(
    "sentence",
    [
        "Invalid schema for function 'upload': property 'file' has no type.",
        "Invalid schema: property 'image' is empty",
        "Invalid value for 'temperature': 9. For help see the documents of this API.",
        "tools.0: the document is not valid against the file of rules",
        "Something is wrong. See the file of errors.",
        "Invalid schema: violates the rules for 'oneOf'",
        "Parameter top_k violates the terms of the grammar",
        "parallel_tool_calls: the maximum allowed is 1 of 100 tokens",
    ],
)
def test_what_is_said_of_tools_and_parameters_is_not_said_of_content(sentence: str) -> None:
    """Although the request shows an image, and words for content stand in the sentence."""
    refusal = Refusal.of_body({"error": {"message": sentence, "type": "invalid_request_error"}}, 400)

    assert kind_of_refusal(refusal, has_media=True) in (None, "invalid_request")


def test_every_rule_says_who_answers_like_that() -> None:
    """And gives a kind in which a request can end."""
    assert all(rule.source and rule.kind in get_args(FailureKind) for rule in RULES)


# --- how long to wait

AN_HOUR = 3600

TOLD: list[tuple[float | None, str]] = [
    (2, "Rate limit reached. Please try again in 2s. Visit the limits page."),
    (0.35, "Please try again in 350ms."),
    (62.5, "Please try again in 1m2.5s."),
    (360, "try again in 6m0s"),
    (20, "Requests have exceeded the rate limit. Please retry after 20 seconds."),
    (1, "Please retry after 1 second."),
    (38.4, "You exceeded your current quota. Please retry in 38.4s."),
    (17, '{"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "17s"}]}}'),
    (0.5, '[{"error": {"details": [{"retryDelay": "0.5s"}]}}]'),
    (3720, '{"metadata": {"quotaResetDelay": "1h2m"}}'),
    (30, "Too many requests, please wait 30 seconds before trying again"),
    (12.5, '{"message": "You are being rate limited.", "retry_after": 12.5}'),
    (1.5, '{"retry_after_ms": 1500}'),
    (7, '{"error": {"retry_after_seconds": 7}}'),
    (3, '{"retryAfter": 3}'),
    (20, '{"error": "Model is currently loading", "estimated_time": 20.0}'),
    (30, "请求过于频繁，请在 30 秒后重试"),
    (123, "Try again after 2 minutes and 3 seconds"),
    (0, "limit resets at: 2020-01-01 12:00:00 UTC"),
    (None, "Please try again later."),
    (None, "Limit 30000, Used 29000, Requested 3000."),
    (None, "The answer took 1h2m3s"),
]

Header = str | Callable[[datetime], str]
"""The value of a header; where it tells a moment, the function that writes it."""

HEADERS: list[tuple[float | None, dict[str, Header]]] = [
    (1.5, {"retry-after-ms": "1500", "retry-after": "2"}),
    (2, {"retry-after": "2", "x-ratelimit-reset-tokens": "6m0s"}),
    (20, {"retry-after": "20s"}),
    (AN_HOUR, {"retry-after": lambda later: later.strftime("%a, %d %b %Y %H:%M:%S GMT")}),
    (0.12, {"x-ratelimit-reset-tokens": "120ms", "x-ratelimit-remaining-tokens": "0"}),
    (
        360,
        {
            "x-ratelimit-reset-requests": "6m0s",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-tokens": "1s",
            "x-ratelimit-remaining-tokens": "90",
        },
    ),
    (1, {"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}),
    (41, {"ratelimit": '"default";r=0;t=41'}),
    (41, {"ratelimit": "limit=100, remaining=0, reset=41"}),
    (None, {"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "5"}),
    (11.38, {"x-ratelimit-reset-tokens-minute": "11.38", "x-ratelimit-remaining-tokens-minute": "0"}),
    (AN_HOUR, {"x-ratelimit-reset": lambda later: str(int(later.timestamp()))}),
    (AN_HOUR, {"x-ratelimit-reset": lambda later: str(int(later.timestamp() * 1000)), "x-ratelimit-remaining": "0"}),
    (
        AN_HOUR,
        {"anthropic-ratelimit-requests-reset": datetime.isoformat, "anthropic-ratelimit-requests-remaining": "0"},
    ),
    (
        AN_HOUR,
        {
            "anthropic-ratelimit-input-tokens-reset": lambda later: later.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2020-01-01T00:00:00Z",
            "anthropic-ratelimit-requests-remaining": "50",
        },
    ),
    (5, {"ratelimit-reset": "5"}),
    (None, {"x-ratelimit-limit-requests": "60", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}),
]


@pytest.mark.usefixtures("each_client")
@pytest.mark.slow
@holds_for(("seconds", "sentence"), TOLD)
async def test_a_sentence_says_how_long_to_wait(seconds: float | None, sentence: str) -> None:
    """Or a field of the error, in whatever unit."""
    async with ModelServer([refused(429, sentence if sentence.startswith("{") else f"{sentence}")]) as server:
        failure = await failure_of(server.llm())

    assert failure.retry_after == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.usefixtures("each_client")
@pytest.mark.slow
@holds_for(("seconds", "headers"), HEADERS)
async def test_a_header_says_how_long_to_wait(seconds: float | None, headers: dict[str, Header]) -> None:
    """The one that is about the limit that was reached."""
    later = datetime.now(UTC) + timedelta(seconds=AN_HOUR)
    given = {name: header if isinstance(header, str) else header(later) for name, header in headers.items()}

    async with ModelServer([fails(429, {"error": {"message": "no"}}, **given)]) as server:
        failure = await failure_of(server.llm())

    passed = 600 if seconds == AN_HOUR else 1e-6
    assert failure.retry_after == (None if seconds is None else pytest.approx(seconds, abs=passed))


def test_when_a_limit_is_reset_says_nothing_of_a_server_that_failed() -> None:
    """Servers send these headers with every answer."""
    refusal = Refusal(500, headers={"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"})

    assert retry_after(refusal, "server_error") is None


# --- P11: every error that litellm raises has exactly one kind, and the wait that a provider asks for is read from it.


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
