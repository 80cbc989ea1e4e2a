// Bundles a program with webpack and terser, as they are in @vercel/ncc, again and again:
// the first argument is ncc's dist/ncc. "ready PID", a line of input, then "busy".
'use strict';
const path = require('node:path');
const dir = process.argv[2];

console.log('ready ' + process.pid);
process.stdin.once('data', async () => {
  const bundle = require(path.join(dir, 'index.js'));
  console.log('busy');
  for (;;) {
    for (const program of ['sourcemap-register.js.cache.js', 'cli.js.cache.js'])
      await bundle(path.join(dir, program), { cache: false, minify: true, quiet: true });
  }
});
