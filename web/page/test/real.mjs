// Drives the page of real recordings: a program with threads that fight for a
// lock, watched live, and the file that comes of it. Started by
// TestPageOfRealPrograms of cmd/sliver with
//
//	node real.mjs SLIVER CHROMIUM PICTURES|- FOLDER PID [NAME…]
//
// PID is testdata/targets/locks/kitchen.c, SLIVER_CONVOY in the environment that of
// testdata/targets/java/Convoy.java.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import {
  aPhone,
  browser,
  canvas,
  item,
  only,
  open,
  picture,
  pixels,
  program,
  ready,
  running,
  select,
  settled,
  sliver,
  state,
  tab,
  tall,
  until,
} from './harness.mjs';

const [, , , folder, pid] = process.argv.slice(2);
const names = only.slice(2);
const cases = [];
const test = (name, f) => cases.push([name, f]);

const run = (...args) => sliver(args, folder);
const live = (...args) => run('record', '-p', pid, '-i', '2ms', '--max-overhead', '0', '--web', ...args);
const button = (page, name) => page.getByRole('button', { name, exact: true });
// arrow zooms in, at a wait for the lock, until an arrow can be seen; in another moment of the
// program if there is none.
async function arrow(page, lock) {
  for (let moment = 0, end = Date.now() + 60_000; moment < 4 || Date.now() < end; moment++) {
    for (let i = 0; moment && i < 12; i++) await page.keyboard.press('s');
    if (moment) await page.keyboard.press('End');
    await page.waitForTimeout(Math.min(moment, 3) * 500);
    await page.keyboard.press(' ');
    await settled(page);
    for (let i = 0; i < 12; i++) {
      await until(page, () => window.sliver.state.fine);
      const s = await state(page);
      // The main thread waits for another one's end, not for a mutex.
      const some =
        s.arrows.length > 12
          ? []
          : s.arrows.filter(
              (a) =>
                a.from !== s.tracks[0].seq &&
                a.x > 60 &&
                a.x < s.width - 60 &&
                Math.min(a.y0, a.y1) > 0 &&
                Math.max(a.y0, a.y1) < 680 &&
                s.tracks.find((t) => t.seq === a.from).mode !== 'compact' &&
                a.y0 < 500,
            );
      // Where samples are missing, the lane is hatched, and so is the holder's row, which hides the head.
      for (const a of some) if (await drawn(page, a, lock)) return a;
      await page.keyboard.press('w');
      await settled(page);
      await page.waitForTimeout(150);
    }
  }
  throw new Error('no arrow from a waiter to the holder');
}
// drawn reports whether an arrow's head, and the lane that it begins at, have the colour of locks.
const drawn = async (page, a, lock) =>
  (await coloured(page, a.x - 8, a.y1 - 6, 10, 12, lock)) > 4 && (await coloured(page, a.x, a.y0 - 4, 14, 8, lock)) > 20;
// coloured counts pixels near a colour around a point of the timeline.
const coloured = (page, x, y, w, h, hex) =>
  page.evaluate(
    ([x, y, w, h, hex]) => {
      const d = devicePixelRatio;
      const b = document
        .getElementById('calls')
        .getContext('2d')
        .getImageData(x * d, y * d, w * d, h * d).data;
      const want = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
      let n = 0;
      for (let i = 0; i < b.length; i += 4) if (want.every((v, k) => Math.abs(b[i + k] - v) < 40)) n++;
      return n;
    },
    [x, y, w, h, hex],
  );

