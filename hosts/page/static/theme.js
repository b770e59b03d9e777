// Light and dark: as the system has it, until a person chooses.

import { preference, setPreference } from "./preferences.js";

const root = document.documentElement;

/** Show the page as this person chose it before. */
export function applyTheme() {
  const chosen = preference("theme");
  if (chosen) root.dataset.theme = chosen;
}

/** Change between light and dark, and remember it. */
export function changeTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
  setPreference("theme", root.dataset.theme);
}
