// How the files of a message, or of a result, look: images as they are, all others as links with their size.
//
// What is stored is read from this server. What stands elsewhere on the web is only linked to, since loading it would
// tell another server who reads this.

import { el, icon } from "./dom.js";
import { bytes } from "./words.js";

/** The images that browsers are shown. */
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** Return the elements that show files. `addressOf(sha256)` is where the bytes of one are; without it they cannot be read
 * yet, and are only named. */
export function fileElements(files = [], addressOf = null) {
  if (!files.length) return null;
  return el("ul", { className: "files", "aria-label": "Files" }, files.map((file, index) => el("li", {}, fileElement(file, index, addressOf))));
}

function fileElement(file, index, addressOf) {
  const { sha256, url = "", media_type: mediaType, size } = file;
  const name = file.name || `File ${index + 1}`;
  const href = sha256 ? addressOf?.(sha256) : url.startsWith("https://") ? url : null;
  if (sha256 && href && IMAGES.has(mediaType)) return imageLink(href, name);
  const content = [icon("file"), el("span", { className: "file-name" }, name), size ? el("span", { className: "file-size" }, bytes(size)) : null];
  if (!href) return el("span", { className: "file" }, content);
  const opens = sha256 ? { download: file.name || "" } : { target: "_blank", rel: "noopener noreferrer" };
  return el("a", { className: "file", href, ...opens }, content);
}

function imageLink(href, name) {
  const image = el("img", { className: "image", src: href, alt: name });
  return el("a", { className: "image-link", href, target: "_blank", rel: "noopener noreferrer", title: name }, image);
}
