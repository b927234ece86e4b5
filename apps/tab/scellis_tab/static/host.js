// @ts-check
/** Replays a step program on WebGPU. No dependencies; runs in a page or a worker. */

/** @typedef {import("./types").Program} Program */
/** @typedef {import("./types").Range} Range */
/** @typedef {import("./types").Scalars} Scalars */

const LIMITS = {
  max_storage_buffer_binding_size: "maxStorageBufferBindingSize",
  max_buffer_size: "maxBufferSize",
  max_storage_buffers_per_shader_stage: "maxStorageBuffersPerShaderStage",
  max_compute_invocations_per_workgroup: "maxComputeInvocationsPerWorkgroup",
  max_compute_workgroup_storage_size: "maxComputeWorkgroupStorageSize",
  max_compute_workgroups_per_dimension: "maxComputeWorkgroupsPerDimension",
};

/** An error of ours: what was expected, what was found. */
export class HostError extends Error {}

/**
 * Ask for a device with WebGPU's default limits.
 * @returns {Promise<{device: GPUDevice, adapter: string}>}
 */
export async function openDevice() {
  if (!navigator.gpu) {
    throw new HostError("this browser: expected WebGPU, got none; try a current Chrome, Edge, Safari or Firefox");
  }
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) {
    throw new HostError("WebGPU: expected a GPU adapter, got none; try chrome://gpu for the reason");
  }
  const device = await adapter.requestDevice();
  const info = adapter.info;
  return { device, adapter: [info.vendor, info.architecture, info.description].filter(Boolean).join(" ") || "WebGPU" };
}

/**
 * Typed array of a tensor dtype over a buffer, or part of it.
 * @param {string} dtype @param {ArrayBuffer} buffer @param {number} [offset] @param {number} [length] in elements
 */
export function typed(dtype, buffer, offset, length) {
  if (dtype === "f32") return new Float32Array(buffer, offset, length);
  if (dtype === "i32") return new Int32Array(buffer, offset, length);
  if (dtype === "u32" || dtype === "bool") return new Uint32Array(buffer, offset, length);
  throw new HostError(`tensor dtype: expected f32, i32, u32 or bool, got ${dtype}`);
}

/** A program on a device. Make one with {@link Host.create}. */
export class Host {
  /** @param {GPUDevice} device @param {Program} program */
  constructor(device, program) {
    this.device = device;
    this.program = program;
    /** @type {Map<string, GPUBuffer>} */
    this.buffers = new Map();
    /** @type {Map<string, GPUComputePipeline>} */
    this.pipelines = new Map();
    /** @type {Map<string, ((encoder: GPUCommandEncoder) => void)[]>} */
    this.recorded = new Map();
    this.block = new ArrayBuffer(program.buffers.find(([name]) => name === "scalars")?.[1] ?? 4);
    this.view = new DataView(this.block);
    /** Mapped-read buffers that are free, by size. @type {Map<number, GPUBuffer[]>} */
    this.staging = new Map();
    /** @type {string | null} */
    this.lost = null;
    device.lost.then((info) => {
      this.lost = info.message || info.reason || "unknown reason";
    });
  }

  /**
   * Create buffers and compile every pipeline.
   * @param {GPUDevice} device @param {Program} program @returns {Promise<Host>}
   */
  static async create(device, program) {
    for (const [name, key] of Object.entries(LIMITS)) {
      const needed = Number(program.limits[name]);
      const has = Number(device.limits[/** @type {keyof GPUSupportedLimits} */ (key)]);
      if (needed > has) throw new HostError(`step program: expected ${name} of at least ${needed}, got ${has}`);
    }
    const host = new Host(device, program);
    const { STORAGE, COPY_SRC, COPY_DST, UNIFORM, MAP_READ } = GPUBufferUsage;
    for (const [name, size, kind] of program.buffers) {
      const usage =
        kind === "scalars" ? UNIFORM | COPY_DST : kind === "staging" ? MAP_READ | COPY_DST : STORAGE | COPY_SRC | COPY_DST;
      host.buffers.set(name, device.createBuffer({ label: name, size, usage }));
    }
    await Promise.all(
      Object.entries(program.kernels).map(async ([key, kernel]) => {
        const module = device.createShaderModule({ label: key, code: kernel.wgsl });
        const { messages } = await module.getCompilationInfo();
        const fault = messages.find((m) => m.type === "error");
        if (fault) throw new HostError(`kernel ${key}: expected WGSL that compiles, got line ${fault.lineNum}: ${fault.message}`);
        host.pipelines.set(key, await device.createComputePipelineAsync({ label: key, layout: "auto", compute: { module } }));
      }),
    );
    for (const name of Object.keys(program.sequences)) host.recorded.set(name, host.#record(name));
    return host;
  }

  /** @param {string} name */
  #buffer(name) {
    const buffer = this.buffers.get(name);
    if (!buffer) throw new HostError(`step program: expected a buffer ${name}, got none`);
    return buffer;
  }

