// Draws what two commands printed in a terminal: see docs/img/terminal.sh.
//
//	node terminal.mjs CHROMIUM FOLDER OUT
import { chromium } from 'playwright-core';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const [, , executablePath, folder, out] = process.argv;
const xterm = join(folder, 'node_modules/@xterm/xterm');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
for (const [name, rows] of [
  ['top', 30],
  ['report', 60],
]) {
  // script(1) writes a first and a last line of its own.
  const text = readFileSync(join(folder, `${name}.txt`), 'utf8')
    .replace(/^Script started on .*\n/, '')
    .replace(/\n*Script done on .*\n?$/, '');
  const page = await browser.newPage({ viewport: { width: 1100, height: 1200 }, deviceScaleFactor: 1.5 });
  await page.setContent('<body style="margin:0;background:#fff"><div id="t" style="display:inline-block;padding:8px"></div>');
  await page.addStyleTag({ path: join(xterm, 'css/xterm.css') });
  await page.addScriptTag({ path: join(xterm, 'lib/xterm.js') });
  await page.evaluate(
    async ({ text, rows }) => {
      const theme = { background: '#ffffff', foreground: '#1f2328', cursor: '#ffffff', cursorAccent: '#ffffff', brightBlack: '#59636e' };
      const t = new window.Terminal({ cols: 110, rows, fontSize: 13, convertEol: true, theme, minimumContrastRatio: 4.5 });
      t.open(document.getElementById('t'));
      await new Promise((ok) => t.write(text, ok));
      // As many rows as there is text.
      const b = t.buffer.active;
      let n = b.length;
      while (n > 1 && !b.getLine(n - 1).translateToString(true)) n--;
      t.resize(110, Math.min(n, 60));
      t.scrollToTop();
      await new Promise((ok) => setTimeout(ok, 500));
    },
    { text, rows },
  );
  await page.locator('#t').screenshot({ path: join(out, `${name}.png`) });
  await page.close();
}
await browser.close();
