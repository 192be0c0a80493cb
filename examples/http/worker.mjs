// A worker in JavaScript, with nothing but Node 18: claims jobs of the type `greet` over HTTP and runs several at a time.
//   WINDLASS_URL=http://127.0.0.1:8080 WINDLASS_API_KEY=wl_... node worker.mjs
import { randomUUID } from "node:crypto";

const api = `${process.env.WINDLASS_URL ?? "http://127.0.0.1:8080"}/api/v1`;
// Of this run alone: whoever comes again under an old name is given what that one held.
const name = process.env.WORKER_NAME ?? `js-${randomUUID()}`;
const slots = 10;
const running = new Map(); // lease -> AbortController
let stopping = false;

async function handle(payload, signal) {
  if (!payload.name) throw Object.assign(new Error("nobody to greet"), { fatal: true });
  signal.throwIfAborted();
  return `hello, ${payload.name}`;
}

async function post(path, body) {
  for (let pause = 100; ; pause = Math.min(pause * 2, 5000)) {
    try {
      const answer = await fetch(`${api}/${path}`, {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          ...(process.env.WINDLASS_API_KEY && { Authorization: `Bearer ${process.env.WINDLASS_API_KEY}` }),
        },
        body: JSON.stringify(body ?? {}),
      });
      if (answer.status !== 503 && answer.status !== 429) return { ok: answer.ok, ...(await answer.json()) };
    } catch (error) {
      if (!stopping) console.error(`${path}: ${error.cause?.code ?? error.message}`);
    }
    if (stopping) return { ok: false };
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function run({ lease, job, timeout }) {
  const control = new AbortController();
  running.set(lease, control);
  const signal = AbortSignal.any?.([control.signal, AbortSignal.timeout(timeout * 1000)]) ?? control.signal;
  try {
    const result = await handle(job.payload, signal);
    await post(`leases/${lease}/complete`, { result });
    console.log(result);
  } catch (error) {
    if (control.signal.aborted) await post(`leases/${lease}/release`, { started: true });
    else {
      const told = { class: error.name, message: error.message, traceback: error.stack, retryable: !error.fatal };
      await post(`leases/${lease}/fail`, told);
    }
  } finally {
    running.delete(lease);
  }
}

// A sign of life every two seconds, which also keeps the leases and brings what operators ask.
const heart = setInterval(async () => {
  const told = await post(`workers/${name}/beat`, { leases: [...running.keys()], busy: running.size });
  for (const lease of told.lost ?? []) running.get(lease)?.abort();
  for (const { lease, request } of told.kept ?? []) if (request) running.get(lease)?.abort();
  if (told.drain) stopping = true;
}, 2000);

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => (stopping = true));

while (!stopping) {
  if (running.size >= slots) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    continue;
  }
  const claim = { worker: name, types: ["greet"], limit: slots - running.size, wait: "2s", holding: [...running.keys()] };
  const told = await post("leases", claim);
  if (!told.ok && told.detail) {
    // Refused: asking at once again would change nothing.
    console.error(told.detail);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  for (const lease of told.leases ?? []) run(lease);
  if (told.drain) stopping = true;
}
while (running.size) await new Promise((resolve) => setTimeout(resolve, 20));
clearInterval(heart);
await post(`workers/${name}/beat`, { stopping: true });
