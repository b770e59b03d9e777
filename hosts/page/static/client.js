// Speaks to the server. Every method is named as the operation in its OpenAPI description, and every refusal is a
// `Problem`. Nothing here knows the page.

import { parseExactly } from "./exact_json.js";
import { Stream } from "./stream.js";

/** A request that was refused, or that did not reach the server (`status` 0, code "unreachable"). `steps` are those that
 * are possible, where the one of the request is not. A caller who is not known becomes known by `signIn`, the "token" of the server or the "application", whose users sign in at `loginUrl`. */
export class Problem extends Error {
  constructor({ status = 0, code = "internal_error", title = "", detail = "", subject = null, steps = [], sign_in: signIn = null, login_url: loginUrl = null }) {
    super(detail || title || "The request failed.");
    this.name = "Problem";
    this.status = status;
    this.code = code;
    this.subject = subject;
    this.steps = steps;
    this.signIn = signIn;
    this.loginUrl = loginUrl;
  }
}

/** Return a new random id. It works without a secure context too, where `crypto.randomUUID` is missing. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The API of one server. `base` is the URL of the page, which the paths of the API are relative to. */
export class Client {
  #sessions = 0;

  constructor(base) {
    this.base = new URL(".", base);
    /** Called when a request is refused because the caller is not known. */
    this.onUnauthorized = () => {};
    /** Called after each request with whether it reached the server. */
    this.onReached = () => {};
  }

  // --- conversations

  createConversation(body = {}) {
    return this.#send("POST", "conversations", body);
  }

  listConversations(query = {}) {
    return this.#send("GET", withQuery("conversations", query));
  }

  getConversation(id) {
    return this.#send("GET", path(id));
  }

  changeConversation(id, changes) {
    return this.#send("PATCH", path(id), changes);
  }

  deleteConversation(id) {
    return this.#send("DELETE", path(id));
  }

  forkConversation(id, at) {
    return this.#send("POST", path(id, "fork"), at === undefined ? {} : { at });
  }

  // --- requests to a conversation

  sendMessage(id, body) {
    return this.#send("POST", path(id, "messages"), body);
  }

  /** Store a file for a later message. `onProgress` is told which part of it was sent, from 0 to 1; `signal` ends it;
   * then nothing is returned, ever. */
  uploadFile(id, file, { onProgress = () => {}, signal }) {
    const url = this.#address(withQuery(path(id, "files"), { name: file.name }));
    return this.#answerTo(() => upload(url, file, onProgress, signal));
  }

  /** Return where the bytes of a file are that the transcript of a conversation shows. */
  fileAddress(id, sha256) {
    return this.#address(path(id, "files", sha256)).href;
  }

  answerQuestions(id, body) {
    return this.#send("POST", path(id, "respond"), body);
  }

  declineQuestions(id, body = {}) {
    return this.#send("POST", path(id, "decline"), body);
  }

  cancelTurn(id, body = {}) {
    return this.#send("POST", path(id, "cancel"), body);
  }

  approveCall(id, body) {
    return this.#send("POST", path(id, "approve"), body);
  }

  resolveCall(id, body) {
    return this.#send("POST", path(id, "resolve"), body);
  }

  editMessage(id, body) {
    return this.#send("POST", path(id, "edit"), body);
  }

  regenerateTurn(id, body = {}) {
    return this.#send("POST", path(id, "regenerate"), body);
  }

  rewindConversation(id, body) {
    return this.#send("POST", path(id, "rewind"), body);
  }

  listBranches(id) {
    return this.#send("GET", path(id, "branches"));
  }

  switchBranch(id, body) {
    return this.#send("POST", path(id, "switch"), body);
  }

  retryTurn(id, body = {}) {
    return this.#send("POST", path(id, "retry"), body);
  }

  withdrawMessage(id, body) {
    return this.#send("POST", path(id, "withdraw"), body);
  }

  // --- reading

  listTurns(id) {
    return this.#send("GET", path(id, "turns"));
  }

  getUsage(id) {
    return this.#send("GET", path(id, "usage"));
  }

  listChildren(id) {
    return this.#send("GET", path(id, "children"));
  }

  getOutbox(id) {
    return this.#send("GET", path(id, "outbox"));
  }

  replayConversation(id) {
    return this.#send("GET", path(id, "replay"));
  }

  getLog(id, query = {}) {
    return this.#send("GET", withQuery(path(id, "log"), query));
  }

  getModelRequest(id, seq) {
    return this.#send("GET", path(id, "log", seq, "request"));
  }

