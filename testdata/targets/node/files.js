// files.js PATH: prints "ready PID"; for each line of input it opens PATH, reads 25 times 100 bytes, and
// prints "truth" with its own functions, innermost first, then "done".
'use strict';
const fs = require('fs');
const path = process.argv[2];

function reading(fd) {
  const buf = Buffer.alloc(100);
  for (let i = 0; i < 25; i++) fs.readSync(fd, buf, 0, 100, 0);
  return new Error().stack.split('\n').slice(1, 3).map((l) => l.trim().split(' ')[1]);
}

function serving() {
  const fd = fs.openSync(path, 'r');
  const names = reading(fd);
  fs.closeSync(fd);
  return names;
}

console.log(`ready ${process.pid}`);
process.stdin.on('data', () => {
  console.log(`truth ${serving().join(' ')}\ndone`);
});
