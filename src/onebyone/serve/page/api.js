// Requests to the server that this page came from.
const KEY = "onebyone-token";
let asking = null;

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

function askForToken() {
  // One dialog, however many requests were refused.
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    const field = document.getElementById("token");
    field.value = "";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, field.value.trim());
      asking = null;
      resolve();
    }, { once: true });
  });
  return asking;
}

export async function call(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let answer;
  try {
    answer = await fetch(`v1/${path}`, { ...options, headers });
  } catch {
    throw new Refused(0, "The server does not answer. Is it still running?");
  }
  if (answer.status === 401) {
    await askForToken();
    return call(path, options);
  }
  if (!answer.ok) {
    const found = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, found.error ?? `The server answered ${answer.status}.`);
  }
  return answer;
}

export const get = async (path) => (await call(path)).json();

export const post = async (path, content) =>
  (await call(path, { method: "POST", body: JSON.stringify(content), headers: { "Content-Type": "application/json" } })).json();

function form(blobs, label) {
  const made = new FormData();
  if (label !== undefined) made.append("label", label);
  for (const blob of blobs) made.append("image", blob, "image");
  return made;
}

export const learn = async (blobs, label) => (await call("learn", { method: "POST", body: form(blobs, label) })).json();

export const predict = async (blob) =>
  (await call("predict?top=6", { method: "POST", body: form([blob]) })).json();

export async function download() {
  const blob = await (await call("model")).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = "model.onebyone";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export const merge = async (file) =>
  (await call("merge", { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } })).json();
