// Runs loops in functions that the optimizing compilers put into their caller, one after
// the other, for some seconds (the first argument) after "ready PID" and a line of input,
// then writes a line "name from to" for each run to the second argument, prints "done"
// and waits for another line.
'use strict';
const fs = require('node:fs');

const now = () => process.hrtime.bigint();
const numbers = Array.from({ length: 100 }, (_, i) => i * 1.5);
const words = numbers.map((x) => 'word ' + x);

function whole(n) {
  let s = 0;
  for (let i = 0; i < n * 800; i++)
    s = (s * 31 + i) | 0;
  return s;
}
function arrays(n) {
  let s = 0;
  for (let i = 0; i < n * 8; i++) {
    for (let j = 0; j < numbers.length; j++)
      s += numbers[j];
  }
  return s;
}
function roots(n) {
  let x = 1;
  let left = n * 100;
  while (left-- > 0)
    x = Math.sqrt(x + left);
  return x;
}
function objects(n) {
  const kept = [];
  for (let i = 0; i < n * 40; i++) {
    const o = { i, half: i / 2 };
    kept.push(o);
  }
  return kept.length;
}
function lengths(n) {
  let s = 0;
  for (let i = 0; i < n * 2; i++)
    for (const w of words) s += w.length;
  return s;
}

function turn(log, at, n) {
  log[at] = now();
  let s = whole(n);
  log[at + 1] = now();
  s += arrays(n);
  log[at + 2] = now();
  s += roots(n);
  log[at + 3] = now();
  s += objects(n);
  log[at + 4] = now();
  s += lengths(n);
  log[at + 5] = now();
  return s;
}
const names = ['whole', 'arrays', 'roots', 'objects', 'lengths'];

function work(ns, n) {
  const log = [];
  const end = now() + ns;
  while (now() < end) turn(log, log.length, n);
  return log;
}

(async () => {
  work(1500000000n, 1); // until all is compiled
  console.log('ready ' + process.pid);
  const lines = require('node:readline').createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  await lines.next();
  const log = work(BigInt(Math.round(process.argv[2] * 1e9)), 100);
  let out = '';
  for (let i = 0; i + names.length < log.length; i += names.length + 1) {
    for (let k = 0; k < names.length; k++) out += `${names[k]} ${log[i + k]} ${log[i + k + 1]}\n`;
  }
  fs.writeFileSync(process.argv[3], out);
  console.log('done');
  await lines.next();
  process.exit(0);
})();
