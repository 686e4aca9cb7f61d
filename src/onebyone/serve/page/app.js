// The page: teach, ask, undo.
import * as api from "./api.js";
import { Cards, droppable } from "./cards.js";
import { ask, attempt, fail, many, say } from "./messages.js";
import { showAnswer, showCurve, showReport } from "./progress.js";
import { dropped, Source } from "./source.js";
import { applyTheme, switchTheme } from "./theme.js";

const by = (id) => document.getElementById(id);
const EVERY = 120; // ms between the pictures of a recording
const MOST = 24; // pictures of one recording
const PART = 32; // files per request
const MISSING = { camera: "Start the camera", draw: "Draw something", files: "Choose a picture" };
const wait = (time) => new Promise((resolve) => setTimeout(resolve, time));

let sequence = -1;
let reported = -1;
let counts = {};
let recording = null;
let changed = true;
let answered = -1; // last operation that the shown answer takes into account
let solved = -1; // last operation that the next answer would
let answers = false; // whether there is anything to answer from

applyTheme();
const source = new Source(() => { changed = true; });
const cards = new Cards({ teach: record, release, once, files: addFiles, rename, remove, drop: dropOn });

// What the server knows

async function refresh() {
  const found = await api.get("classes?pictures=1");
  ({ sequence, solved, answers } = found);
  counts = Object.fromEntries(found.classes.map((each) => [each.label, each.samples]));
  cards.show(found.classes);
  const samples = Object.values(counts).reduce((sum, each) => sum + each, 0);
  by("total").textContent = samples ? `${many(found.classes.length, "class", "classes")}, ${many(samples, "sample")}` : "";
  by("welcome").hidden = samples > 0 || found.shape.length === 1;
  by("vectors").hidden = found.shape.length > 1;
  by("stage").hidden = found.shape.length === 1;
  by("vectors").textContent = `This classifier learns vectors of ${found.shape[0]} numbers. Teach it through the API.`;
  source.side = Math.max(64, Math.min(256, found.shape[0]));
  by("none-yet").hidden = cards.labels().length > 0;
  by("undo").disabled = !found.undo;
  by("undo").setAttribute("aria-label", found.undo ? `Undo: forget ${many(found.undo.samples, "sample")} of ${found.undo.labels.join(", ")}` : "Undo");
  showCurve(found.outcomes, found.predicted);
  changed = true;
}

async function followReport() {
  const found = await api.get("report");
  reported = found.sequence;
  showReport(found, counts);
}

async function follow() {
  // Other pages and programs may teach too.
  for (;;) {
    await wait(solved < sequence ? 150 : 1500);
    if (document.hidden) continue;
    try {
      const found = await api.get("classes");
      if (found.sequence !== sequence) await refresh();
      if (found.solved !== answered) changed = true;
      ({ solved, answers } = found);
      if (!found.report) showReport(null, counts);
      else if (solved !== reported && solved === sequence) await followReport();
    } catch (error) {
      fail(error);
      await wait(3000);
    }
  }
}

// Answers

async function answer() {
  const times = [];
  for (;;) {
    const live = source.kind === "camera" && source.ready;
    if ((!changed && !live) || document.hidden || recording?.sending) {
      await wait(60);
      continue;
    }
    changed = false;
    const started = performance.now();
    try {
      const blob = await source.frame();
      const found = blob && answers ? await api.predict(blob) : null;
      showAnswer(found?.predictions[0], blob ? "Teach it first" : MISSING[source.kind]);
      answered = found?.sequence ?? answered;
    } catch (error) {
      showAnswer(null);
      if (![409, 503].includes(error.status)) fail(error);
    }
    times.push(performance.now());
    while (times[0] < performance.now() - 2000) times.shift();
    by("rate").textContent = live && times.length > 2 ? `${(times.length / 2).toFixed(0)} per second` : "";
    await wait(Math.max(live ? 50 : 90, 66 - (performance.now() - started)));
  }
}

// Teaching

async function teach(blobs, label) {
  if (!blobs.length) return;
  for (let start = 0; start < blobs.length; start += PART) await api.learn(blobs.slice(start, start + PART), label);
  cards.drop(label);
  await refresh();
  say(`Taught ${many(blobs.length, "sample")} of ${label}.`);
}

async function record(label) {
  if (recording) return;
  if (!source.ready) {
    say(`${MISSING[source.kind]} first.`);
    return;
  }
  const mine = { label, held: true, sending: false };
  recording = mine;
  cards.recording(label);
  try {
    const blobs = [await source.frame()];
    while (mine.held && source.kind === "camera" && blobs.length < MOST) {
      await wait(EVERY);
      if (mine.held) blobs.push(await source.frame());
    }
    mine.sending = true;
    cards.recording(null);
    await teach(blobs.filter(Boolean), label);
    if (source.kind !== "camera") source.clear();
  } catch (error) {
    fail(error);
  } finally {
    recording = null;
    cards.recording(null);
  }
}

// Another button that loses the focus does not end a recording.
function release(label) {
  if (recording && recording.label === label) recording.held = false;
}

async function once(label) {
  const done = record(label);
  release(label);
  await done;
}

let target = "";
function addFiles(label) {
  target = label;
  by("files").click();
}

