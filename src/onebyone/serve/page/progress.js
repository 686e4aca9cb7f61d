// The live answer, the curve of right predictions, and which class needs pictures.
const by = (id) => document.getElementById(id);
const percent = (share) => (share > 0 && share < 0.005 ? "<1 %" : `${(100 * share).toFixed(0)} %`);
const WINDOW = 20; // predictions of which the curve shows the share

let spoken = "";
let due = 0;

export function showAnswer(prediction, otherwise = "Nothing yet") {
  const verdict = by("verdict");
  verdict.className = "verdict";
  if (!prediction) {
    verdict.classList.add("idle");
    verdict.textContent = otherwise;
    by("bars").replaceChildren();
    return;
  }
  const shares = Object.entries(prediction.probabilities).sort(([, one], [, two]) => two - one);
  const best = shares[0][1];
  verdict.textContent = prediction.unknown ? "None of these " : `${prediction.label} `;
  verdict.classList.toggle("unknown", prediction.unknown);
  const detail = prediction.unknown ? `most like ${prediction.nearest}` : percent(best);
  verdict.append(Object.assign(document.createElement("small"), { textContent: detail }));
  by("bars").classList.toggle("weak", prediction.unknown);
  const rows = shares.map(([label, share]) => bar(label, share, prediction.unknown));
  by("bars").replaceChildren(...rows);
  speak(prediction.unknown ? "None of these" : `${prediction.label}, ${percent(best)}`, prediction.label);
}

function bar(label, share, weak) {
  const row = document.createElement("li");
  row.className = weak ? "weak" : "";
  const make = (kind, text = "") => Object.assign(document.createElement("div"), { className: kind, textContent: text });
  const [track, fill] = [make("track"), make("fill")];
  fill.style.width = `${100 * share}%`;
  track.append(fill);
  row.append(make("label", label), make("share", percent(share)), track);
  return row;
}

function speak(text, label) {
  // Screen readers hear a new class, at most every other second.
  if (label === spoken || Date.now() < due) return;
  spoken = label;
  due = Date.now() + 2000;
  by("spoken").textContent = text;
}

export function showCurve(outcomes, predicted) {
  const recent = [...outcomes].slice(-WINDOW);
  if (!recent.length) {
    by("right").textContent = "–";
    by("right-text").textContent = "How often it is right before it is told appears here.";
    by("curve").setAttribute("hidden", "");
    return;
  }
  by("curve").removeAttribute("hidden");
  const share = recent.filter((each) => each === "1").length / recent.length;
  by("right").textContent = percent(share);
  by("right-text").textContent = `right before it was told, of the last ${recent.length} of ${predicted.toLocaleString("en")} samples`;
  const values = [];
  for (let end = 1; end <= outcomes.length; end++) {
    const part = outcomes.slice(Math.max(0, end - WINDOW), end);
    values.push([...part].filter((each) => each === "1").length / part.length);
  }
  const step = 300 / Math.max(1, values.length - 1);
  const points = values.map((value, position) => `${(position * step).toFixed(1)},${(84 - 78 * value).toFixed(1)}`);
  if (points.length === 1) points.push(`300,${points[0].split(",")[1]}`);
  const svg = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  by("curve").replaceChildren(
    svg("line", { x1: 0, x2: 300, y1: 45, y2: 45 }),
    svg("path", { class: "area", d: `M0,90 L${points.join(" L")} L300,90 Z` }),
    svg("path", { d: `M${points.join(" L")}` }),
  );
}

export function showReport(report, counts) {
  const [low, high] = report?.interval ?? [];
  by("accuracy").textContent = report
    ? `Estimated accuracy ${percent(report.accuracy)} (${percent(low)} to ${percent(high)}), from samples as if they had not been taught.`
    : "";
  const worst = report?.confusions?.[0];
  const needs = worst && [worst.label, worst.predicted].sort((one, two) => (counts[one] ?? 0) - (counts[two] ?? 0))[0];
  const known = worst && worst.label in counts && worst.predicted in counts;
  by("advice").hidden = !known;
  if (!known) return;
  by("advice-text").textContent = `It confuses “${worst.label}” with “${worst.predicted}” most. More pictures of “${needs}” would help.`;
  by("advice-go").textContent = `Go to “${needs}”`;
  by("advice-go").dataset.label = needs;
}