for (const [colorScheme, lock] of [
  ['light', '#c2410c'],
  ['dark', '#fb923c'],
]) {
  test(`live, ${colorScheme}: names, the newest edge, locks and their holders`, async () => {
    const s = await live('-o', `live-${colorScheme}.sliver`);
    const page = await open(s.url, { colorScheme, reducedMotion: 'no-preference' });
    await ready(page);
    await tall(page);
    await until(page, () => window.sliver.item('handle_order', 12) !== null);
    assert.ok((await state(page)).follow);
    // From a sample to its pixel: the page's newest event against the clock that samples are stamped with.
    const base = BigInt((await state(page)).hello.base);
    let soonest = Infinity;
    for (let i = 0; i < 100 && soonest > 250; i++) {
      const t = await page.evaluate(() => window.sliver.newest());
      soonest = Math.min(soonest, Number(process.hrtime.bigint() - base) / 1e6 - t / 1e6);
    }
    assert.ok(soonest < 250, `the newest pixel is ${soonest} ms old`);
    assert.equal((await state(page)).tracks.length, 7);
    assert.match(await page.locator('#labels li').first().innerText(), new RegExp(`kitchen[\\s\\S]*${pid} · CPU`));
    await picture(page, `real-live-${colorScheme}`);
    const a = await arrow(page, lock);
    assert.notEqual(a.from, a.to);
    await picture(page, `real-locks-${colorScheme}`);
    const b = await canvas(page);
    await page.mouse.move(b.x + a.x + 5, b.y + a.y0);
    await until(page, () => /held by cook-\d \(\d+\) as told by the lock word/.test(document.getElementById('tip').innerText));
    assert.match(await page.locator('#tip').innerText(), /Waits for a lock\s+mutex oven/);
    await picture(page, `real-lock-tip-${colorScheme}`);
    // The call that waits, its reason, and the way to the holder.
    const li = (await state(page)).tracks.findIndex((t) => t.seq === a.from);
    if ((await state(page)).tracks[li].mode === 'part')
      await page
        .locator('#labels li')
        .nth(li)
        .getByRole('button', { name: /Show all/ })
        .click();
    await until(page, (seq) => window.sliver.state.tracks.find((t) => t.seq === seq).mode === 'full', a.from);
    const y = await page.evaluate((seq) => {
      const t = window.sliver.state.tracks.find((t) => t.seq === seq);
      return t.y - window.sliver.state.top + 22 + 8 + 17 * 5; // the sixth row: what bake() called
    }, a.from);
    await page.mouse.click(b.x + a.x + 5, b.y + y); // where the lane above has shown the lock
    const side = page.getByRole('complementary', { name: 'Selected call' });
    await until(page, () => /Median/.test(document.getElementById('side').innerText));
    // A wait may begin just as the lock is passed on: then it has no holder at its begin.
    const way = side.getByRole('button', { name: 'Go to the holder' });
    for (let i = 0; i < 20 && !(await way.isVisible()); i++) {
      await side.getByRole('button', { name: 'Next →' }).click();
      await settled(page);
      await page.waitForTimeout(200);
    }
    const panel = await side.innerText();
    assert.match(panel, /Lock\s+mutex oven[\s\S]*held by cook-\d/);
    await picture(page, `real-side-${colorScheme}`);
    const { thread } = (await state(page)).selected;
    await way.click();
    const tid = Number(/held by cook-\d \((\d+)\)/.exec(panel)[1]);
    const holder = (await state(page)).status.threads.find((t) => t.tid === tid).seq;
    assert.notEqual(holder, thread);
    await until(page, (seq) => window.sliver.state.selected?.thread === seq, holder);
    await page.keyboard.press('Escape');
    assert.deepEqual(page.problems, []);
    await page.context().close();
    await s.stop();
  });
}

test('live: drag reorders, so do the keys; pin, fold, hide', async () => {
  const s = await live('-o', 'order.sliver');
  const page = await open(s.url);
  await ready(page);
  // Which threads work is known by then.
  await until(page, () => window.sliver.state.tracks.length === 7 && window.sliver.state.edge - window.sliver.state.from > 2e9);
  const order = async () => (await state(page)).tracks.map((t) => t.seq);
  const before = await order();
  const rows = page.locator('#labels li');
  await rows.nth(3).dragTo(rows.nth(1));
  await until(page, (seq) => window.sliver.state.tracks[1].seq === seq, before[3]);
  assert.deepEqual(await order(), [before[0], before[3], before[1], before[2], before[4], before[5], before[6]]);
  await rows.nth(1).locator('.name').focus();
  await page.keyboard.press('Alt+ArrowDown');
  await until(page, (seq) => window.sliver.state.tracks[2].seq === seq, before[3]);
  await rows.nth(4).hover();
  await rows.nth(4).getByRole('button', { name: 'Keep on top' }).click();
  await until(page, (seq) => window.sliver.state.tracks[0].seq === seq, before[4]);
  for (const next of (await state(page)).tracks[0].mode === 'part' ? ['full', 'compact'] : ['compact']) {
    await rows.nth(0).locator('button').first().click();
    await until(page, (m) => window.sliver.state.tracks[0].mode === m, next);
  }
  const last = (await order())[6];
  await rows.nth(6).hover();
  await rows.nth(6).getByRole('button', { name: 'Hide this thread' }).click();
  await until(page, (seq) => window.sliver.state.tracks.every((t) => t.seq !== seq), last);
  await page.getByRole('button', { name: '1 hidden' }).waitFor();
  await picture(page, 'real-order');
  // The address brings the order back.
  const now = await order();
  await page.waitForTimeout(500);
  await page.reload();
  await ready(page);
  assert.deepEqual(await order(), now);
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await s.stop();
});