by("files").addEventListener("change", attempt(async () => {
  const chosen = [...by("files").files];
  const label = target;
  by("files").value = target = "";
  if (label) await teach(chosen, label);
  else if (chosen.length) source.showFile(chosen[0]);
}));

async function dropOn(label, transfer) {
  await attempt(async () => {
    const found = await dropped(transfer);
    const all = [...found.values()].flat();
    if (!all.length) say("There are no pictures among these files.");
    await teach(all, label);
  })();
}

droppable(by("view"), attempt(async (transfer) => {
  const found = await dropped(transfer);
  if (!found.size) say("There are no pictures among these files.");
  for (const [label, files] of found) {
    if (label) await teach(files, label); // a folder is a class
    else source.showFile(files[0]);
  }
}));
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());

document.addEventListener("paste", (event) => {
  const file = [...event.clipboardData.files].find((each) => each.type.startsWith("image/"));
  if (file) source.showFile(file);
});

by("try").addEventListener("click", attempt(async () => {
  by("try").disabled = true;
  by("try").textContent = "Teaching…";
  try {
    const { classes } = await api.get("samples");
    const half = (number) => classes.map(({ label, pictures }) => [label, pictures.filter((_, each) => each % 2 === number)]);
    for (const [label, pictures] of half(0)) await api.learn(pictures.map(decoded), label);
    source.show("draw");
    await refresh();
    for (let times = 0; times < 40 && solved < sequence; times++) { // so that it can be right before it is told
      await wait(100);
      ({ solved } = await api.get("classes"));
    }
    for (const [label, pictures] of half(1)) await api.learn(pictures.map(decoded), label);
    await refresh();
    say(`It knows ${classes.map((each) => each.label).join(", ")} now. Draw one of them.`);
  } finally {
    by("try").disabled = false;
    by("try").textContent = "Try the built-in samples";
  }
}));

function decoded(url) {
  const bytes = Uint8Array.from(atob(url.split(",")[1]), (each) => each.charCodeAt(0));
  return new Blob([bytes], { type: "image/png" });
}

// Classes and models

by("new").addEventListener("submit", attempt(async (event) => {
  event.preventDefault();
  const label = by("name").value.trim();
  if (!label) return;
  by("name").value = "";
  cards.add(label);
  await refresh();
  cards.focus(label);
}));

async function rename(label) {
  const found = await ask(`Rename “${label}”`, "New name. With the name of another class, both become one.", label, "Rename");
  if (!found || found === label) return;
  await attempt(async () => {
    if (label in counts) await api.post("rename", { label, new_label: found });
    else cards.drop(label), cards.add(found);
    await refresh();
    say(`Renamed to ${found}.`);
  })();
}

async function remove(label) {
  if (counts[label]) {
    const sure = await ask(`Delete “${label}” and its ${many(counts[label], "sample")}?`, "", null, "Delete");
    if (sure === null) return;
  }
  await attempt(async () => {
    if (label in counts) await api.post("forget-class", { label });
    cards.drop(label);
    await refresh();
    say(`Deleted ${label}.`);
    by("classes-title").focus();
  })();
}

const undo = attempt(async () => {
  const found = await api.post("undo", {});
  await refresh();
  say(`Forgot ${many(found.forgotten, "sample")} of ${found.labels.join(", ")}.`);
});
by("undo").addEventListener("click", undo);
by("theme").addEventListener("click", switchTheme);
by("download").addEventListener("click", attempt(api.download));
by("upload").addEventListener("click", () => by("model-file").click());
by("model-file").addEventListener("change", attempt(async () => {
  const file = by("model-file").files[0];
  by("model-file").value = "";
  if (!file) return;
  const found = await api.merge(file);
  await refresh();
  say(`Added ${many(found.merged, "sample")} of ${found.classes.join(", ")}.`);
}));
by("advice-go").addEventListener("click", () => cards.focus(by("advice-go").dataset.label));
for (const item of document.querySelectorAll(".sheet > *")) {
  item.addEventListener("click", () => { document.querySelector(".menu").open = false; });
}

// Keyboard

const typing = () => document.querySelector("dialog[open]") || ["INPUT", "TEXTAREA"].includes(document.activeElement?.tagName);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelector(".menu").open = false;
  if ((typing() && document.activeElement?.type !== "radio") || event.altKey) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
    event.preventDefault();
    if (!by("undo").disabled) undo();
  } else if (!event.ctrlKey && !event.metaKey && /^[0-9]$/.test(event.key) && !event.repeat) {
    const label = cards.withKey(event.key);
    if (label !== undefined) record(label);
  }
});
document.addEventListener("keyup", (event) => {
  if (/^[0-9]$/.test(event.key)) release(cards.withKey(event.key));
});

// Start

attempt(async () => {
  await refresh();
  const { kind, classes } = await api.get("samples");
  const digits = kind === "digits";
  by("welcome-text").textContent = `Teach it ${classes.length} ${digits ? "digits" : "shapes"} with one press, then draw one yourself. Nothing leaves this server.`;
  if (digits) source.pad.style = { fill: 0.84, line: 0.14 };
  await source.begin(digits ? "draw" : null);
  document.documentElement.dataset.ready = "yes";
  answer();
  follow();
})();
