// The drawing pad. Strokes are kept as points, so that a drawing of any size is taught at one size and line width.
const INK = "#1e1e28";

export class Pad {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.strokes = [];
    this.style = { fill: 0.8, line: 0.073 }; // of the side: the longer side of a drawing, and the width of a line
    this.drawing = null; // identifier of the pointer
    canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.#end(event));
  }

  get empty() {
    return this.strokes.length === 0;
  }

  clear() {
    this.strokes = [];
    this.#paint();
    this.changed();
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  #begin(event) {
    if (event.button > 0 || this.drawing !== null) return;
    event.preventDefault();
    this.drawing = event.pointerId;
    this.canvas.setPointerCapture(event.pointerId);
    this.strokes.push([this.#point(event)]);
    this.#paint();
  }

  #move(event) {
    if (event.pointerId !== this.drawing) return;
    for (const each of event.getCoalescedEvents?.() ?? [event]) this.strokes.at(-1).push(this.#point(each));
    this.#paint();
    this.changed();
  }

  #end(event) {
    if (event.pointerId !== this.drawing) return;
    this.drawing = null;
    this.changed();
  }

  #paint() {
    const side = this.canvas.width;
    const context = this.canvas.getContext("2d");
    context.fillStyle = "#fff";
    context.fillRect(0, 0, side, side);
    trace(context, this.strokes, ([x, y]) => [x * side, y * side], 0.045 * side);
  }

  // The drawing, centred and scaled, on a canvas of this side.
  normalised(side) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff";
    context.fillRect(0, 0, side, side);
    const points = this.strokes.flat();
    const xs = points.map(([x]) => x);
    const ys = points.map(([, y]) => y);
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = (this.style.fill * side) / Math.max(right - left, bottom - top, 0.05);
    const place = ([x, y]) => [side / 2 + (x - (left + right) / 2) * scale, side / 2 + (y - (top + bottom) / 2) * scale];
    trace(context, this.strokes, place, this.style.line * side);
    return canvas;
  }
}

function trace(context, strokes, place, width) {
  Object.assign(context, { lineWidth: width, lineCap: "round", lineJoin: "round", strokeStyle: INK });
  for (const stroke of strokes) {
    context.beginPath();
    const [first, ...rest] = stroke.map(place);
    context.moveTo(...first);
    for (const point of rest.length ? rest : [[first[0] + 0.1, first[1]]]) context.lineTo(...point);
    context.stroke();
  }
}
