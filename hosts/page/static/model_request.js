// Shows what a model was sent: the messages, the tools, and whether it is exactly what was sent then.

import { el, icon } from "./dom.js";
import { json } from "./json.js";

const LONGEST = 2000;

/** Return the elements that show an answer of `GET /conversations/{id}/log/{seq}/request`. */
export function modelRequest(request) {
  const settings = Object.entries(request.settings ?? {});
  return el(
    "div",
    { className: "model-request" },
    el("p", { className: "request-line" }, el("strong", {}, request.model), exactness(request.is_exact)),
    request.has_fresh_context && el("p", { className: "quiet" }, "A note with the time and the place stood at its end. It is never stored."),
    el("ol", { className: "sent-messages" }, request.messages.map(messageOf)),
    el("h4", {}, `Tools (${request.tools.length})`),
    el("p", { className: "quiet" }, "Tool choice: ", el("code", {}, JSON.stringify(request.tool_choice ?? null))),
    request.tools.map(toolOf),
    settings.length > 0 && [el("h4", {}, "Settings"), json(request.settings)],
  );
}

function exactness(isExact) {
  if (isExact === null) return el("span", { className: "chip" }, "no answer yet");
  return isExact
    ? el("span", { className: "chip ok", title: "The digest is the one that was stored with the answer." }, "exactly as sent")
    : el("span", { className: "chip warn", title: "The digest is not the one that was stored with the answer. The engine may offer other tools now." }, "differs from what was sent");
}

function messageOf(message) {
  return el(
    "li",
    { className: `sent ${message.role}` },
    el("span", { className: "role" }, message.role, message.tool_call_id && el("code", {}, message.tool_call_id)),
    contentOf(message.content),
    (message.tool_calls ?? []).map((call) => el("div", { className: "sent-call" }, el("code", {}, call.function?.name ?? "tool"), " ", el("span", {}, call.function?.arguments ?? ""))),
  );
}

function contentOf(content) {
  if (content === null || content === undefined || content === "") return null;
  if (typeof content !== "string") return json(content);
  if (content.length <= LONGEST) return el("p", { className: "plain" }, content);
  const text = el("p", { className: "plain" }, `${content.slice(0, LONGEST)}…`);
  const more = el("button", { type: "button", className: "link-button", onclick: () => {
    text.textContent = content;
    more.remove();
  } }, "Show all");
  return [text, more];
}

function toolOf(tool) {
  const shown = tool.function ?? tool;
  return el(
    "details",
    { className: "effect" },
    el("summary", {}, icon("chevron"), el("code", {}, shown.name), el("span", { className: "quiet" }, shown.description ?? "")),
    json(shown.parameters ?? {}),
  );
}
