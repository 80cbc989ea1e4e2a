// Builds the page into ../dist, which the Go program embeds. Nothing of the
// environment goes in, so that equal sources give equal bytes.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { cp, mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, '..', 'dist');
await mkdir(out, { recursive: true });
await rm(join(out, 'app.js'), { force: true });
await build({
  entryPoints: [join(here, 'src', 'boot.ts')],
  outfile: join(out, 'app.js'),
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['chrome110', 'firefox115', 'safari16'],
  charset: 'utf8',
  legalComments: 'none',
});
const css = await build({
  entryPoints: [join(here, 'src', 'style.css')],
  bundle: true,
  minify: true,
  write: false,
});
// The style and the picture are in the page itself: its frame is painted without
// another request. The script's address has its hash, so that it is kept for good.
let html = await readFile(join(here, 'src', 'index.html'), 'utf8');
const put = (what, by) => {
  const [before, after, more] = html.split(what);
  if (after === undefined || more !== undefined) throw new Error(`index.html has no place, or two, for ${what}`);
  html = before + by + after;
};
const style = css.outputFiles[0].text.trim();
if (style.includes('</')) throw new Error('the style would end its element');
put('<style></style>', `<style>${style}</style>`);
put('"icon.svg"', `"data:image/svg+xml,${encodeURIComponent((await readFile(join(here, 'src', 'icon.svg'), 'utf8')).trim())}"`);
put(
  '"app.js"',
  '"app.js?' +
    createHash('sha256')
      .update(await readFile(join(out, 'app.js')))
      .digest('hex')
      .slice(0, 16) +
    '"',
);
await writeFile(join(out, 'index.html'), html);

// speedscope as its authors built it, but for its example and its reader of
// JFR files, which this page never gives it.
const from = join(here, 'node_modules', 'speedscope');
const to = join(out, 'speedscope');
await rm(to, { recursive: true, force: true });
await mkdir(to, { recursive: true });
for (const name of (await readdir(join(from, 'dist', 'release'))).sort()) {
  if (/^(perf-vertx|jfrview)/.test(name)) continue;
  await cp(join(from, 'dist', 'release', name), join(to, name));
}
await cp(join(from, 'LICENSE'), join(to, 'LICENSE.txt'));
