// Makes functions by new scripts, runs each a while and forgets it, again and
// again, and has V8 collect and move what there is, so that functions take each
// other's places in memory.
//
// Each says who it is three times: by its name, its file and its line. After "ready
// PID" and a line of input it runs for some seconds (the first argument), in as
// many threads as the second says, then writes a line "name call return" for each
// function to the third argument, prints "done" and waits for another line.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const vm = require('node:vm');
const fs = require('node:fs');
const v8 = require('node:v8');
v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');

const now = () => process.hrtime.bigint();
function spin(ns) {
  const end = now() + ns;
  let s = 0;
  while (now() < end) s = (s * 31 + 1) | 0;
  return s;
}
function* numbers(ns) {
  const end = now() + ns;
  while (now() < end) yield 1;
}
const bodies = [
  '  spin(ns);\n',
  '  const end = now() + ns;\n  while (now() < end) s++;\n',
  '  for (const x of numbers(ns)) s += x;\n',
  '  [2, 1].sort(function (a, b) { spin(ns / 2n);\n    return a - b; });\n',
  '  const end = now() + ns;\n  while (now() < end) { const o = []; for (let i = 0; i < 100; i++) o.push({ i, a: [i] }); s += o.length; }\n',
  '  spin(ns); gc({ type: "minor" });\n  spin(ns);\n',
  '  spin(ns); gc();\n  spin(ns);\n',
];

function work(thread, until) {
  const log = [];
  let seed = thread + 1;
  const random = (n) => { seed = (seed * 1103515245 + 12345) & 0x7fffffff; return (seed >> 8) % n; };
  for (let n = 1; now() < until; n++) {
    const name = `fresh_${thread}_${String(n).padStart(6, '0')}`;
    const line = 1 + n % 50000;
    // The bodies of gc() take long: some of all.
    const body = bodies[random(random(8) === 0 ? bodies.length : bodies.length - 1)];
    const source = '\n'.repeat(line - 1) + `(function ${name}(now, spin, numbers, gc, ns) { let s = 0;\n${body}  return s; })`;
    const f = new vm.Script(source, { filename: `<${name}>` }).runInThisContext();
    const ns = [20000n, 100000n, 400000n, 1500000n, 3000000n][random(5)];
    const call = now();
    f(now, spin, numbers, gc, ns);
    log.push(`${name} ${call} ${now()}\n`);
  }
  return log.join('');
}

async function main() {
  const [seconds, threads, out] = process.argv.slice(2);
  console.log('ready ' + process.pid);
  const lines = require('node:readline').createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  await lines.next();
  const until = now() + BigInt(Math.round(seconds * 1e9));
  const others = [];
  for (let i = 1; i < threads; i++) {
    others.push(new Promise((done) => new Worker(__filename, { workerData: { i, until } }).once('message', done)));
  }
  let log = work(0, until);
  for (const o of others) log += await o;
  fs.writeFileSync(out, log);
  console.log('done');
  await lines.next();
  process.exit(0);
}

if (isMainThread) main();
else parentPort.postMessage(work(workerData.i, workerData.until));
