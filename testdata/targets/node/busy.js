// Runs JavaScript and V8's own code in turns, each way in a worker of its own,
// until it is killed: "ready PID", a line of input, then "busy".
'use strict';
const { Worker, isMainThread, workerData } = require('node:worker_threads');
const zlib = require('node:zlib');

const rows = [];
for (let i = 0; i < 500; i++) rows.push({ id: i, name: 'row ' + i, tags: ['a', String(i)], at: { x: i, y: [i, -i] } });
const text = Buffer.from(JSON.stringify(rows));

function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
class Tree {
  constructor(d) { this.left = d > 0 ? new Tree(d - 1) : null; this.right = d > 0 ? new Tree(d - 1) : null; }
  count() { return 1 + (this.left ? this.left.count() : 0) + (this.right ? this.right.count() : 0); }
}
function* walk(t) { if (t) { yield* walk(t.left); yield 1; yield* walk(t.right); } }
async function leaf(i) { await null; return fib(10) + i; }
async function branch(n) { let s = 0; for (let i = 0; i < n; i++) s += await (i % 2 ? leaf(i) : branch(n >> 1)); return s; }

const ways = {
  async json() { for (let i = 0; i < 20; i++) JSON.parse(JSON.stringify(JSON.parse(text)), (k, v) => v); },
  async zlib() { for (let i = 0; i < 10; i++) zlib.inflateSync(zlib.deflateSync(text)); },
  async recursion() { fib(22); for (const x of walk(new Tree(8))) if (x > 1) throw x; new Tree(9).count(); },
  async async() { await branch(8); },
  async regexp() {
    for (const r of rows) r.found = /(\w+)\s(\d+)(?:x|y)*z?$/.exec(r.name) && 'x'.repeat(50).replace(/x+?/g, (m) => m + r.id);
  },
  async sorting() { rows.slice().sort((a, b) => (a.name < b.name ? -1 : 1)).map((x) => x.id).reduce((a, b) => a + b); },
  async making() { for (let i = 0; i < 50; i++) new Function('a', `return a + ${i} + (function () { return a; })()`)(i); },
};

async function run(way) { for (;;) { await ways[way](); await new Promise(setImmediate); } }

if (isMainThread) {
  console.log('ready ' + process.pid);
  process.stdin.once('data', () => {
    const list = process.argv.slice(2);
    for (const way of list.slice(1)) new Worker(__filename, { workerData: { way } });
    console.log('busy');
    run(list[0]);
  });
} else {
  run(workerData.way);
}
