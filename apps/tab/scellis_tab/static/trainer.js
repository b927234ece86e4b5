// @ts-check
/** The training loop in a tab: the same order, rates and random counters as the native loop. */

import { HostError, typed } from "./host.js";

/** @typedef {import("./host.js").Host} Host */
/** @typedef {import("./types").RunFile} RunFile */
/** @typedef {{dtype: string, size: number, all: ReturnType<typeof typed>}} Rows */
/** @typedef {{step: number, epoch: number, report: Promise<Record<string, number>>}} Update */

/** Trains one run on one host. */
export class Trainer {
  /** @param {Host} host @param {RunFile} run @param {{weights: ArrayBuffer, data: ArrayBuffer, order: ArrayBuffer}} files */
  constructor(host, run, files) {
    this.host = host;
    this.run = run;
    /** Each split's arrays over the file's own memory. @type {Record<string, Record<string, Rows>>} */
    this.splits = {};
    for (const [split, { arrays }] of Object.entries(run.splits)) {
      this.splits[split] = {};
      for (const [name, { dtype, shape, offset, bytes }] of Object.entries(arrays)) {
        const size = shape.reduce((a, b) => a * b, 1);
        this.splits[split][name] = { dtype, size, all: typed(dtype, files.data, offset, bytes / 4) };
      }
    }
    this.order = new Uint32Array(files.order);
    this.step = 0;
    this.micros = Math.ceil(run.examples / run.batch);
    this.perEpoch = Math.ceil(this.micros / run.accumulation);
    this.report = /** @type {string[]} */ (host.program.meta.report);
    for (const { name, offset, bytes } of run.tensors) host.write(name, new Uint8Array(files.weights, offset, bytes));
  }

  get epoch() {
    return Math.floor(this.step / this.perEpoch);
  }

  get done() {
    return this.step >= this.run.total;
  }

  /**
   * Rows of a split as inputs of a sequence.
   * @param {string} split @param {ArrayLike<number>} rows @param {string} sequence
   */
  batch(split, rows, sequence) {
    /** @type {Record<string, ArrayBufferView>} */
    const inputs = {};
    for (const name of Object.keys(this.host.program.sequences[sequence].inputs)) {
      const source = this.splits[split][name];
      if (!source) throw new HostError(`data: expected an array ${name} in split ${split}, got none`);
      const { dtype, size, all } = source;
      const out = typed(dtype, new ArrayBuffer(4 * size * rows.length));
      for (let i = 0; i < rows.length; i++) out.set(all.subarray(rows[i] * size, (rows[i] + 1) * size), i * size);
      inputs[name] = out;
    }
    return inputs;
  }

  /** @param {number} counter */
  scalars(counter) {
    /** @type {Record<string, number>} */
    const values = {
      lr: this.run.lr[Math.min(this.step, this.run.lr.length - 1)] ?? 0,
      loss_scale: 1,
      "rng.counter_lo": counter % 4294967296,
      "rng.counter_hi": Math.floor(counter / 4294967296),
    };
    for (const [stream, [key0, key1]] of Object.entries(this.run.streams)) {
      values[`rng.${stream}.key0`] = key0;
      values[`rng.${stream}.key1`] = key1;
    }
    return values;
  }

  /** Send one update to the device; its report, by name, comes when the device gets there. @returns {Update} */
  update() {
    const { run } = this;
    const epoch = this.epoch;
    const within = this.step - epoch * this.perEpoch;
    const first = within * run.accumulation;
    const last = Math.min(first + run.accumulation, this.micros);
    let counter = (epoch * this.micros + first) * run.draws;
    for (let micro = first; micro < last; micro++) {
      const start = epoch * run.examples + micro * run.batch;
      const rows = this.order.subarray(start, Math.min(start + run.batch, (epoch + 1) * run.examples));
      const sequence = `micro@${rows.length}`;
      this.host.run(sequence, this.batch("train", rows, sequence), this.scalars(counter));
      counter += run.draws;
    }
    const scalars = this.scalars(counter);
    this.host.run("apply", {}, scalars);
    this.step += 1;
    const report = this.host.outputs("apply").then(({ report }) => ({
      lr: scalars.lr,
      ...Object.fromEntries(this.report.map((name, i) => [name, report[i]])),
    }));
    return { step: this.step, epoch, report };
  }

  /** Loss and metrics of a split. @param {string} split */
  async evaluate(split) {
    const examples = this.run.splits[split].examples;
    /** @type {Record<string, number>} */
    const sums = {};
    for (let start = 0; start < examples; start += this.run.batch) {
      const rows = Array.from({ length: Math.min(this.run.batch, examples - start) }, (_, i) => start + i);
      const sequence = `eval@${rows.length}`;
      this.host.run(sequence, this.batch(split, rows, sequence), this.scalars(0));
      for (const [name, value] of Object.entries(await this.host.outputs(sequence))) sums[name] = (sums[name] ?? 0) + value[0];
    }
    /** @type {Record<string, number>} */
    const found = { loss: sums["loss.total"] / sums["loss.weight"] };
    for (const { id, name, finalize } of this.run.metrics) {
      const ratio = sums[`${id}:total`] / sums[`${id}:weight`];
      found[name] = finalize === "exp_ratio" ? Math.exp(ratio) : finalize === "sqrt_ratio" ? Math.sqrt(ratio) : ratio;
    }
    return found;
  }
}
