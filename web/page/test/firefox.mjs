// Uses the page in Firefox: a file that `sliver export -o run.html` wrote, from the disk, and the same
// recording as a server shows it. Started by TestShareFile of cmd/sliver with
//
//	node firefox.mjs SLIVER FIREFOX PICTURES|- FILE RECORDING
//
// FILE is of RECORDING, of testdata/targets/locks/kitchen.c. Other tests use Chromium by Playwright, which
// does not know this Firefox.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { launch } from 'puppeteer-core';

const [, , sliver, executablePath, pictures, file, recording] = process.argv;
const size = { width: 1440, height: 900 };
const browser = await launch({ browser: 'firefox', executablePath, headless: true, defaultViewport: size });

// serve starts sliver and returns the address of its page.
function serve() {
  const p = spawn(sliver, ['view', recording], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, SSH_CONNECTION: '' } });
  const exit = new Promise((ok) => p.once('exit', ok));
  return new Promise((ok, bad) => {
    let said = '';
    p.stderr.on('data', (b) => {
      said += b;
      const m = /^page: (\S+)$/m.exec(said);
      if (m) ok({ url: m[1], stop: () => p.kill('SIGINT') && exit });
    });
    void exit.then((c) => bad(new Error(`sliver view ended with ${c}: ${said}`)));
  });
}

const state = (page) => page.evaluate(() => window.sliver.state);
const until = (page, f, ...args) => page.waitForFunction(f, { polling: 50, timeout: 60_000 }, ...args);
const analyzed = (page) => until(page, () => window.sliver.state.analyzed);
const text = (page, id) => page.$eval(id, (e) => e.innerText);
const picture = async (page, name) => {
  if (pictures !== '-') await page.screenshot({ path: join(pictures, `${name}.png`) });
};
// still waits until the view does not move and has its blocks.
const still = (page) =>
  until(page, () => {
    const { t0, t1, fine } = window.sliver.state;
    const now = `${t0}/${t1}`;
    const same = window.before === now;
    window.before = now;
    return same && fine && window.sliver.item('', 12) !== null;
  });

// colors counts those in the upper part of a canvas.
const colors = (page, id) =>
  page.$eval(id, (c) => {
    const b = c.getContext('2d').getImageData(0, 0, c.width, Math.min(c.height, 300)).data;
    const set = new Set();
    for (let i = 0; i < b.length; i += 4) set.add((b[i] << 16) | (b[i + 1] << 8) | b[i + 2]);
    return set.size;
  });

async function use(url, name) {
  const page = await browser.newPage();
  const problems = [];
  page.on('pageerror', (e) => problems.push(`error: ${e.message}`));
  page.on('console', (m) => m.type() === 'error' && problems.push(`console: ${m.text()}`));
  page.on('request', (r) => {
    const u = new URL(r.url());
    if (!['blob:', 'data:'].includes(u.protocol) && u.host !== new URL(url).host) problems.push(`a request left for ${u.host}`);
  });
  await page.goto(url);
  await until(page, () => window.sliver?.state.tracks.length > 0);
  await analyzed(page);
  await still(page);
  assert.match(await text(page, '#panel-body'), /mutex oven[\s\S]*held mostly by cook-\d/);
  await picture(page, `firefox-${name}`);
  const drawn = await colors(page, '#calls');
  assert.ok(drawn > 8, `the tracks have ${drawn} colours`);
  // A call: its parts make up its length.
  const it = await page.evaluate(() => window.sliver.item('', 12));
  await page.mouse.click(it.x, it.y);
  await until(page, (n) => document.querySelector('#side h2')?.textContent.includes(n), it.name);
  await until(page, () => window.sliver.state.sums?.parts.length > 0);
  const { sums } = await state(page);
  const parts = sums.parts.reduce((n, p) => n + p.total, 0);
  assert.ok(Math.abs(parts - (sums.end - sums.start)) < 2, `the parts of a call are ${parts} ns, it took ${sums.end - sums.start}`);
  await page.keyboard.press('Escape');
  // Ctrl and the wheel zoom, a drag selects, 0 shows all.
  const all = await state(page);
  const box = await (await page.$('#calls')).boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 100);
  await page.keyboard.down('Control');
  await page.mouse.wheel({ deltaY: -600 });
  await page.keyboard.up('Control');
  await until(page, (w) => window.sliver.state.t1 - window.sliver.state.t0 < 0.8 * w, all.t1 - all.t0);
  await page.keyboard.press('0');
  await until(page, (w) => window.sliver.state.t1 - window.sliver.state.t0 > 0.98 * w, all.t1 - all.t0);
  await still(page);
  await analyzed(page);
  const whole = (await state(page)).total;
  await page.mouse.move(box.x + box.width * 0.3, box.y + 150);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 160, { steps: 3 });
  await page.mouse.move(box.x + box.width * 0.6, box.y + 160, { steps: 3 });
  await page.mouse.up();
  await until(page, () => window.sliver.state.range !== null);
  await analyzed(page);
  const part = (await state(page)).total;
  assert.ok(part > 0 && part < whole, `a range has ${part} ns of CPU time, all of it ${whole}`);
  await page.keyboard.press('Escape');
  // Each tab, and the analysis again.
  for (const name of ['Flame graph', 'Call tree', 'Functions', 'Waits', 'Locks', 'Overview']) {
    await page.evaluate((n) => [...document.querySelectorAll('[role=tab]')].find((t) => t.textContent === n).click(), name);
    await analyzed(page);
    await picture(page, `firefox-${name}`);
    if (name === 'Flame graph') assert.ok((await colors(page, '#panel .flame canvas')) > 8, 'the flame graph is not drawn');
    else assert.match(await text(page, '#panel-body'), /mutex oven|knead|bake/, name);
  }
  await page.keyboard.press('/');
  await page.keyboard.type('knead');
  await until(page, () => /calls, /.test(document.querySelector('.search output').innerText));
  assert.deepEqual(problems, []);
  await page.close();
}

let failed = 0;
const served = await serve();
for (const [name, url] of [
  ['file', pathToFileURL(file).href],
  ['served', served.url],
]) {
  try {
    await use(url, name);
    console.log(`ok   Firefox, ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL Firefox, ${name}\n${e.stack ?? e}`);
  }
}
await browser.close();
await served.stop();
process.exit(failed ? 1 : 0);
