"use strict";
const all = (query, root = document) => [...root.querySelectorAll(query)];
const phone = matchMedia("(max-width: 700px)");
const sections = all("details.section");
const fold = () => { for (const section of sections) section.open = !phone.matches; };
const unfold = () => {
  const target = sections.find((section) => `#${section.id}` === location.hash);
  if (target) { target.open = true; target.scrollIntoView(); }
};
fold();
unfold();
phone.addEventListener("change", fold);
addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => { for (const section of sections) section.open = true; });

const pressed = (button) => button.getAttribute("aria-pressed") === "true";
for (const button of all(".chips button")) {
  button.addEventListener("click", () => {
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
    const figure = button.closest("figure");
    const chosen = Object.fromEntries(
      all(".chips", figure).map((chips) => [chips.dataset.choice, all("button", chips).find(pressed).dataset.value]));
    for (const panels of all(".panels", figure)) {
      panels.hidden = Object.entries(chosen).some(([name, value]) => panels.dataset[name] !== value);
    }
  });
}
// Methods chosen in the legend are in colour in every figure; if none is chosen, each figure has its own four.
const legend = all(".legend button");
for (const button of legend) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(!pressed(button)));
    const chosen = new Set(legend.filter(pressed).map((one) => one.dataset.method));
    for (const line of all(".m")) {
      const on = chosen.size ? chosen.has(line.dataset.method) : "on" in line.dataset;
      line.classList.toggle("on", on);
      if (on) line.parentElement.append(line);  // on top of the others
    }
  });
}
