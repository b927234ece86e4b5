/** Shapes of the files that `scellis web` writes. */

export type Range = [buffer: string, offset: number, size: number];
export type Command =
  | ["dispatch", kernel: string, binds: Range[], grid: [number, number, number], op: string, path: string]
  | ["copy", src: Range, dst: Range]
  | ["clear", dst: Range];

export interface KernelText {
  name: string;
  wgsl: string;
  bindings: [name: string, elem: string, access: "read" | "read_write"][];
  workgroup: [number, number, number];
  uses_scalars: boolean;
}

export interface SequenceText {
  commands: Command[];
  inputs: Record<string, string>;
  outputs: Record<string, string>;
  draws: number;
}

export interface Program {
  version: number;
  limits: Record<string, number | string[]> & { features: string[] };
  buffers: [name: string, size: number, kind: string][];
  kernels: Record<string, KernelText>;
  tensors: Record<string, [dtype: string, shape: number[], range: Range]>;
  sequences: Record<string, SequenceText>;
  scalars: Record<string, [dtype: string, offset: number]>;
  meta: Record<string, any>;
}

export interface Split {
  examples: number;
  /** Arrays by input or target name: dtype, shape of one example, byte offset and length in data.bin. */
  arrays: Record<string, { dtype: string; shape: number[]; offset: number; bytes: number }>;
}

export interface MetricRule {
  id: string;
  name: string;
  finalize: "ratio" | "exp_ratio" | "sqrt_ratio";
}

export interface RunFile {
  title: string;
  record: string;
  record_digest: string;
  seed: number;
  total: number;
  batch: number;
  accumulation: number;
  examples: number;
  draws: number;
  /** Philox keys by stream. */
  streams: Record<string, [number, number]>;
  /** Learning rate of each update. */
  lr: number[];
  /** Each epoch's order of the training examples, u32, in order.bin. */
  epochs: number;
  tensors: { name: string; offset: number; bytes: number }[];
  splits: Record<string, Split>;
  metrics: MetricRule[];
  /** Bytes of each binary file of the site. */
  files: Record<string, number>;
}

export type Scalars = Record<string, number>;

export type FromWorker =
  | { type: "ready"; adapter: string; total: number; compile_ms: number }
  | { type: "step"; step: number; total: number; epoch: number; loss: number; grad_norm: number; lr: number; skipped: number; ms: number }
  | { type: "metrics"; step: number; epoch: number; metrics: Record<string, number> }
  | { type: "state"; state: "running" | "paused" | "finished" }
  | { type: "error"; message: string };

export type ToWorker = { type: "load"; base: string } | { type: "start" } | { type: "pause" };
