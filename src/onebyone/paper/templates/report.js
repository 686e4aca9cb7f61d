"use strict";
const sections = JSON.parse(document.getElementById("sections").textContent);
const hidden = new Set();
const font = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 12, color: "#22252b" };
const common = {
  font, showlegend: false, hovermode: "closest", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  margin: { l: 52, r: 14, t: 38, b: 46 }, hoverlabel: { bgcolor: "#fff", font },
};
const options = { responsive: true, displaylogo: false, displayModeBar: false };

function chosen(figure, name) {
  const pressed = figure.querySelector(`[data-choice="${name}"] [aria-pressed="true"]`);
  return pressed ? pressed.dataset.value : "";
}

function draw(figure) {
  const { section, dataset } = figure.dataset;
  const charts = sections[section][dataset][chosen(figure, "protocol")][chosen(figure, "memory")];
  const panels = figure.querySelector(".panels");
  // All panels exist before the first is drawn: a chart takes the width that its panel has at that moment.
  while (panels.children.length < charts.length) panels.appendChild(document.createElement("div"));
  charts.forEach((chart, index) => {
    const panel = panels.children[index];
    const drawn = chart.data.filter((trace) => !hidden.has(trace.meta));
    const empty = chart.data.every((trace) => (trace.x || []).length === 0);
    panel.className = empty ? "panel empty" : "panel";
    panel.setAttribute("role", "figure");
    panel.setAttribute("aria-label", chart.layout.title.text);
    if (empty) {
      Plotly.purge(panel);
      panel.textContent = `${chart.layout.title.text}: not yet run`;
    } else {
      if (!panel.data) panel.textContent = "";
      Plotly.react(panel, drawn, { ...common, ...chart.layout }, options);
    }
    panel.dataset.drawn = empty ? "empty" : "yes";
  });
}

const figures = [...document.querySelectorAll("figure[data-section]")];
for (const button of document.querySelectorAll(".chips button")) {
  button.addEventListener("click", () => {
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
    draw(button.closest("figure"));
  });
}
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!shown));
    if (shown) hidden.add(button.dataset.method); else hidden.delete(button.dataset.method);
    figures.forEach(draw);
  });
}
figures.forEach(draw);
