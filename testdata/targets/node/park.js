// Threads that sleep inside functions of each kind, N of each (by default 1). Each says
// where it is as Error().stack has it, all on one line, then that it is parked.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

Error.stackTraceLimit = 200;
const word = new Int32Array(isMainThread ? new SharedArrayBuffer(4) : workerData.word);
const vm = require('node:vm');
const fs = require('node:fs');

function say(what) { fs.writeSync(1, what + '\n'); }
function here(stack) { say('stack ' + JSON.stringify(stack)); parentPort.postMessage(0); }

function park() {
  Atomics.wait(word, 0, 0, (here(new Error().stack), 600000));
}

function cheap() { return 1; }
const others = [cheap, () => 2, function named() { return 3; }, (x) => 4, function (x, y) { return 5; }];

// Compiled by the optimizing compiler, with what it calls compiled in.
function hot(f) {
  return warm(f)
    + 1;
}
function warm(f) {
  let s = 0;

  for (let i = 0; i < 2; i++)
    s += inner(f, i);
  return s;
}
function inner(f, i) {
  if (i < 0) return 0;
  return f(i);
}
function optimized() {
  for (let i = 0; i < 300000; i++) hot(others[i % others.length]);
  return hot(park);
}

// Compiled in from a loop, whose end is on another line, and not as one that is small.
function loop(f) {
  let i = 0, s = 0;
  while (i <
      9) {
    i += 1;
    s += turn(f, i);
  }
  return s;
}
function turn(f, i) {
  let s = 1;
  s += f.length;
  s += f.length * 2;
  s += f.length * 3;
  if (i === 9) s += f() * 4;
  return s > 0 ? s : 1;
}
function looped() {
  for (let i = 0; i < 300000; i++) loop(others[i % others.length]);
  return loop(park);
}

// Called often enough for baseline code.
function often(f, n) {
  let s = 0;
  s += n;
  s += f();
  return s;
}
function baseline() {
  for (let i = 0; i < 500; i++) often(others[i % others.length], i);
  return often(park, 1);
}

function recursion(n) {
  return n === 0
    ? park()
    : 1 + recursion(n - 1);
}

class Shape {
  constructor(f) { this.area = f(); }
  get size() { return park(); }
  #secret() { return this.size; }
  static make() { return new Shape(() => park()); }
  open() { return this.#secret(); }
}

function* generator() { yield 1; yield park(); }
async function later() { await null; return park(); }
function evaluated() { return eval('(function inEval() {\n\n  return park();\n})()'); }
function script() {
  return new vm.Script('function inScript(f) {\n  return f();\n}\ninScript(callback)', { filename: 'made.js', lineOffset: 10 })
    .runInNewContext({ callback: park });
}

const ways = {
  optimized,
  looped,
  baseline,
  recursion() { return recursion(50); },
  callbacks() { return [[3, 1]].map((a) => a.sort(function compare(x, y) { return park(); })); },
  constructed() { return Shape.make(); },
  getter() { return new Shape(() => 1).open.call(new (class Sub extends Shape {})(() => 1)); },
  generated() { return Array.from(generator()); },
  async() { later(); },
  evaluated,
  script,
  ünïcode() { return 'abc'.replace(/b/, () => park()); },
  proxied() { return new Proxy({}, { get() { return park(); } }).x; },
  json() { return JSON.parse('{"a":[1]}', function reviver(k, v) { return park(); }); },
  printed() { return `${{ toString() { return park(); } }}`; },
};

if (isMainThread) {
  const names = Array(Number(process.argv[2] || 1)).fill(Object.keys(ways)).flat();
  let left = names.length;
  const parked = () => { if (--left === 0) say('parked ' + names.length); };
  for (const way of names) new Worker(__filename, { workerData: { word: word.buffer, way } }).on('message', parked);
} else {
  ways[workerData.way]();
}