  /**
   * Make the bind groups of a sequence once; the result replays it into an encoder.
   * @param {string} name
   */
  #record(name) {
    /** @type {((encoder: GPUCommandEncoder) => void)[]} */
    const steps = [];
    /** @type {((pass: GPUComputePassEncoder) => void)[]} */
    let dispatches = [];
    const flush = () => {
      if (!dispatches.length) return;
      const batch = dispatches;
      dispatches = [];
      steps.push((encoder) => {
        const pass = encoder.beginComputePass();
        for (const dispatch of batch) dispatch(pass);
        pass.end();
      });
    };
    for (const command of this.program.sequences[name].commands) {
      if (command[0] === "dispatch") {
        const [, key, binds, grid] = command;
        const pipeline = /** @type {GPUComputePipeline} */ (this.pipelines.get(key));
        const entries = binds.map(([buffer, offset, size], binding) => ({
          binding,
          resource: { buffer: this.#buffer(buffer), offset, size },
        }));
        if (this.program.kernels[key].uses_scalars) {
          const buffer = this.#buffer("scalars");
          entries.push({ binding: entries.length, resource: { buffer, offset: 0, size: buffer.size } });
        }
        const group = this.device.createBindGroup({ label: key, layout: pipeline.getBindGroupLayout(0), entries });
        dispatches.push((pass) => {
          pass.setPipeline(pipeline);
          pass.setBindGroup(0, group);
          pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
        });
      } else if (command[0] === "copy") {
        flush();
        const [, src, dst] = command;
        steps.push((e) => e.copyBufferToBuffer(this.#buffer(src[0]), src[1], this.#buffer(dst[0]), dst[1], src[2]));
      } else {
        flush();
        const [, dst] = command;
        steps.push((e) => e.clearBuffer(this.#buffer(dst[0]), dst[1], dst[2]));
      }
    }
    flush();
    return steps;
  }

  /** Write a tensor. @param {string} name @param {ArrayBufferView} array */
  write(name, array) {
    const tensor = this.program.tensors[name];
    if (!tensor) throw new HostError(`tensor: expected a name of this program, got ${name}`);
    const [, , [buffer, offset, size]] = tensor;
    if (array.byteLength !== size) throw new HostError(`tensor ${name}: expected ${size} bytes, got ${array.byteLength}`);
    this.device.queue.writeBuffer(this.#buffer(buffer), offset, array.buffer, array.byteOffset, array.byteLength);
  }

  /**
   * Run a sequence. @param {string} sequence
   * @param {Record<string, ArrayBufferView>} inputs @param {Scalars} scalars
   */
  run(sequence, inputs, scalars) {
    if (this.lost !== null) throw new HostError(`WebGPU device: expected it to be there, got it lost (${this.lost})`);
    const spec = this.program.sequences[sequence];
    if (!spec) throw new HostError(`sequence: expected one of ${Object.keys(this.program.sequences)}, got ${sequence}`);
    for (const [name, tensor] of Object.entries(spec.inputs)) {
      if (!inputs[name]) throw new HostError(`sequence ${sequence}: expected an input ${name}, got none`);
      this.write(tensor, inputs[name]);
    }
    for (const [name, [dtype, offset]] of Object.entries(this.program.scalars)) {
      const value = scalars[name] ?? 0;
      if (dtype === "f32") this.view.setFloat32(offset, value, true);
      else this.view.setUint32(offset, value >>> 0, true);
    }
    this.device.queue.writeBuffer(this.#buffer("scalars"), 0, this.block);
    const encoder = this.device.createCommandEncoder({ label: sequence });
    for (const step of /** @type {((e: GPUCommandEncoder) => void)[]} */ (this.recorded.get(sequence))) step(encoder);
    this.device.queue.submit([encoder.finish()]);
  }

  /**
   * Read tensors as they are now; later work on the device does not change what is read.
   * @param {Record<string, string>} names key -> tensor
   */
  async read(names) {
    const parts = Object.entries(names).map(([key, name]) => ({ key, tensor: this.program.tensors[name] }));
    const padded = parts.map(({ tensor }) => Math.ceil(tensor[2][2] / 4) * 4);
    const total = padded.reduce((sum, size) => sum + size, 0);
    const free = this.staging.get(total) ?? [];
    this.staging.set(total, free);
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const staging = free.pop() ?? this.device.createBuffer({ label: "readback", size: total, usage });
    const encoder = this.device.createCommandEncoder({ label: "readback" });
    let at = 0;
    parts.forEach(({ tensor }, i) => {
      const [, , [buffer, offset]] = tensor;
      encoder.copyBufferToBuffer(this.#buffer(buffer), offset, staging, at, padded[i]);
      at += padded[i];
    });
    this.device.queue.submit([encoder.finish()]);
    const mapped = staging.mapAsync(GPUMapMode.READ);
    this.device.queue.submit([]); // lets Firefox notice the map at once
    await mapped;
    const copy = staging.getMappedRange().slice(0);
    staging.unmap();
    /** @type {Record<string, ReturnType<typeof typed>>} */
    const found = {};
    at = 0;
    parts.forEach(({ key, tensor }, i) => {
      found[key] = typed(tensor[0], copy, at, tensor[2][2] / 4);
      at += padded[i];
    });
    free.push(staging);
    return found;
  }

  /** Outputs of the sequence that ran last. @param {string} sequence */
  outputs(sequence) {
    return this.read(this.program.sequences[sequence].outputs);
  }

  /** Free the device. */
  close() {
    for (const buffer of this.buffers.values()) buffer.destroy();
    for (const free of this.staging.values()) for (const buffer of free) buffer.destroy();
    this.device.destroy();
  }
}
