// Where pictures come from: the camera, the drawing pad, or files.
import { Pad } from "./pad.js";

const by = (id) => document.getElementById(id);
const HINTS = {
  camera: "Hold a button of a class to record pictures.",
  draw: "Draw, then press the button of a class.",
  files: "Drop pictures here, on a class, or a folder per class.",
};
const KEY = "onebyone-source";

export class Source {
  constructor(changed) {
    this.changed = changed;
    this.side = 64;
    this.kind = "draw";
    this.stream = null;
    this.file = null;
    this.pad = new Pad(by("pad"), () => this.kind === "draw" && changed());
    for (const radio of document.querySelectorAll("input[name=source]")) {
      radio.addEventListener("change", () => this.show(radio.value));
    }
    by("clear").addEventListener("click", () => this.clear());
    by("choose").addEventListener("click", () => by("files").click());
    by("start").addEventListener("click", () => (this.kind === "camera" ? this.startCamera() : by("files").click()));
  }

  // Begin with what was used last, or with the camera if there is one.
  async begin(preferred) {
    const devices = (await navigator.mediaDevices?.enumerateDevices?.().catch(() => [])) ?? [];
    const camera = devices.some((each) => each.kind === "videoinput");
    const last = localStorage.getItem(KEY);
    this.show(last ?? preferred ?? (camera ? "camera" : "draw"), false);
  }

  show(kind, remember = true) {
    this.kind = kind in HINTS ? kind : "draw";
    if (remember) localStorage.setItem(KEY, this.kind);
    document.querySelector(`input[name=source][value=${this.kind}]`).checked = true;
    if (this.kind !== "camera") this.stopCamera();
    this.#paint();
    this.changed();
  }

  #paint() {
    const live = this.stream !== null;
    by("pad").hidden = this.kind !== "draw";
    by("video").hidden = this.kind !== "camera" || !live;
    by("picture").hidden = this.kind !== "files" || !this.file;
    by("clear").hidden = this.kind === "camera";
    by("choose").hidden = this.kind !== "files";
    by("hint").textContent = HINTS[this.kind];
    const waits = (this.kind === "camera" && !live) || (this.kind === "files" && !this.file);
    by("empty").hidden = !waits;
    by("start").textContent = this.kind === "camera" ? "Start the camera" : "Choose pictures";
    by("empty-text").textContent =
      this.kind === "camera" ? "Pictures go to your own server, and nowhere else." : "Drop a picture, or paste one.";
  }

  async startCamera() {
    if (!navigator.mediaDevices?.getUserMedia) {
      by("empty-text").textContent = "The browser gives pages the camera only over https or on this machine. Draw, or use files.";
      return;
    }
    try {
      const video = { facingMode: "environment", width: { ideal: 640 }, height: { ideal: 480 } };
      this.stream = await navigator.mediaDevices.getUserMedia({ video, audio: false });
    } catch (error) {
      by("empty-text").textContent =
        error.name === "NotAllowedError" ? "The camera was not allowed. Draw instead, or use files." : "There is no camera here. Draw, or use files.";
      return;
    }
    const track = this.stream.getVideoTracks()[0];
    track.addEventListener("ended", () => this.stopCamera());
    by("video").classList.toggle("mirror", track.getSettings().facingMode !== "environment");
    by("video").srcObject = this.stream;
    await by("video").play();
    this.#paint();
    this.changed();
  }

  stopCamera() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.stream = null;
    by("video").srcObject = null;
    this.#paint();
  }

  showFile(file) {
    this.file = file;
    URL.revokeObjectURL(by("picture").src);
    by("picture").src = URL.createObjectURL(file);
    this.show("files");
  }

  clear() {
    if (this.kind === "draw") this.pad.clear();
    this.file = null;
    this.#paint();
    this.changed();
  }

  get ready() {
    return { camera: this.stream !== null && by("video").videoWidth > 0, draw: !this.pad.empty, files: this.file !== null }[this.kind];
  }

  // The present picture as a blob, or null if there is none.
  async frame() {
    if (!this.ready) return null;
    if (this.kind === "files") return this.file;
    return asBlob(this.kind === "draw" ? this.pad.normalised(Math.max(this.side, 96)) : this.#square());
  }

  #square() {
    const video = by("video");
    const side = Math.min(video.videoWidth, video.videoHeight);
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = this.side;
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    const left = (video.videoWidth - side) / 2;
    const top = (video.videoHeight - side) / 2;
    context.drawImage(video, left, top, side, side, 0, 0, this.side, this.side);
    return canvas;
  }
}

const asBlob = (canvas) => new Promise((resolve) => canvas.toBlob(resolve, canvas.width > 100 ? "image/jpeg" : "image/png", 0.92));

// The files in a drop, by class: files of a folder belong to a class of its name, others to the class "".
export async function dropped(transfer) {
  const found = new Map();
  const add = (name, file) => {
    if (!file.type.startsWith("image/")) return;
    found.set(name, [...(found.get(name) ?? []), file]);
  };
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) for (const file of transfer.files) add("", file);
  const walk = async (entry, name) => {
    if (entry.isFile) add(name, await new Promise((resolve, fail) => entry.file(resolve, fail)));
    else {
      const reader = entry.createReader();
      for (;;) {
        const part = await new Promise((resolve, fail) => reader.readEntries(resolve, fail));
        if (!part.length) break;
        for (const each of part) await walk(each, entry.name);
      }
    }
  };
  for (const entry of entries) await walk(entry, "");
  return found;
}
