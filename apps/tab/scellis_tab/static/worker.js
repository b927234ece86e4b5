// @ts-check
/** Trains off the page's thread; speaks the protocol of types.d.ts. */

import { Host, openDevice } from "./host.js";
import { Trainer } from "./trainer.js";

/** @typedef {import("./types").FromWorker} FromWorker */
/** @typedef {import("./types").ToWorker} ToWorker */
/** @typedef {import("./trainer.js").Update} Update */

/** @type {Trainer | null} */
let trainer = null;
let running = false;
let busy = false;

const AHEAD = 2; // updates on the device whose reports have not come yet
const channel = new MessageChannel();

/** Let waiting messages in (a timer would wait four milliseconds). @returns {Promise<void>} */
const breathe = () =>
  new Promise((resolve) => {
    channel.port1.onmessage = () => resolve();
    channel.port2.postMessage(null);
  });

/** @param {FromWorker} message */
const tell = (message) => postMessage(message);

/** @param {string} base @param {string} name */
async function fetched(base, name) {
  const response = await fetch(new URL(name, base));
  if (!response.ok) throw new Error(`${name}: expected a file of this site, got HTTP ${response.status}; write the site again`);
  return response;
}

/** @param {string} base @param {string} name @param {number} bytes @returns {Promise<ArrayBuffer>} */
async function binary(base, name, bytes) {
  const buffer = await (await fetched(base, name)).arrayBuffer();
  if (buffer.byteLength === bytes) return buffer;
  throw new Error(`${name}: expected ${bytes} bytes, got ${buffer.byteLength}; write the site again`);
}

/** @param {string} base */
async function load(base) {
  const started = performance.now();
  const { device, adapter } = await openDevice();
  const [program, run] = await Promise.all(
    ["program.json", "run.json"].map((name) => fetched(base, name).then((response) => response.json())),
  );
  const [weights, data, order] = await Promise.all(
    ["weights.bin", "data.bin", "order.bin"].map((name) => binary(base, name, run.files[name])),
  );
  const host = await Host.create(device, program);
  trainer = new Trainer(host, run, { weights, data, order });
  tell({ type: "ready", adapter, total: run.total, compile_ms: performance.now() - started });
}

async function train() {
  if (!trainer || busy) return;
  busy = true;
  tell({ type: "state", state: "running" });
  const { total, splits } = trainer.run;
  /** @type {Update[]} */
  const sent = [];
  let last = performance.now();
  const deliver = async () => {
    const { step, epoch, report } = /** @type {Update} */ (sent.shift());
    const { loss, grad_norm, lr, skipped } = await report;
    const now = performance.now();
    tell({ type: "step", step, total, epoch, loss, grad_norm, lr, skipped, ms: now - last });
    last = now;
  };
  while (running && !trainer.done) {
    const update = trainer.update();
    update.report.catch(() => {}); // said when it is delivered
    sent.push(update);
    if (sent.length > AHEAD) await deliver();
    if (trainer.epoch !== update.epoch || trainer.done) {
      while (sent.length) await deliver();
      for (const split of Object.keys(splits).filter((s) => s !== "train")) {
        const found = await trainer.evaluate(split);
        const metrics = Object.fromEntries(Object.entries(found).map(([k, v]) => [`${split}_${k}`, v]));
        tell({ type: "metrics", step: update.step, epoch: update.epoch, metrics });
      }
      last = performance.now();
    }
    await breathe();
  }
  while (sent.length) await deliver();
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
