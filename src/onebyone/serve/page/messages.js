// What the page says: notes, problems and questions.
import { Refused } from "./api.js";

const by = (id) => document.getElementById(id);

let hiding;
export function say(text) {
  by("problem").textContent = "";
  by("toast").textContent = text;
  clearTimeout(hiding);
  hiding = setTimeout(() => { by("toast").textContent = ""; }, 4000);
}

export function fail(error) {
  by("problem").textContent = error instanceof Refused ? sentence(error.message) : "Something went wrong on this page.";
  clearTimeout(hiding);
  hiding = setTimeout(() => { by("problem").textContent = ""; }, 8000);
  if (!(error instanceof Refused)) console.error(error);
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith(".") || text.endsWith("?") ? "" : ".");
export const many = (number, word, words = `${word}s`) => (number === 1 ? `1 ${word}` : `${number} ${words}`);

export function attempt(action) {
  return async (...given) => {
    try {
      return await action(...given);
    } catch (error) {
      fail(error);
      return undefined;
    }
  };
}

export function ask(title, label, value, yes) {
  // A dialog with one field, or none. Resolves to the value, or null.
  const dialog = by("ask");
  by("ask-title").textContent = title;
  by("ask-label").textContent = label;
  by("ask-label").hidden = by("ask-value").hidden = value === null;
  by("ask-value").value = value ?? "";
  by("ask-yes").textContent = yes;
  dialog.returnValue = "";
  dialog.showModal();
  (value === null ? by("ask-yes") : by("ask-value")).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" ? by("ask-value").value.trim() : null), { once: true });
  });
}
by("ask-value").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return; // the first button of a form would be Cancel
  event.preventDefault();
  by("ask").close("yes");
});
