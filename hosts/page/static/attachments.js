// The files of the message that is being written: what was uploaded, what is under way, and what was refused.
//
// A file is uploaded as soon as it is chosen, if there is a conversation; else when there is one. Each message that is
// written has its own, under the key of its draft. What was uploaded is kept with the draft, over reloads too.

import { Draft } from "./drafts.js";
import { el, icon, iconButton } from "./dom.js";
import { bytes } from "./words.js";

/** How large a preview is drawn, in pixels of the screen. */
const PREVIEW = 80;

export class Attachments {
  element = el("ul", { className: "attachments", "aria-label": "Attached files", hidden: true });
  #client;
  #onChange;
  #conversationId = null;
  #key = "";
  #lists = new Map();

  /** `onChange` is called whenever a file was added, removed, uploaded or refused. */
  constructor(client, onChange) {
    this.#client = client;
    this.#onChange = onChange;
  }

  /** Show those of the draft `key`, and upload what could not be uploaded without a conversation. */
  show(key, conversationId) {
    this.#key = key;
    this.#conversationId = conversationId;
    this.#render();
    this.#upload();
  }

  /** Whether there are any. */
  get isEmpty() {
    return this.#shown.length === 0;
  }

  /** Whether some are still to be uploaded. */
  get isUploading() {
    return this.#shown.some((one) => !one.kept && !one.problem);
  }

  /** Whether some were refused, or could not be uploaded. */
  get isRefused() {
    return this.#shown.some((one) => one.problem);
  }

  /** What a message names them by: {sha256 or url, name, media_type, size}. */
  get kept() {
    return this.#shown.map((one) => one.kept);
  }

  /** Attach files that a person has chosen, dropped or pasted. */
  add(files) {
    this.#shown.push(...[...files].map((file) => this.#attachment({ name: file.name, size: file.size, file })));
    this.#noteChange(this.#key);
    this.#upload();
  }

  /** Attach to the draft `key`, before all others, files that the server has. */
  putBack(key, files) {
    if (!files.length) return;
    this.#listOf(key).unshift(...files.map((kept) => this.#keptOne(kept)));
    this.#noteChange(key);
  }

  /** Forget those of a draft. */
  clear(key = this.#key) {
    for (const one of this.#listOf(key).splice(0)) one.stop.abort();
    this.#noteChange(key);
  }

  /** Give all of them to the draft `key`. */
  moveTo(key) {
    this.#listOf(key).push(...this.#shown.splice(0));
  }

  get #shown() {
    return this.#listOf(this.#key);
  }

  #listOf(key) {
    if (!this.#lists.has(key)) this.#lists.set(key, (draftOf(key).read() ?? []).map((kept) => this.#keptOne(kept)));
    return this.#lists.get(key);
  }

  #noteChange(key) {
    const kept = this.#listOf(key).map((one) => one.kept).filter(Boolean);
    if (kept.length) draftOf(key).write(kept);
    else draftOf(key).discard();
    if (key === this.#key) this.#render();
    this.#onChange();
  }

  // --- uploading

  #upload() {
    if (this.#conversationId === null) return;
    for (const one of this.#shown) {
      if (one.isNew) this.#uploadOne(this.#key, this.#conversationId, one);
    }
  }

  async #uploadOne(key, conversationId, one) {
    one.isNew = false;
    const onProgress = (part) => one.element.showProgress(part);
    try {
      one.kept = await this.#client.uploadFile(conversationId, one.file, { onProgress, signal: one.stop.signal });
    } catch (problem) {
      one.problem = problem;
    }
    one.element.showState(one);
    this.#noteChange(key);
  }

  #tryAgain(one) {
    one.problem = null;
    one.isNew = true;
    one.element.showState(one);
    this.#noteChange(this.#key);
    this.#upload();
  }

  #remove(one) {
    one.stop.abort();
    this.#shown.splice(this.#shown.indexOf(one), 1);
    this.#noteChange(this.#key);
    (this.element.querySelector("button") ?? this.element.closest("form").querySelector("textarea")).focus();
  }

  // --- showing them

  #keptOne(kept) {
    return this.#attachment({ name: kept.name || kept.url || "File", size: kept.size, kept });
  }

  #attachment({ name, size, file = null, kept = null }) {
    const one = { name, size, file, kept, problem: null, isNew: file !== null, stop: new AbortController() };
    one.element = new AttachmentElement(one, () => this.#remove(one), () => this.#tryAgain(one));
    return one;
  }

  #render() {
    const rows = this.#shown.map((one) => one.element.row);
    this.element.hidden = !rows.length;
    if (rows.length !== this.element.children.length || rows.some((row, index) => row !== this.element.children[index])) {
      this.element.replaceChildren(...rows);
    }
  }
}

/** How one of them looks. */
class AttachmentElement {
  #progress;
  #size;
  #problem = el("span", { className: "attachment-problem", role: "alert" });
  #again;

  constructor(one, onRemove, onAgain) {
    const { name } = one;
    this.#progress = el("progress", { max: 1, value: 0, "aria-label": `Uploading ${name}` });
    this.#size = el("span", { className: "file-size" }, one.size ? bytes(one.size) : "");
    this.#again = el("button", { type: "button", className: "link-button", onclick: onAgain }, "Try again");
    this.row = el(
      "li", { className: "attachment" }, pictureOf(one.file) ?? icon("file"),
      el("span", { className: "file-name" }, name), this.#size, this.#progress, this.#problem, this.#again,
      iconButton("close", `Remove ${name}`, onRemove),
    );
    this.showState(one);
  }

  showProgress(part) {
    this.#progress.value = part;
  }

  showState({ kept, problem }) {
    this.row.classList.toggle("refused", problem !== null);
    this.#progress.hidden = kept !== null || problem !== null;
    this.#size.hidden = problem !== null;
    this.#problem.textContent = problem?.message ?? "";
    this.#again.hidden = problem === null || (problem.status >= 400 && problem.status < 500 && problem.status !== 401);
  }
}

/** Return a small picture of an image, or null. It is drawn, since the page loads no image but from its server. */
function pictureOf(file) {
  if (!file?.type.startsWith("image/")) return null;
  const canvas = el("canvas", { className: "attachment-picture", width: PREVIEW, height: PREVIEW, "aria-hidden": "true" });
  createImageBitmap(file).then((image) => {
    const side = Math.min(image.width, image.height);
    const [x, y] = [(image.width - side) / 2, (image.height - side) / 2];
    canvas.getContext("2d").drawImage(image, x, y, side, side, 0, 0, PREVIEW, PREVIEW);
    image.close();
  }, () => canvas.replaceWith(icon("file"))); // the server says what is wrong with it
  return canvas;
}

function draftOf(key) {
  return new Draft(`files:${key}`);
}
