// Fails if a line of the sources or tests is longer than the limit. The formatter breaks code and leaves
// strings and comments alone.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

const limit = 140; // columns
let bad = 0;
for (const folder of ['.', 'src', 'test']) {
  for (const name of (await readdir(join(import.meta.dirname, folder))).sort()) {
    if (!/\.(ts|mjs|css|html)$/.test(name)) continue;
    const text = await readFile(join(import.meta.dirname, folder, name), 'utf8');
    for (const [i, line] of text.split('\n').entries()) {
      if (line.length <= limit) continue;
      console.error(`${join(folder, name)}:${i + 1}: ${line.length} columns, at most ${limit}`);
      bad++;
    }
  }
}
process.exit(bad ? 1 : 0);