test('live: control reaches the recorder', async () => {
  const s = await live('-o', 'control.sliver');
  const page = await open(s.url, { viewport: { width: 1500, height: 800 } });
  await ready(page);
  await button(page, 'Pause').click();
  await button(page, 'Resume').waitFor();
  await until(page, () => window.sliver.state.status.status.paused);
  const n = (await state(page)).status.status.samples;
  await page.waitForTimeout(1200);
  assert.ok((await state(page)).status.status.samples - n < 30, 'samples come although it is paused');
  await button(page, 'Resume').click();
  await until(page, (n) => window.sliver.state.status.status.samples > n + 100, n);
  await page.getByLabel('Interval between samples').selectOption('5000000');
  await until(page, () => window.sliver.state.status.status.interval_ns === 5e6);
  const spec = page.getByLabel('Threads to sample');
  // Slowly: news of the recording come at the same time.
  await spec.fill('nosu');
  const to = (await state(page)).status.to;
  await until(page, (t) => window.sliver.state.status.to > t, to);
  await spec.pressSequentially('ch');
  await spec.press('Enter');
  await page.getByText('no thread matches "nosuch"').waitFor();
  await spec.fill('main');
  await spec.press('Enter');
  await until(page, () => window.sliver.state.status.threads.filter((t) => !t.ended).length === 1);
  await spec.fill('all');
  await spec.press('Enter');
  await until(page, () => window.sliver.state.status.threads.filter((t) => !t.ended).length === 7);
  await button(page, 'Keep 30 s').click();
  await page.getByText(/^Kept in .*last30s\.sliver$/).waitFor();
  // The message stays, whatever news come.
  const kept = (await state(page)).status.status.samples;
  await until(page, (n) => window.sliver.state.status.status.samples > n + 100, kept);
  assert.ok(await page.getByText(/^Kept in .*last30s\.sliver$/).isVisible(), 'what was told is gone');
  await picture(page, 'real-kept');
  assert.ok(
    (await readdir(folder)).some((f) => /last30s\.sliver$/.test(f)),
    'no file was kept',
  );
  await button(page, 'Stop').click();
  await page.getByText('ended: interrupted').waitFor();
  assert.ok(await page.evaluate(() => window.sliver.item('', 4) !== null), 'the recording did not stay');
  await picture(page, 'real-ended');
  const first = (await state(page)).hello.base;
  await button(page, 'Start').click();
  await until(page, (b) => window.sliver.state.hello.base !== b && window.sliver.state.up && window.sliver.item('', 4) !== null, first);
  await button(page, 'Stop').click();
  await page.getByText('ended: interrupted').waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
  assert.equal(await s.stop(), 0);
  const files = await readdir(folder);
  assert.ok(files.includes('control.sliver') && files.includes('control-2.sliver'), `left: ${files}`);
});

