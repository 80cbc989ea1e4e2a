// Measures the page in Chromium, by its own tracing: time to first paint and to
// the first calls, frames and the work in them while following, panning and
// zooming, memory. Started by bench/web.sh:
//
//	node bench.mjs SLIVER CHROMIUM FOLDER live PID
//	node bench.mjs SLIVER CHROMIUM FOLDER big RECORDING
//
// PID is a program to record, RECORDING one of ten million events. It prints
// rows of a Markdown table.
import { chromium } from 'playwright-core';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';

const [, , sliver, executablePath, folder, part, what] = process.argv;
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
  return {
    url,
    began,
    pid: p.pid,
    stop: () =>
      new Promise((ok) => {
        p.once('exit', ok);
        p.kill('SIGINT');
      }),
  };
};
const row = (name, value, target = '') => console.log(`| ${name} | ${value} | ${target} |`);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
const root = await browser.newBrowserCDPSession();

// framesDuring traces f: the times between frames that were drawn, and the time
// that the page's script took in each frame, all in ms and sorted.
async function framesDuring(page, f) {
  const cdp = await page.context().newCDPSession(page);
  const events = [];
  cdp.on('Tracing.dataCollected', (e) => events.push(...e.value));
  await cdp.send('Tracing.start', {
    traceConfig: { includedCategories: ['disabled-by-default-devtools.timeline.frame', 'devtools.timeline.frame', 'devtools.timeline'] },
  });
  const was = await cpu();
  const began = performance.now();
  await f();
  const span = performance.now() - began;
  const is = await cpu();
  const done = new Promise((ok) => cdp.once('Tracing.tracingComplete', ok));
  await cdp.send('Tracing.end');
  await done;
  const at = events
    .filter((e) => e.name === 'DrawFrame')
    .map((e) => e.ts / 1000)
    .sort((a, b) => a - b);
  const between = at
    .slice(1)
    .map((t, i) => t - at[i])
    .sort((a, b) => a - b);
  const own = events
    .filter((e) => e.name === 'FireAnimationFrame' && e.dur)
    .map((e) => e.dur / 1000)
    .sort((a, b) => a - b);
  const share = (type) => (((is[type] ?? 0) - (was[type] ?? 0)) * 1000) / span;
  return { between, own, page: share('renderer'), draws: share('GPU') };
}
// cpu is the CPU time of Chromium's processes so far, by their type, s.
async function cpu() {
  const { processInfo } = await root.send('SystemInfo.getProcessInfo');
  const out = {};
  for (const p of processInfo) out[p.type] = (out[p.type] ?? 0) + p.cpuTime;
  return out;
}
const q = (v, p) => v[Math.min(v.length - 1, Math.floor(p * v.length))];
const rate = (v) => {
  const second = (1000 * v.length) / v.reduce((a, b) => a + b, 0);
  return `${second.toFixed(0)} a second; p50 ${q(v, 0.5).toFixed(1)} ms, p95 ${q(v, 0.95).toFixed(1)} ms`;
};
const rows = (name, f) => {
  row(`${name}: frames drawn`, rate(f.between), '60 a second');
  row(
    `${name}: the page's own work in a frame`,
    `p50 ${q(f.own, 0.5).toFixed(1)} ms, p99 ${q(f.own, 0.99).toFixed(1)} ms, longest ${q(f.own, 1).toFixed(1)} ms of ${f.own.length}`,
    'well below 16 ms',
  );
  row(`${name}: CPUs in use by the page's process, by Chromium's drawing`, `${f.page.toFixed(2)}, ${f.draws.toFixed(2)}`);
};

