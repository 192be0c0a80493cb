// The half of a Node peer that runs in Node: its producer and its worker. node.py starts both.
//
//   node node.mjs ENVIRONMENT PEER drive        answers requests, a line of JSON each way
//   node node.mjs ENVIRONMENT PEER work SLOTS   a worker process; without SLOTS as many as the peer's default
//
// The tasks are those of bench/drive/tasks.py.

import fs from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [environment, peer, role, given] = process.argv.slice(2);
const load = createRequire(`${environment}/package.json`);
const slots = Number(given);
const url = process.env.BENCH_URL;
const folder = process.env.BENCH_FOLDER;
const CHUNK = 10_000;
// Standard output is for answers.
console.log = console.info = console.error;

// --- what jobs do ---

let open = false;

function passGate() {
  if (open) return;
  const nap = new Int32Array(new SharedArrayBuffer(4));
  if (!fs.existsSync(`${folder}/gate`)) fs.writeFileSync(`${folder}/ready-${process.pid}`, "");
  while (!fs.existsSync(`${folder}/gate`)) Atomics.wait(nap, 0, 0, 1);
  open = true;
}

function mark(what, body) {
  fs.appendFileSync(`${folder}/marks`, `${what} ${body} ${process.hrtime.bigint()} ${process.pid}\n`);
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const tasks = {
  async noop() {
    passGate();
  },
  async wait() {
    passGate();
    await pause(20);
  },
  // Node 20 does not count by thread, but its other threads have next to nothing to do meanwhile.
  async spin() {
    passGate();
    const begun = process.cpuUsage();
    const used = ({ user, system }) => user + system;
    while (used(process.cpuUsage(begun)) < 5_000);
  },
  async mark(body) {
    mark("mark", body);
  },
  async long(body) {
    mark("start", body);
    await pause(15_000);
    mark("end", body);
  },
};
const names = Object.keys(tasks);

// --- the peers: produce() makes the store and gives the calls of a producer, work() is a worker ---

// Whether a row is left in a store on PostgreSQL; what is for next week is not waited for, and what failed is not done.
function asker(text) {
  const { Pool } = load("pg");
  const pool = new Pool({ connectionString: url, max: 1 });
  return async () => (await pool.query({ name: "unfinished", text, values: [names] })).rows[0].exists;
}

function graphileWorker(settings) {
  const { Logger, makeWorkerUtils, run } = load("graphile-worker");
  const logger = new Logger(() => (level, words) => /error|warning/.test(level) && console.error(words));
  return {
    async produce() {
      const utils = await makeWorkerUtils({ connectionString: url, logger });
      await utils.migrate();
      return {
        add: (name, body) => utils.addJob(name, { body }),
        addMany: (name, bodies, runAt) =>
          utils.addJobs(bodies.map((body) => ({ identifier: name, payload: { body }, runAt }))),
        unfinished: asker(
          `select exists (select from graphile_worker._private_jobs where run_at < now() + interval '1 day'
             and task_id in (select id from graphile_worker._private_tasks where identifier = any($1)))`,
        ),
      };
    },
    async work() {
      const taskList = Object.fromEntries(names.map((name) => [name, ({ body }) => tasks[name](body)]));
      await run({ preset: { worker: { connectionString: url, logger, ...settings } }, taskList, parsedCronItems: [] });
    },
  };
}

function pgBoss() {
  const PgBoss = load("pg-boss");
  const started = async (options) => {
    const boss = new PgBoss({ connectionString: url, ...options });
    boss.on("error", console.error);
    return boss.start();
  };
  return {
    async produce() {
      const boss = await started({ supervise: false, schedule: false });
      for (const name of [...names, "other"]) await boss.createQueue(name);
      return {
        add: (name, body) => boss.send(name, { body }),
        addMany: (name, bodies, startAfter) => boss.insert(bodies.map((body) => ({ name, data: { body }, startAfter }))),
        unfinished: asker(
          `select exists (select from pgboss.job where name = any($1) and state <> 'completed'
             and start_after < now() + interval '1 day')`,
        ),
      };
    },
    async work() {
      const boss = await started();
      for (const name of names) {
        const batchSize = slots || (name === "noop" ? 2_000 : 10);
        const id = await boss.work(name, { batchSize, pollingIntervalSeconds: 0.5 }, async (jobs) => {
          await Promise.all(jobs.map((job) => tasks[name](job.data.body)));
          // Look again at once, without the pause between two polls.
          boss.notifyWorker(id);
        });
      }
    },
  };
}

function bullmq() {
  const { Queue, Worker } = load("bullmq");
  const connection = { url };
  return {
    async produce() {
      const queue = new Queue("bench", { connection });
      await queue.waitUntilReady();
      return {
        add: (name, body) => queue.add(name, { body }),
        addMany: (name, bodies) => queue.addBulk(bodies.map((body) => ({ name, data: { body } }))),
        unfinished: async () => (await queue.getJobCountByTypes("waiting", "active", "delayed", "failed")) > 0,
      };
    },
    async work() {
      const settings = { connection, concurrency: slots || 100, removeOnComplete: { count: 0 } };
      new Worker("bench", (job) => tasks[job.name](job.data.body), settings).on("error", console.error);
    },
  };
}

const peers = {
  "graphile-worker": () => graphileWorker(slots ? { concurrentJobs: slots } : {}),
  // What its page on performance names.
  "graphile-worker-tuned": () =>
    graphileWorker({
      concurrentJobs: slots || 24,
      maxPoolSize: (slots || 24) + 1,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    }),
  "pg-boss": pgBoss,
  bullmq,
};

// --- the producer's requests ---

const seconds = () => performance.now() / 1000;

function requests(producer) {
  return {
    // When the call began, on the clock that all processes share.
    async enqueue({ name, body }) {
      const began = Number(process.hrtime.bigint()) / 1e9;
      await producer.add(name, body);
      return began;
    },
    // `runs` is a list of bodies, each with how often it comes.
    async fill({ name, runs, later }) {
      const bodies = runs.flatMap(([body, count]) => Array(count).fill(body));
      const due = later ? new Date(Date.now() + later * 1000) : undefined;
      for (let at = 0; at < bodies.length; at += CHUNK) await producer.addMany(name, bodies.slice(at, at + CHUNK), due);
    },
    // How long each call took, by producer, and all of it.
    async produce({ body, within, producers }) {
      const taken = Array.from({ length: producers }, () => []);
      const begun = seconds();
      await Promise.all(
        taken.map(async (mine) => {
          for (let now = seconds(), before; now < begun + within; mine.push(now - before)) {
            before = now;
            await producer.add("noop", body);
            now = seconds();
          }
        }),
      );
      return [taken, seconds() - begun];
    },
    unfinished: () => producer.unfinished(),
  };
}

async function drive() {
  const known = requests(await peers[peer]().produce());
  const say = (words) => fs.writeSync(1, `${JSON.stringify(words)}\n`);
  say({ done: null });
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    try {
      say({ done: (await known[request.do](request)) ?? null });
    } catch (error) {
      say({ failed: String(error) });
    }
  }
  process.exit(0);
}

await (role === "work" ? peers[peer]().work() : drive());