test('flight recorders: their dumps, and a button for one', async () => {
  const s = await live('-o', 'beside.sliver');
  const page = await open(s.url, { viewport: { width: 1500, height: 800 } });
  await ready(page);
  const dialog = page.getByRole('dialog');
  const shut = async () => {
    await button(dialog, 'Close').click();
    await dialog.waitFor({ state: 'hidden' });
  };
  await button(page, 'Dumps').click();
  await dialog.getByText('No flight recorder of yours is running.').waitFor();
  await shut();
  const w = spawn(program, ['watch', '-p', pid, '--as', 'beside', '--no-triggers'], { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
  running.add(w);
  w.once('exit', () => running.delete(w));
  let told = '';
  await new Promise((ok, bad) => {
    w.stderr.on('data', (b) => {
      told += b;
      if (/msg=watching/.test(told)) ok();
    });
    w.once('exit', (c) => bad(new Error(`sliver watch ended with ${c}: ${told}`)));
  });
  await page.waitForTimeout(500); // something to dump
  await button(page, 'Dumps').click();
  const one = dialog.getByLabel('Recorder beside');
  await one.getByText('No dumps yet').waitFor();
  await one.getByText(`(${pid}), 7 threads`).waitFor();
  await button(one, 'Dump now').click();
  await one.getByText('requested on a page').waitFor();
  assert.equal(await one.locator('li').count(), 1);
  await picture(page, 'real-dumps');
  const files = (await readdir(folder)).filter((f) => /-request\.sliver$/.test(f));
  assert.equal(files.length, 1, `dumps: ${files}`);
  assert.match(await one.locator('.path').innerText(), new RegExp(files[0].replace(/\./g, '\\.')));
  await button(one, 'Dump now').click();
  await until(page, () => document.querySelectorAll('.recorders li').length === 2);
  const gone = new Promise((ok) => w.once('exit', ok));
  w.kill('SIGTERM');
  await gone;
  await button(one, 'Dump now').click();
  await one.getByText('no such recorder is running: "beside"').waitFor();
  await shut();
  assert.deepEqual(
    page.problems.filter((p) => !/404/.test(p)),
    [],
  );
  await page.context().close();
  await s.stop();
});

test('live: threads of a runtime that have nothing to do come last, folded', async () => {
  const node = spawn(process.execPath, ['-e', 'for (;;) Math.sqrt(2)'], { stdio: 'ignore' });
  running.add(node);
  node.once('exit', () => running.delete(node));
  const s = await run('record', '-p', String(node.pid), '-i', '5ms', '--web', '-o', 'idle.sliver');
  const page = await open(s.url);
  await ready(page);
  await until(page, () => window.sliver.state.status.threads.filter((t) => t.idle).length >= 4);
  const { tracks, status } = await state(page);
  const idle = new Map(status.threads.map((t) => [t.seq, !!t.idle]));
  assert.ok(!idle.get(tracks[0].seq), 'the main thread is idle');
  assert.match(tracks[0].mode, /^(full|part)$/);
  const first = tracks.findIndex((t) => idle.get(t.seq));
  assert.ok(
    tracks.slice(first).every((t) => idle.get(t.seq) && t.mode === 'strip'),
    JSON.stringify(tracks),
  );
  const li = page.locator('#labels li').nth(first);
  assert.match(await li.innerText(), /idle/);
  await picture(page, 'real-idle');
  const seq = tracks[first].seq;
  await li.getByRole('button', { name: /Shown with/ }).click();
  await until(page, (seq) => window.sliver.state.tracks.find((t) => t.seq === seq).mode !== 'strip', seq);
  // In a range they count if asked for.
  await page.locator('#follow').click();
  await settled(page);
  await select(page, 0.3, 0.6);
  await until(page, () => /\d+ idle thread/.test(document.querySelector('#panel .left').innerText));
  await tab(page, 'Flame graph');
  await page.getByRole('combobox', { name: 'Weight' }).selectOption('wall');
  const without = (await state(page)).total;
  await button(page, 'Idle waits').click();
  await until(
    page,
    (was) => window.sliver.state.total > 2 * was && !/idle/.test(document.querySelector('#panel .left').innerText),
    without,
  );
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await s.stop();
  node.kill();
});

test('Java: the calls of its methods stay before those of its virtual machine', async () => {
  const s = await run('record', '-p', process.env.SLIVER_CONVOY, '-i', '5ms', '--web', '-o', 'convoy.sliver');
  const page = await open(s.url);
  await ready(page);
  await tall(page); // only tracks in sight are arranged
  const workers = async () => (await state(page)).tracks.filter((t) => t.name.startsWith('worker-'));
  // How the virtual machine comes to run them is folded, and what they wait in is left out.
  await until(page, () => {
    const s = window.sliver.state;
    return (
      s.edge - s.from > 3e9 &&
      s.tracks.filter((t) => t.name.startsWith('worker-') && t.mode === 'part' && t.skip >= 2).length >= 3 &&
      window.sliver.item('Convoy.handle', 12) !== null
    );
  });
  for (const w of (await workers()).filter((t) => t.mode === 'part')) {
    const methods = await page.evaluate(
      (seq) =>
        window.sliver
          .steady(seq)
          .map((name, i) => [i, name])
          .filter(([, name]) => /^Convoy/.test(name)),
      w.seq,
    );
    assert.ok(methods.length >= 3 && methods.every(([i]) => i >= w.skip && i < w.skip + w.rows), JSON.stringify([w, methods]));
  }
  // The virtual machine's own functions, in which they wait below Java's, have no row.
  assert.deepEqual(
    (await page.evaluate(() => window.sliver.named())).filter((n) => /^(ObjectMonitor|ObjectSynchronizer|Runtime1)::/.test(n)),
    [],
  );
  // The launcher's thread, which waits for main's end, is not the first.
  assert.match((await state(page)).tracks[0].name, /^(worker-|main$)/);
  // Threads of one kind go by their TID.
  const names = (await workers()).map((w) => w.name);
  assert.deepEqual(names, [...names].sort());
  await picture(page, 'real-java');
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await s.stop();
});

test('live: the target ends, the recording stays', async () => {
  const s = await run('record', '--web', '-i', '2ms', '-o', 'short.sliver', '--', 'sleep', '3');
  const page = await open(s.url);
  await ready(page);
  await page.getByText('ended: target ended').waitFor();
  assert.ok(await page.evaluate(() => window.sliver.item('', 4) !== null));
  assert.equal(await button(page, 'Pause').count(), 0);
  await button(page, 'Start').click();
  await page.getByText(/has ended: there is nothing to record/).waitFor();
  await page.context().close();
  assert.equal(await s.exit, 0); // no page is open any more
});

test('a recording: each format of a range, and Perfetto through 127.0.0.1:9001', async () => {
  const s = await run('view', 'live-light.sliver', '--compare', 'live-dark.sliver');
  const page = await open(s.url);
  await ready(page);
  await settled(page);
  await select(page, 0.4, 0.6);
  const r = (await state(page)).range;
  const save = page.getByRole('button', { name: 'Export range' });
  await save.click();
  const menu = page.getByRole('menu');
  const box = await menu.boundingBox();
  assert.ok(box.y >= 0 && box.y + box.height <= 800, 'the menu leaves the screen');
  await picture(page, 'real-export');
  const items = (await menu.getByRole('menuitem').allInnerTexts()).filter((t) => /\(\./.test(t));
  await page.keyboard.press('Escape');
  assert.ok(items.length >= 11, `offers ${items}`);
  for (const name of items) {
    await save.click();
    const [d] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name, exact: true }).click()]);
    const b = await readFile(await d.path());
    assert.ok(b.length > 100, `${name}: ${b.length} bytes`);
    if (/^chrome/.test(name)) {
      const at = JSON.parse(b)
        .traceEvents.filter((e) => e.ph === 'X' || e.ph === 'B')
        .map((e) => e.ts);
      assert.ok(Math.max(...at) - Math.min(...at) <= (r.t1 - r.t0) / 1e3 + 1, 'more than the range was written');
    }
  }
  await page.context().route('https://ui.perfetto.dev/**', (q) => q.fulfill({ contentType: 'text/html', body: '<title>waiting</title>' }));
  await page.getByRole('button', { name: 'Save' }).click();
  const [pf] = await Promise.all([page.waitForEvent('popup'), page.getByRole('menuitem', { name: '… through 127.0.0.1:9001' }).click()]);
  await pf.waitForURL(/^https:\/\/ui\.perfetto\.dev\/#!\/\?url=http:\/\/127\.0\.0\.1:9001\//);
  const url = new URL(pf.url()).hash.replace(/^.*url=/, '');
  // As Perfetto's page asks for it; a browser would hide the answer from any other.
  const got = await page.context().request.get(url, { headers: { Origin: 'https://ui.perfetto.dev' } });
  assert.equal(got.headers()['access-control-allow-origin'], 'https://ui.perfetto.dev');
  assert.ok((await got.body()).length > 100);
  assert.deepEqual(
    page.problems.filter((p) => !/ui.perfetto/.test(p)),
    [],
  );
  await page.context().close();
  await s.stop();
});

