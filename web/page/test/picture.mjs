// Takes the pictures of the README: see docs/img/live.sh.
//
//	node picture.mjs SLIVER CHROMIUM FOLDER PID OUT
import { chromium } from 'playwright-core';
import { spawn } from 'node:child_process';
import { join } from 'node:path';

const [, , sliver, executablePath, folder, pid, out] = process.argv;
const p = spawn(sliver, ['record', '-p', pid, '-i', '1ms', '--max-overhead', '0', '--web', '-o', 'picture.sliver'], {
  cwd: folder,
  stdio: ['ignore', 'ignore', 'pipe'],
});
let said = '';
const url = await new Promise((ok, bad) => {
  p.stderr.on('data', (b) => {
    said += b;
    const m = /^page: (\S+)$/m.exec(said);
    if (m) ok(m[1]);
  });
  p.once('exit', () => bad(new Error(said)));
});
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
const token = url.replace(/.*token=/, '');
const ask = async (q) =>
  (await fetch(url.replace(/#.*/, 'api/query'), { method: 'POST', headers: { 'X-Sliver-Token': token }, body: JSON.stringify(q) })).json();
const until = async (f) => {
  while (!(await f())) await new Promise((ok) => setTimeout(ok, 200));
};
await until(async () => {
  const s = await ask({ op: 'status' });
  return s.to - s.from > 12e9;
});

// The piece of 90 ms with the most waits for the lock and the fewest gaps.
const span = 90e6;
const st = await ask({ op: 'status' });
const main = st.threads.find((t) => t.main).seq;
const cooks = st.threads
  .filter((t) => /^cook/.test(t.name))
  .sort((a, b) => a.tid - b.tid)
  .map((t) => t.seq);
let best = { score: -Infinity };
for (let from = st.from + 2e9; from < st.to - 2e9; from += 2e9) {
  const r = await ask({ op: 'slices', t0: from, t1: from + 2e9, bin: 1, threads: [main, ...cooks] });
  for (let t0 = from; t0 < from + 2e9 - span; t0 += span / 4) {
    let score = 0;
    for (const t of r.threads) {
      for (const row of t.rows) {
        const inside = row.items.filter((x) => x[0] > t0 && x[0] < t0 + span);
        if (row.depth === 0xfffe) score += Math.min(4, inside.filter((x) => x[1] - x[0] > span / 40).length);
        if (row.depth === 0xfffc) score -= inside.reduce((a, x) => a + 2 + (x[1] - x[0]) / 1e6, 0);
      }
    }
    if (score > best.score) best = { score, t0 };
  }
}
// A wait of the second cook in it, to have in the side panel.
const names = (await ask({ op: 'names' })).funcs.map((f) => f.name);
let call;
for (const seq of cooks.slice(0, 3)) {
  const r = await ask({ op: 'slices', t0: best.t0, t1: best.t0 + span, bin: 1, threads: [seq] });
  for (const row of r.threads[0].rows) {
    for (const x of row.items) {
      if (names[x[2]] === 'pthread_mutex_lock' && x[0] > best.t0 && x[1] < best.t0 + span && (!call || x[1] - x[0] > call.long))
        call = { seq, depth: row.depth, start: x[0], long: x[1] - x[0] };
    }
  }
}
for (const colorScheme of ['light', 'dark']) {
  const page = await browser.newPage({
    viewport: { width: 1280, height: 900 },
    deviceScaleFactor: 1.5,
    colorScheme,
    reducedMotion: 'reduce',
  });
  const order = [main, ...cooks, ...st.threads.map((t) => t.seq).filter((s) => s !== main && !cooks.includes(s))];
  const selected = call ? `&call=${call.seq},${call.depth},${call.start}` : '';
  await page.goto(`${url}&t0=${Math.round(best.t0)}&t1=${Math.round(best.t0 + span)}&order=${order}${selected}`);
  await page.waitForFunction(() => window.sliver?.state.arrows.length > 0, undefined, { timeout: 60_000 });
  await page.waitForFunction(() => /Median/.test(document.getElementById('side').innerText));
  await page.waitForFunction(() => !/Adding up/.test(document.body.innerText));
  const grip = await page.locator('.grip').first().boundingBox();
  await page.mouse.move(grip.x + 300, grip.y + grip.height / 2); // more room for the timeline
  await page.mouse.down();
  await page.mouse.move(grip.x + 300, 625);
  await page.mouse.up();
  await page.mouse.move(2, 2);
  await page.waitForTimeout(1500);
  await page.screenshot({ path: join(out, colorScheme === 'dark' ? 'live-dark.png' : 'live.png') });
  await page.close();
}
await browser.close();
p.kill('SIGTERM');
await new Promise((ok) => p.once('exit', ok));
