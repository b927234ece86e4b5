// @ts-check
/** The page: start, pause, a live curve. All work is in the worker. */

/** @typedef {import("./types").FromWorker} FromWorker */

/** @template {HTMLElement} T @param {string} id @returns {T} */
const at = (id) => /** @type {T} */ (document.getElementById(id));

/** @type {{train: [number, number][], val: [number, number][]}} */
const points = { train: [], val: [] };
let total = 1;
let dirty = false;
let running = false;

const toggle = /** @type {HTMLButtonElement} */ (at("toggle"));
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });

/** @param {Record<string, string>} values */
function show(values) {
  for (const [name, value] of Object.entries(values)) {
    let cell = document.querySelector(`[data-number="${name}"]`);
    if (!cell) {
      const row = document.createElement("div");
      const term = document.createElement("dt");
      cell = document.createElement("dd");
      term.textContent = name.replaceAll("_", " ");
      cell.setAttribute("data-number", name);
      row.append(term, cell);
      at("numbers").append(row);
    }
    cell.textContent = value;
  }
}

/** @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

function draw() {
  dirty = false;
  const canvas = /** @type {HTMLCanvasElement} */ (at("curve"));
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = devicePixelRatio;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  context.scale(scale, scale);
  const [left, right, top, bottom] = [44, 8, 8, 26];
  const all = [...points.train, ...points.val].map(([, y]) => y).filter(Number.isFinite);
  const high = Math.max(...all, 1e-6);
  const x = (/** @type {number} */ step) => left + ((width - left - right) * step) / total;
  const y = (/** @type {number} */ loss) => top + (height - top - bottom) * (1 - loss / high);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colour("--quiet");
  context.strokeStyle = colour("--line");
  context.lineWidth = 1;
  for (let i = 0; i <= 4; i++) {
    const value = (high * i) / 4;
    context.beginPath();
    context.moveTo(left, y(value));
    context.lineTo(width - right, y(value));
    context.stroke();
    context.textAlign = "right";
    context.fillText(value.toPrecision(2), left - 6, y(value) + 4);
    context.textAlign = i === 0 ? "left" : i === 4 ? "right" : "center";
    context.fillText(String(Math.round((total * i) / 4)), x((total * i) / 4), height - 8);
  }
  for (const [name, line] of /** @type {const} */ ([["--train", points.train], ["--val", points.val]])) {
    context.strokeStyle = colour(name);
    context.lineWidth = 2;
    context.beginPath();
    line.forEach(([step, loss], i) => (i ? context.lineTo(x(step), y(loss)) : context.moveTo(x(step), y(loss))));
    context.stroke();
  }
}

function redraw() {
  if (!dirty) {
    dirty = true;
    requestAnimationFrame(draw);
  }
}

/** @param {string} message */
function fail(message) {
  at("error").hidden = false;
  at("error").textContent = message;
  toggle.disabled = true;
  if (running) toggle.textContent = "Stopped";
  else at("adapter").textContent = "";
}

worker.addEventListener("message", (/** @type {MessageEvent<FromWorker>} */ event) => {
  const message = event.data;
  if (message.type === "ready") {
    total = message.total;
    toggle.disabled = false;
    at("adapter").textContent = `${message.adapter}; kernels compiled in ${(message.compile_ms / 1000).toFixed(1)} s`;
    at("steps").textContent = `0 / ${total}`;
    redraw();
  } else if (message.type === "step") {
    points.train.push([message.step, message.loss]);
    at("steps").textContent = `${message.step} / ${message.total}`;
    /** @type {HTMLProgressElement} */ (at("progress")).value = message.step / message.total;
    show({
      loss: message.loss.toFixed(4),
      epoch: String(message.epoch + 1),
      learning_rate: message.lr.toExponential(2),
      ms_a_step: message.ms.toFixed(1),
    });
    if (message.skipped) show({ skipped: String(message.skipped) });
    redraw();
  } else if (message.type === "metrics") {
    if ("val_loss" in message.metrics) points.val.push([message.step, message.metrics.val_loss]);
    show(Object.fromEntries(Object.entries(message.metrics).map(([k, v]) => [k, v.toFixed(4)])));
    redraw();
  } else if (message.type === "state") {
    running = message.state === "running";
    toggle.textContent = running ? "Pause" : message.state === "finished" ? "Finished" : "Resume";
    toggle.disabled = message.state === "finished";
    document.body.dataset.state = message.state;
  } else fail(message.message);
});
worker.addEventListener("error", (event) => fail(event.message || "the worker could not start"));

new ResizeObserver(redraw).observe(at("curve"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
toggle.addEventListener("click", () => worker.postMessage({ type: running ? "pause" : "start" }));
document.addEventListener("visibilitychange", () => {
  if (document.hidden && running) at("hidden-note").hidden = false;
});

const response = await fetch(new URL("./run.json", import.meta.url));
if (response.ok) {
  const run = await response.json();
  at("title").textContent = run.title;
  document.title = `${run.title}: Scellis`;
  at("record").textContent = run.record;
}
worker.postMessage({ type: "load", base: new URL(".", import.meta.url).href });