for (const colorScheme of ['light', 'dark']) {
  test(`a recording, ${colorScheme}: flame graph, functions, waits by lock, search, comparison`, async () => {
    const s = await run('view', 'live-light.sliver', '--compare', 'live-dark.sliver');
    const page = await open(s.url, { colorScheme });
    await ready(page);
    await settled(page);
    await select(page, 0.2, 0.8);
    await tab(page, 'Flame graph');
    await page.locator('.flame canvas').first().waitFor();
    await until(page, () => window.sliver.state.total > 0);
    await picture(page, `real-flame-${colorScheme}`);
    await page.getByRole('tab', { name: 'Functions' }).click();
    await page.locator('#panel tbody').getByRole('button', { name: 'handle_order', exact: true }).waitFor();
    await picture(page, `real-functions-${colorScheme}`);
    await page.getByRole('tab', { name: 'Waits' }).click();
    assert.equal((await page.locator('#panel tbody').first().innerText()).match(/mutex oven/g).length, 1, 'a lock is listed once');
    await picture(page, `real-waits-${colorScheme}`);
    await tab(page, 'Locks');
    assert.match(await page.locator('#panel tbody').innerText(), /mutex oven[\s\S]*cook-\d/);
    await tab(page, 'Compare');
    await page.getByText(/Before: kitchen/).waitFor();
    assert.ok((await page.locator('#panel tbody tr').count()) > 3);
    await picture(page, `real-compare-${colorScheme}`);
    await page.keyboard.press('/');
    await page.keyboard.type('/^(bake|season)$/');
    await until(page, () => /[1-9][\d,]* calls, /.test(document.querySelector('.search output').innerText));
    await picture(page, `real-search-${colorScheme}`);
    assert.deepEqual(page.problems, []);
    await page.context().close();
    await s.stop();
  });
}