  getMachine() {
    return this.#send("GET", "machine");
  }

  listTools() {
    return this.#send("GET", "tools");
  }

  listPermissions() {
    return this.#send("GET", "permissions");
  }

  listModels() {
    return this.#send("GET", "models");
  }

  renderMarkdown(texts) {
    return this.#send("POST", "markdown", { texts });
  }

  // --- the session of a browser, which stands for a token

  async openSession(token) {
    await this.#send("POST", "session", { token }, { mayBeUnknown: true });
    this.#sessions += 1;
  }

  // --- streams

  /** Follow a conversation. `onUpdate` gets each update once, in order, first a snapshot. Returns a `Stream`, which the
   * caller has to close; see there for `onState`. */
  followConversation(id, { onUpdate, onState = () => {} }) {
    const probe = () => this.getConversation(id);
    return new Stream(this.#address(path(id, "events")), { event: null, probe, onUpdate, onState });
  }

  /** Follow all conversations, as `followConversation` does one. Each connection begins with a snapshot of the tree. */
  followConversations({ onUpdate, onState = () => {} }) {
    const probe = () => this.listConversations({ limit: 1 });
    return new Stream(this.#address("events"), { event: "tree", probe, onUpdate, onState });
  }

  // --- requests

  #address(relative) {
    return new URL(relative, this.base);
  }

  async #send(method, relative, body, { mayBeUnknown = false } = {}) {
    const options = { method, headers: { Accept: "application/json" }, credentials: "same-origin", cache: "no-store" };
    if (body !== undefined) {
      options.body = JSON.stringify(body);
      options.headers["Content-Type"] = "application/json";
    }
    return this.#answerTo(() => fetch(this.#address(relative), options), mayBeUnknown);
  }

  /** Return the answer to a request that `ask` sends, or throw the `Problem` with it. */
  async #answerTo(ask, mayBeUnknown = false) {
    const session = this.#sessions;
    const response = await this.#reach(ask);
    if (response.ok) this.onReached(true);
    if (response.ok) return response.status === 204 ? null : parseExactly(await response.text());
    const problem = await problemOf(response);
    this.onReached(problem.code !== UNREACHABLE);
    const isOutdated = session !== this.#sessions; // a session was opened since the request was sent
    if (problem.status === 401 && !mayBeUnknown && !isOutdated) this.onUnauthorized(problem);
    throw problem;
  }

  async #reach(ask) {
    try {
      return await ask();
    } catch {
      this.onReached(false);
      throw new Problem({ code: UNREACHABLE, detail: NOT_REACHED });
    }
  }
}

/** Send a file, and return the response. `fetch` tells nothing of the progress. */
function upload(url, file, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", url);
    request.setRequestHeader("Accept", "application/json");
    // The bytes say what a file is. Only between texts that look alike its type decides, which browsers guess by the name.
    request.setRequestHeader("Content-Type", file.type.startsWith("text/") ? file.type : "application/octet-stream");
    request.upload.addEventListener("progress", ({ loaded, total }) => onProgress(total ? loaded / total : 0));
    request.addEventListener("load", () => resolve(new Response(request.responseText, { status: request.status })));
    request.addEventListener("error", () => reject(new TypeError("The file was not sent.")));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/** Return the path of a conversation. The address of the page gives ids that anybody may have written: a browser would
 * resolve dots, so that such an id would lead out of the conversations. Raises Problem. */
function path(id, ...rest) {
  const parts = id.split("/"); // the id of a sub-agent has slashes
  if (parts.some((part) => LEADS_AWAY.has(part))) throw new Problem({ status: 404, code: "unknown_conversation", detail: "There is no such conversation." });
  return ["conversations", ...parts, ...rest].map(encodeURIComponent).join("/");
}

const LEADS_AWAY = new Set(["", ".", ".."]);

function withQuery(relative, query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${relative}?${new URLSearchParams(given)}` : relative;
}

async function problemOf(response) {
  try {
    return new Problem({ ...(await response.json()), status: response.status });
  } catch {
    const { status } = response;
    if (OF_GATEWAYS.has(status)) return new Problem({ status, code: UNREACHABLE, detail: NOT_REACHED });
    return new Problem({ status, title: `The server answered ${status}.` });
  }
}

const UNREACHABLE = "unreachable";
const NOT_REACHED = "The server cannot be reached.";

/** What a proxy answers, in words of its own, for a server that is gone. */
const OF_GATEWAYS = new Set([502, 503, 504]);
