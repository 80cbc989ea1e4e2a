// What the page's tests have in common: servers, pages, and waiting for what
// can be seen.
import { chromium } from 'playwright-core';
import { spawn } from 'node:child_process';
import { join } from 'node:path';

export const [, , program, executablePath, pictures, ...only] = process.argv;
// Every case holds in both colour schemes, and on a phone.
export const scheme = process.env.SLIVER_SCHEME === 'dark' ? 'dark' : 'light';
export const aPhone = { viewport: { width: 390, height: 780 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
export const phone = process.env.SLIVER_SCREEN === 'phone';
export const running = new Set();
const stopped = new Set(); // servers: a request to one may find its connection reset

export async function serve(...args) {
  const p = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  running.add(p);
  p.stderr.resume();
  const url = await new Promise((ok, bad) => {
    p.stdout.once('data', (b) => ok(String(b).trim()));
    p.once('exit', (c) => bad(new Error(`the server ended with ${c}`)));
  });
  const exit = new Promise((ok) => p.once('exit', ok));
  const away = (how) => {
    stopped.add(new URL(url).host);
    running.delete(p);
    how();
    return exit;
  };
  return { url, tell: (s) => p.stdin.write(`${s}\n`), stop: () => away(() => p.stdin.end()), kill: () => away(() => p.kill('SIGKILL')) };
}

// sliver starts the program with these arguments in a folder and waits for its page.
export async function sliver(args, folder) {
  const p = spawn(program, args, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, SSH_CONNECTION: '' } });
  running.add(p);
  let said = '';
  const exit = new Promise((ok) =>
    p.once('exit', (c) => {
      running.delete(p);
      ok(c);
    }),
  );
  const url = await new Promise((ok, bad) => {
    p.stderr.on('data', (b) => {
      said += b;
      const m = /^page: (\S+)$/m.exec(said);
      if (m) ok(m[1]);
    });
    void exit.then((c) => bad(new Error(`sliver ${args.join(' ')} ended with ${c}: ${said}`)));
  });
  return {
    url,
    said: () => said,
    exit,
    stop: () => {
      p.kill('SIGINT');
      return exit;
    },
  };
}

export const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

// open loads the page, after what before does in it, and watches for what must never happen.
export async function open(url, { before, ...o } = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: 'reduce',
    acceptDownloads: true,
    colorScheme: scheme,
    ...(phone ? aPhone : {}),
    ...o,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.problems = [];
  page.on('pageerror', (e) => page.problems.push(`error: ${e.message}`));
  page.on('console', (m) => {
    if (m.type() === 'error' && stopped.has(new URL(url).host) && /ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/.test(m.text())) return;
    if (m.type() === 'error' && !/ERR_CONNECTION_REFUSED|WebSocket connection|status of (400|401|500)/.test(m.text()))
      page.problems.push(`console: ${m.text()}`);
  });
  page.on('request', (r) => {
    const u = new URL(r.url());
    if (u.protocol !== 'blob:' && u.protocol !== 'data:' && u.host !== new URL(url).host)
      page.problems.push(`a request left for ${u.host}`);
  });
  if (before) await page.addInitScript(before);
  await page.goto(url);
  return page;
}
export const state = (page) => page.evaluate(() => window.sliver.state);
export const until = (page, f, arg) => page.waitForFunction(f, arg, { polling: 50, timeout: 60_000 });
export const ready = (page) => until(page, () => window.sliver?.state.tracks.length > 0 && window.sliver.item('', 4) !== null);
// drawn waits for two frames: the page hears of a scroll one frame later.
export const drawn = (page) => page.evaluate(() => new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(() => ok()))));
// scroll brings a height of the tracks, or the nth element of a selector among them, to the top, `above` pixels below it.
// The rows are where they were until the next frame, before the scroll (they may have unfolded) and after it.
export const scroll = async (page, to, nth = 0, above = 0) => {
  await drawn(page);
  await page.evaluate(
    ([to, nth, above]) => {
      const y = typeof to === 'number' ? to : parseFloat(document.querySelectorAll(to)[nth].style.top);
      document.getElementById('tracks').scrollTop = y - above;
    },
    [to, nth, above],
  );
  await drawn(page);
};
export const settled = async (page) => {
  let last = '';
  await drawn(page);
  for (;;) {
    const s = await state(page);
    const now = `${s.t0}/${s.t1}`;
    if (now === last) return s;
    last = now;
    await page.waitForTimeout(120);
  }
};
export const item = async (page, name = '', wide = 12) => {
  await until(page, ([n, w]) => window.sliver.item(n, w) !== null, [name, wide]);
  return page.evaluate(([n, w]) => window.sliver.item(n, w), [name, wide]);
};
// pixels counts the colours in a part of a canvas.
export const pixels = (page, id, x, y, w, h) =>
  page.evaluate(
    ([id, x, y, w, h]) => {
      const c = document.getElementById(id);
      const d = devicePixelRatio;
      const b = c.getContext('2d').getImageData(x * d, y * d, w * d, h * d).data;
      const set = new Set();
      for (let i = 0; i < b.length; i += 4) set.add((b[i] << 16) | (b[i + 1] << 8) | b[i + 2]);
      return set.size;
    },
    [id, x, y, w, h],
  );
export const picture = async (page, name) => {
  if (pictures && pictures !== '-') await page.screenshot({ path: join(pictures, `${name}.png`) });
};
export const canvas = async (page) => page.locator('#calls').boundingBox();
// Where an element of a live page is. The element may be replaced between its being found and being
// measured; the next one is at the same place. It waits at most as long as a locator does.
export async function placeOf(locator) {
  for (;;) {
    await locator.waitFor();
    const box = await locator.boundingBox();
    if (box) return box;
  }
}
// zoomBy turns the wheel with Ctrl, which zooms.
export const zoomBy = async (page, dy) => {
  await page.keyboard.down('Control');
  await page.mouse.wheel(0, dy);
  await page.keyboard.up('Control');
};
// analyzed waits until the panel shows the present scope.
export const analyzed = (page) => until(page, () => window.sliver.state.analyzed);
// tall gives the tracks the room of the panel.
export const tall = (page) =>
  page.evaluate(() => {
    document.getElementById('panel').style.height = '80px';
  });
export const tab = (page, name) => page.getByRole('tab', { name, exact: true }).click();
export const select = async (page, from, to) => {
  const b = await canvas(page);
  await page.mouse.move(b.x + b.width * from, b.y + 150);
  await page.mouse.down();
  await page.mouse.move(b.x + (b.width * (from + to)) / 2, b.y + 160, { steps: 3 });
  await page.mouse.move(b.x + b.width * to, b.y + 160, { steps: 3 });
  await page.mouse.up();
  await page.getByRole('button', { name: 'Clear range' }).waitFor();
  await analyzed(page);
};
// shown is what a page says in words, for a case that failed.
export const shown = async (page) => {
  const of = (id) =>
    page
      .locator(id)
      .innerText({ timeout: 2000 })
      .then(
        (s) => `     ${id}: ${s.replace(/\s+/g, ' ').slice(0, 500)}`,
        () => `     ${id}: –`,
      );
  const parts = await Promise.all(['header', '#side', '#panel', '#empty'].map(of));
  const { tracks, ...st } = await state(page);
  return [...parts, `     ${JSON.stringify(st).slice(0, 500)}`, ...page.problems.map((p) => `     ${p}`)].join('\n');
};