test('a recording on a phone', async () => {
  const s = await run('view', 'live-light.sliver');
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(s.url, { ...aPhone, colorScheme });
    await ready(page);
    await settled(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is wider than the screen');
    const b = await canvas(page);
    assert.ok((await pixels(page, 'calls', 0, 0, b.width, 300)) > 8, 'hardly anything is drawn');
    await picture(page, `real-phone-${colorScheme}`);
    const it = await item(page, '', 14);
    await page.touchscreen.tap(it.x, it.y);
    await page.locator('#side dl').waitFor();
    await picture(page, `real-phone-side-${colorScheme}`);
    assert.deepEqual(page.problems, []);
    await page.context().close();
  }
  await s.stop();
});

test('a live view on a phone', async () => {
  const s = await live('-o', 'phone.sliver');
  const page = await open(s.url, aPhone);
  await ready(page);
  await until(page, () => window.sliver.item('handle_order', 12) !== null);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is wider than the screen');
  for (const b of await page.locator('.controls > :visible').all()) {
    const r = await b.boundingBox();
    assert.ok(r.x >= 0 && r.x + r.width <= 390, 'a control is cut off');
  }
  await picture(page, 'real-phone-live');
  await button(page, 'Pause').tap();
  await button(page, 'Resume').waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await s.stop();
});

let failed = 0;
for (const [name, f] of cases) {
  if (names.length && !names.some((o) => name.includes(o))) continue;
  const begin = Date.now();
  try {
    await f();
    console.log(`ok   ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}\n${String(e.stack ?? e).replace(/^/gm, '     ')}`);
    for (const c of browser.contexts()) for (const p of c.pages()) await picture(p, `failed-${failed}`).catch(() => {});
  }
  for (const c of browser.contexts()) await c.close().catch(() => {});
  for (const p of running) p.kill('SIGKILL');
}
await browser.close();
process.exit(failed ? 1 : 0);
