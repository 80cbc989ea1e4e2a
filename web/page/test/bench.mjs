// Measures the page in Chromium, by its own tracing: time to first paint, frame
// rate while panning and zooming, memory. Started by bench/web.sh:
//
//	node bench.mjs SLIVER CHROMIUM FOLDER PID BIG
//
// PID is a program to record, BIG a recording of ten million events. It prints
// rows of a Markdown table.
import { chromium } from 'playwright-core';
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';

const [, , sliver, executablePath, folder, pid, big] = process.argv;
const serve = async (...args) => {
  const began = performance.now();
  const p = spawn(sliver, args, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  const url = await new Promise((ok, bad) => {
    p.stderr.on('data', (b) => {
      said += b;
      const m = /^page: (\S+)$/m.exec(said);
      if (m) ok(m[1]);
    });
    p.once('exit', (c) => bad(new Error(`sliver ended with ${c}: ${said}`)));
  });
  return { url, began, stop: () => new Promise((ok) => { p.once('exit', ok); p.kill('SIGINT'); }) };
};
const row = (what, value, target) => console.log(`| ${what} | ${value} | ${target} |`);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

// framesDuring traces f and returns the times between the frames that were drawn, ms.
async function framesDuring(page, f) {
  const cdp = await page.context().newCDPSession(page);
  const events = [];
  cdp.on('Tracing.dataCollected', (e) => events.push(...e.value));
  await cdp.send('Tracing.start', { traceConfig: { includedCategories: ['disabled-by-default-devtools.timeline.frame', 'devtools.timeline.frame'] } });
  await f();
  const done = new Promise((ok) => cdp.once('Tracing.tracingComplete', ok));
  await cdp.send('Tracing.end');
  await done;
  const at = events.filter((e) => e.name === 'DrawFrame').map((e) => e.ts / 1000).sort((a, b) => a - b);
  return at.slice(1).map((t, i) => t - at[i]).sort((a, b) => a - b);
}
const q = (v, p) => v[Math.min(v.length - 1, Math.floor(p * v.length))];
const rate = (v) => `${(1000 * v.length / v.reduce((a, b) => a + b, 0)).toFixed(0)} a second; p50 ${q(v, 0.5).toFixed(1)} ms, p95 ${q(v, 0.95).toFixed(1)} ms`;

// memory is what the page's process has for itself, MB.
async function memory(page) {
  const root = await browser.newBrowserCDPSession();
  const { processInfo } = await root.send('SystemInfo.getProcessInfo');
  let most = 0;
  for (const p of processInfo.filter((x) => x.type === 'renderer')) {
    const text = await readFile(`/proc/${p.id}/smaps_rollup`, 'utf8').catch(() => '');
    const kb = [...text.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+)/gm)].reduce((a, m) => a + Number(m[1]), 0);
    most = Math.max(most, kb / 1024);
  }
  const heap = await page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0);
  return `${most.toFixed(0)} MB in its process, ${(heap / 1e6).toFixed(0)} MB of it JavaScript's`;
}

async function open(url) {
  const page = await (await browser.newContext({ viewport: { width: 1400, height: 860 } })).newPage();
  await page.goto(url);
  await page.waitForFunction(() => window.sliver?.state.tracks.length > 0 && window.sliver.item('', 4) !== null, undefined, { timeout: 60000 });
  const paint = await page.evaluate(() => performance.getEntriesByType('paint').find((p) => p.name === 'first-contentful-paint')?.startTime);
  return { page, paint };
}

{
  const s = await serve('record', '-p', pid, '-i', '2ms', '--web', '-o', 'bench.sliver');
  await (await open(s.url)).page.close(); // the browser has started
  const { page, paint } = await open(s.url);
  row('live page, first paint', `${paint.toFixed(0)} ms`, '300 ms');
  await page.waitForTimeout(3000);
  row('live page, 15 threads at 2 ms, frames', rate(await framesDuring(page, () => page.waitForTimeout(8000))), '60 a second');
  // From the sample to the screen: the newest event drawn, against the clock that samples are stamped with.
  const base = BigInt(await page.evaluate(() => window.sliver.state.hello.base));
  const lag = [];
  for (let i = 0; i < 200; i++) {
    const newest = await page.evaluate(() => new Promise((ok) => requestAnimationFrame(() => ok(window.sliver.newest()))));
    lag.push(Number(process.hrtime.bigint() - base) / 1e6 - newest / 1e6);
  }
  lag.sort((a, b) => a - b);
  row('from a sample to its pixel', `p50 ${q(lag, 0.5).toFixed(0)} ms, p99 ${q(lag, 0.99).toFixed(0)} ms`, '250 ms');
  row('live page, memory', await memory(page), '300 MB');
  await page.context().close();
  await s.stop();
}
{
  const s = await serve('view', big);
  const { page, paint } = await open(s.url);
  await page.waitForFunction(() => window.sliver.state.status?.done, undefined, { timeout: 60000 });
  row('10 M events over 64 threads, all in the page', `${(performance.now() - s.began).toFixed(0)} ms from the start of sliver, first paint ${paint.toFixed(0)} ms`, '2 s');
  await page.waitForTimeout(1500);
  const b = await page.locator('#calls').boundingBox();
  const v = await framesDuring(page, async () => {
    await page.mouse.move(b.x + b.width / 2, b.y + 200);
    for (let i = 0; i < 40; i++) {
      await page.mouse.wheel(0, i % 20 < 10 ? -160 : 160);
      await page.waitForTimeout(60);
    }
    await page.keyboard.down('d');
    await page.waitForTimeout(2000);
    await page.keyboard.up('d');
    await page.keyboard.down('a');
    await page.waitForTimeout(2000);
    await page.keyboard.up('a');
  });
  row('the same, panning and zooming, frames', rate(v), '60 a second');
  row('the same, memory', await memory(page), '300 MB');
  await page.context().close();
  await s.stop();
}
await browser.close();
