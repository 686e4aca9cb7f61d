// The cards of the classes.
const by = (id) => document.getElementById(id);

export class Cards {
  // `actions` has teach(label), release(label), files(label), rename(label), remove(label) and drop(label, transfer).
  constructor(actions) {
    this.actions = actions;
    this.extra = []; // classes without samples, known to this page only
    this.shown = new Map();
  }

  labels() {
    return [...this.shown.keys()];
  }

  withKey(key) {
    return [...keysOf(this.labels())].find(([, own]) => own === key)?.[0];
  }

  add(label) {
    if (!this.extra.includes(label)) this.extra.push(label);
  }

  drop(label) {
    this.extra = this.extra.filter((each) => each !== label);
  }

  show(classes) {
    const known = new Set(classes.map((each) => each.label));
    this.extra = this.extra.filter((label) => !known.has(label));
    const all = [...classes, ...this.extra.map((label) => ({ label, samples: 0, pictures: [] }))];
    for (const [label, card] of this.shown) {
      if (!all.some((each) => each.label === label)) {
        card.remove();
        this.shown.delete(label);
      }
    }
    const keys = keysOf(all.map((each) => each.label));
    const order = new Map();
    for (const [position, each] of all.entries()) {
      const card = this.shown.get(each.label) ?? this.#made(each.label);
      fill(card, each, keys.get(each.label));
      const list = by("cards");
      if (list.children[position] !== card) list.insertBefore(card, list.children[position] ?? null);
      order.set(each.label, card);
    }
    this.shown = order;
  }

  #made(label) {
    const card = by("card").content.firstElementChild.cloneNode(true);
    card.dataset.label = label;
    card.querySelector("h3").textContent = label;
    const teach = card.querySelector(".teach");
    teach.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      teach.setPointerCapture(event.pointerId);
      this.actions.teach(label);
    });
    for (const name of ["pointerup", "pointercancel", "blur"]) teach.addEventListener(name, () => this.actions.release(label));
    teach.addEventListener("keydown", (event) => {
      if (![" ", "Enter"].includes(event.key)) return;
      event.preventDefault();
      if (!event.repeat) this.actions.teach(label);
    });
    teach.addEventListener("keyup", () => this.actions.release(label));
    teach.addEventListener("click", (event) => {
      if (event.detail === 0 && !event.pointerType) this.actions.once(label); // by a screen reader
    });
    card.querySelector(".add").addEventListener("click", () => this.actions.files(label));
    card.querySelector(".rename").addEventListener("click", () => this.actions.rename(label));
    card.querySelector(".delete").addEventListener("click", () => this.actions.remove(label));
    droppable(card, (transfer) => this.actions.drop(label, transfer));
    return card;
  }

  recording(label) {
    for (const [each, card] of this.shown) card.querySelector(".teach").classList.toggle("recording", each === label);
  }

  focus(label) {
    const button = this.shown.get(label)?.querySelector(".teach");
    button?.scrollIntoView({ block: "center" });
    button?.focus();
  }
}

// The key of each class: its own name if that is a digit, or else its position.
export function keysOf(labels) {
  const digits = [..."123456789", "0"];
  const keys = new Map(labels.filter((label) => digits.includes(label)).map((label) => [label, label]));
  const free = digits.filter((digit) => !keys.has(digit));
  for (const label of labels) if (!keys.has(label) && free.length) keys.set(label, free.shift());
  return keys;
}

function fill(card, { label, samples, pictures }, key) {
  const few = samples === 1 ? "1 sample" : `${samples.toLocaleString("en")} samples`;
  card.querySelector(".count").textContent = few;
  const teach = card.querySelector(".teach");
  const spoken = Object.assign(document.createElement("span"), { className: "sr", textContent: ` ${label}: press, or hold to record` });
  teach.replaceChildren("Teach", spoken);
  if (key) {
    teach.append(Object.assign(document.createElement("kbd"), { textContent: key, ariaHidden: "true" }));
    teach.setAttribute("aria-keyshortcuts", key);
  }
  for (const [kind, verb] of [["add", "Add files to"], ["rename", "Rename"], ["delete", "Delete"]]) {
    card.querySelector(`.${kind}`).setAttribute("aria-label", `${verb} ${label}`);
  }
  const box = card.querySelector(".pictures");
  const content = pictures.join();
  if (box.dataset.content === content && content) return;
  box.dataset.content = content;
  box.replaceChildren(
    ...pictures.map((url, number) => Object.assign(new Image(), { src: url, alt: `Sample ${number + 1} of ${label}` })),
  );
  if (!pictures.length) {
    const text = samples ? "No pictures to show" : "Teach a few pictures";
    box.append(Object.assign(document.createElement("span"), { className: "none", textContent: text }));
  }
}

export function droppable(element, accept) {
  element.addEventListener("dragover", (event) => {
    event.preventDefault();
    event.stopPropagation();
    element.classList.add("over");
  });
  element.addEventListener("dragleave", () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    element.classList.remove("over");
    accept(event.dataTransfer);
  });
}