// memory is what the page's process has for itself, MB.
async function memory(page) {
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

// open loads the page in a tab of a browser that is open already; its times
// count from the navigation's begin, ms.
const viewport = { width: 1400, height: 860 };
async function blank(context) {
  const page = await (context ?? (await browser.newContext({ viewport }))).newPage();
  await page.waitForTimeout(700); // Chromium draws its own window first
  return page;
}
async function open(url, context) {
  const page = await blank(context);
  await page.goto(url, { waitUntil: 'commit' });
  await page.waitForFunction(() => performance.getEntriesByName('sliver:calls').length > 0, undefined, { timeout: 60000, polling: 10 });
  const [paint, calls] = await page.evaluate(() => [
    performance.getEntriesByName('first-contentful-paint')[0].startTime,
    performance.getEntriesByName('sliver:calls')[0].startTime,
  ]);
  return { page, paint, calls };
}
const usual = (v) => {
  const s = [...v].sort((a, b) => a - b);
  const [median, most, longest] = [0.5, 0.9, 1].map((p) => q(s, p).toFixed(0));
  return `median ${median} ms, 9 of 10 within ${most} ms, longest ${longest} ms of ${s.length} loads`;
};
const spread = (v) =>
  `${[...v]
    .sort((a, b) => a - b)
    .map((x) => x.toFixed(0))
    .join(', ')} ms`;

if (part === 'live') {
  const s = await serve('record', '-p', what, '-i', '2ms', '--web', '-o', 'bench.sliver');
  // New tabs of one browser; each has its files from the server, as a tab has
  // that was never there.
  const paints = [];
  const calls = [];
  // What Chromium and the machine take: a page of one word, in turns with ours.
  const word = createServer((_, r) => r.setHeader('Content-Type', 'text/html').end('<!doctype html><title>word</title>word')).listen(
    0,
    '127.0.0.1',
  );
  const words = [];
  for (let i = 0; i < 25; i++) {
    const context = await browser.newContext({ viewport });
    const o = await open(s.url, context);
    await context.close();
    const other = await browser.newContext({ viewport });
    const page = await blank(other);
    await page.goto(`http://127.0.0.1:${word.address().port}/`, { waitUntil: 'commit' });
    await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint').length > 0, undefined, {
      timeout: 60000,
      polling: 10,
    });
    const least = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
    await other.close();
    if (i === 0) continue; // the browser has started
    paints.push(o.paint);
    calls.push(o.calls);
    words.push(least);
  }
  word.close();
  row('live page, first paint (its frame)', usual(paints), '300 ms');
  row('a page of one word in turns with it, first paint', usual(words));
  row('live page, first calls on the screen', usual(calls));
  const { page } = await open(s.url);
  await page.waitForTimeout(3000);
  rows('live page, 15 threads at 2 ms, followed', await framesDuring(page, () => page.waitForTimeout(8000)));
  // From the sample to the screen: the newest event drawn, against the clock that samples are stamped with.
  const base = BigInt(await page.evaluate(() => window.sliver.state.hello.base));
  const lag = [];
  for (let i = 0; i < 400; i++) {
    const newest = await page.evaluate(() => new Promise((ok) => requestAnimationFrame(() => ok(window.sliver.newest()))));
    lag.push(Number(process.hrtime.bigint() - base) / 1e6 - newest / 1e6);
  }
  lag.sort((a, b) => a - b);
  row('from a sample to its pixel', `p50 ${q(lag, 0.5).toFixed(0)} ms, p99 ${q(lag, 0.99).toFixed(0)} ms`, '250 ms');
  row('live page, memory', await memory(page), '300 MB');
  await page.context().close();
  await s.stop();
} else {
  const took = [];
  const paints = [];
  const calls = [];
  let s;
  let page;
  for (let i = 0; i < 4; i++) {
    if (s) {
      await page.context().close();
      await s.stop();
    }
    s = await serve('view', what);
    const o = await open(s.url);
    page = o.page;
    await page.waitForFunction(() => window.sliver.state.whole, undefined, { timeout: 60000, polling: 10 });
    if (i === 0) continue; // the browser has started
    took.push(performance.now() - s.began);
    paints.push(o.paint);
    calls.push(o.calls);
  }
  row('10 M events over 64 threads: first paint', spread(paints));
  row('the same: first calls on the screen', spread(calls));
  row('the same: all of it open and shown, from the start of sliver', spread(took), '2 s');
  await page.waitForTimeout(1500);
  const b = await page.locator('#calls').boundingBox();
  rows(
    'the same, zooming in and out',
    await framesDuring(page, async () => {
      await page.mouse.move(b.x + b.width / 2, b.y + 200);
      await page.keyboard.down('Control');
      for (let i = 0; i < 40; i++) {
        await page.mouse.wheel(0, i % 20 < 10 ? -160 : 160);
        await page.waitForTimeout(60);
      }
      await page.keyboard.up('Control');
    }),
  );
  await page.keyboard.press('w');
  await page.keyboard.press('w');
  rows(
    'the same, panning',
    await framesDuring(page, async () => {
      for (const k of ['d', 'a']) {
        await page.keyboard.down(k);
        await page.waitForTimeout(2000);
        await page.keyboard.up(k);
      }
    }),
  );
  row('the same, memory', await memory(page), '300 MB');
  await page.context().close();
  await s.stop();
}
await browser.close();
