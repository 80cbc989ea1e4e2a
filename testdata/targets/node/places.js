// places.js PATH: as python/places.py, with one thread.
'use strict';
const fs = require('fs');

function zero(n, depth) {
  step(n, depth);
}

function one(n, depth) {
  step(n, depth);
}

function step(n, depth) {
  if (depth === 0) fs.closeSync(fs.openSync(process.argv[2]));
  else if (n & 1) one(n >> 1, depth - 1);
  else zero(n >> 1, depth - 1);
}

console.log('ready', process.pid);
let turn = 0;
setInterval(() => {
  const n = turn++ % 64;
  step(n, 4 + n % 16);
}, 11);
