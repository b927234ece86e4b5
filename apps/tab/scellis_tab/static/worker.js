// @ts-check
/** Trains off the page's thread; speaks the protocol of types.d.ts. */

import { Host, openDevice } from "./host.js";
import { Trainer } from "./trainer.js";

/** @typedef {import("./types").FromWorker} FromWorker */
/** @typedef {import("./types").ToWorker} ToWorker */

/** @type {Trainer | null} */
let trainer = null;
let running = false;
let busy = false;

/** @param {FromWorker} message */
const tell = (message) => postMessage(message);

/** @param {string} base @param {string} name */
async function fetched(base, name) {
  const response = await fetch(new URL(name, base));
  if (!response.ok) throw new Error(`${name}: expected a file of this site, got HTTP ${response.status}`);
  return response;
}

/** @param {string} base */
async function load(base) {
  const started = performance.now();
  const [program, run, weights, data, order] = await Promise.all([
    fetched(base, "program.json").then((r) => r.json()),
    fetched(base, "run.json").then((r) => r.json()),
    fetched(base, "weights.bin").then((r) => r.arrayBuffer()),
    fetched(base, "data.bin").then((r) => r.arrayBuffer()),
    fetched(base, "order.bin").then((r) => r.arrayBuffer()),
  ]);
  const { device, adapter } = await openDevice();
  const host = await Host.create(device, program);
  trainer = new Trainer(host, run, { weights, data, order });
  tell({ type: "ready", adapter, total: run.total, compile_ms: performance.now() - started });
}

async function train() {
  if (!trainer || busy) return;
  busy = true;
  tell({ type: "state", state: "running" });
  while (running && !trainer.done) {
    const epoch = trainer.epoch;
    const started = performance.now();
    const report = await trainer.update();
    const { loss, grad_norm, lr, skipped } = report;
    const { step } = trainer;
    tell({ type: "step", step, total: trainer.run.total, epoch, loss, grad_norm, lr, skipped, ms: performance.now() - started });
    if (trainer.epoch !== epoch || trainer.done) {
      for (const split of Object.keys(trainer.run.splits).filter((s) => s !== "train")) {
        const found = await trainer.evaluate(split);
        const metrics = Object.fromEntries(Object.entries(found).map(([k, v]) => [`${split}_${k}`, v]));
        tell({ type: "metrics", step, epoch, metrics });
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 0)); // lets a pause message in
  }
  busy = false;
  tell({ type: "state", state: trainer.done ? "finished" : "paused" });
}

addEventListener("message", async (/** @type {MessageEvent<ToWorker>} */ event) => {
  try {
    if (event.data.type === "load") await load(event.data.base);
    else {
      running = event.data.type === "start";
      if (running) await train();
    }
  } catch (error) {
    running = false;
    busy = false;
    tell({ type: "error", message: error instanceof Error ? error.message : String(error) });
  }
});
