// Opens a file that `sliver export -o run.html` wrote, from the disk and without a network, and uses it as
// a reader would. Started by TestShareFile of cmd/sliver with
//
//	node share.mjs - CHROMIUM PICTURES|- FILE
//
// FILE is of testdata/targets/locks/kitchen.c. Started by TestShareAnswers of package web with one more
// argument, a file of queries and what a server answers to them: then the answers of the page are compared
// with those.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';
import { analyzed, browser, item, open, picture, ready, scroll, select, settled, state, tab, until } from './harness.mjs';

const [, , , , , file, answers] = process.argv;
let failed = 0;
const test = async (name, f) => {
  try {
    await f();
    console.log(`ok   ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}\n${e.stack ?? e}`);
  }
};

// Times of the file are in units of 100 ns.
const unit = 100;
const sum = (ns) => ns.reduce((a, b) => a + b, 0);
const near = (a, b, most, what) => assert.ok(Math.abs(a - b) <= most, `${what}: ${a}, the server says ${b}`);

// means compares numbers over time. The server's are rounded to thousandths, and each edge in a part may
// be off by a unit.
function means(got, want, width, what) {
  assert.equal(got.length, want.length, what);
  const most = 0.001 + (20 * unit) / width;
  for (const [k, x] of got.entries()) near(x, want[k], most, `${what}, part ${k}`);
}

function lanes(got, want) {
  near(got.t0, want.t0, unit, 't0');
  near(got.t1, want.t1, unit, 't1');
  const n = want.counters[0].bins.length;
  const width = (want.t1 - want.t0) / n;
  assert.deepEqual(
    got.counters.map((c) => c.name),
    want.counters.map((c) => c.name),
  );
  got.counters.forEach((c, i) => {
    const bins = want.counters[i].bins;
    // The server keeps CPU time in parts of a millisecond, the file at samples.
    if (c.name === 'cpu') near(sum(c.bins), sum(bins), 0.03 * sum(bins) + 0.05 * n, 'CPU time');
    else means(c.bins, bins, width, c.name);
  });
  assert.deepEqual(
    got.locks.map((l) => [l.lock.addr, l.lock.process]),
    want.locks.map((l) => [l.lock.addr, l.lock.process]),
  );
  assert.ok(want.locks.length > 2 && (got.more ?? 0) === (want.more ?? 0));
  got.locks.forEach((l, i) => {
    const w = want.locks[i];
    near(l.total, w.total, 0.001 * w.total, `total of ${w.lock.addr}`);
    means(l.waiting, w.waiting, width, w.lock.addr);
    near(l.most, w.most, 0.001 + (20 * unit) / width, `most of ${w.lock.addr}`);
    // Of two that held a lock equally long within a part, either is right.
    const others = l.holder.filter((h, k) => h !== w.holder[k]).length;
    assert.ok(others <= 0.02 * n, `${others} of ${n} holders of ${w.lock.addr} are others`);
  });
}

function tasks(got, want) {
  for (const k of ['what', 'count', 'idle', 'from', 'process', 'processes']) assert.deepEqual(got[k], want[k], k);
  assert.deepEqual(
    got.list.map(({ spans, parent, ...t }) => t),
    want.list.map(({ spans, parent, ...t }) => t),
  );
  got.list.forEach((t, i) => {
    const w = want.list[i];
    assert.equal(t.parent ?? 0, w.parent ?? 0);
    assert.equal(sum(t.spans.map((s) => s[6])), sum((w.spans ?? []).map((s) => s[6])), `spans of task ${t.id}`);
    if (t.spans.length !== (w.spans ?? []).length) return; // a unit decides which part a span begins in
    t.spans.forEach((s, k) => {
      const x = w.spans[k];
      near(s[0], x[0], unit, 'begin');
      near(s[1], x[1], unit, 'end');
      near(s[2], x[2], unit * x[6], 'time');
      if (x[6] > 1) return;
      assert.deepEqual([s[3], s[4], got.reasons[s[5]], s[6]], [x[3], x[4], want.reasons[x[5]], x[6]], `span ${k} of task ${t.id}`);
    });
  });
}

function task(got, want) {
  assert.deepEqual(
    [got.id, got.row, got.what, got.func, got.ran, got.ready, got.waited, got.parent ?? 0],
    [want.id, want.row, want.what, want.func, want.ran, want.ready, want.waited, want.parent ?? 0],
  );
  assert.equal(!!got.span, !!want.span);
  near(got.prev, want.prev, unit, 'the span before');
  near(got.next, want.next, unit, 'the span behind');
  if (want.span) {
    near(got.span.start, want.span.start, unit, 'begin');
    near(got.span.end, want.span.end, unit, 'end');
    assert.deepEqual(
      [got.span.value, got.span.state, got.span.reason ?? '', got.span.thread],
      [want.span.value, want.span.state, want.span.reason ?? '', want.span.thread],
    );
  }
  assert.deepEqual(got.stack, want.stack);
  near(got.seen ?? 0, want.seen ?? 0, unit, 'seen');
  assert.deepEqual(got.reasons.map((r) => r.reason).sort(), want.reasons.map((r) => r.reason).sort());
  for (const w of want.reasons) {
    const g = got.reasons.find((r) => r.reason === w.reason);
    assert.equal(g.count, w.count);
    near(g.total, w.total, unit * w.count, w.reason);
    near(g.longest, w.longest, unit, w.reason);
  }
}

// processes compares the sums of processes. The file has those of the analysis, which agree with the scheduler's account; the
// server has those of the states as they were seen.
function processes(got, want) {
  const all = (p) => p.cpu + p.runnable + p.lock + p.io + p.sleep + p.other + p.idle + p.stopped;
  assert.equal(got.length, want.length);
  for (const w of want) {
    const g = got.find((p) => p.process === w.process);
    assert.equal(g.threads, w.threads, `threads of process ${w.process}`);
    near(g.cpu, w.cpu, 0.01 * w.cpu, `CPU time of process ${w.process}`);
    near(all(g), all(w), 0.02 * all(w), `all time of process ${w.process}`);
  }
}

// lockTable compares the tables of locks of a range. The file has the functions of holders that the whole recording shows; a
// server knows nothing outside of a part.
function lockTable(got, want, part) {
  const rows = (a) => new Map(a.report.locks.map((l) => [`${l.process ?? ''} ${l.name} ${l.addr}`, l]));
  const [g, w] = [rows(got), rows(want)];
  assert.deepEqual([...g.keys()].sort(), [...w.keys()].sort());
  assert.ok(w.size > 2);
  for (const [k, x] of w) {
    const y = g.get(k);
    assert.deepEqual([y.kind, y.exclusive, y.waits], [x.kind, x.exclusive, x.waits], k);
    near(y.total_ns, x.total_ns, 2 * unit * x.waits, `total of ${k}`);
    near(y.longest_ns, x.longest_ns, 2 * unit, `longest wait for ${k}`);
    for (const list of part ? ['holders', 'waiter_functions'] : ['holders', 'holder_functions', 'waiter_functions'])
      for (const s of x[list]) {
        const t = y[list].find((o) => o.name === s.name);
        assert.ok(t, `${list} of ${k} have no ${s.name}: ${JSON.stringify(y[list])}`);
        near(t.total_ns, s.total_ns, 2 * unit * x.waits, `${s.name} in ${list} of ${k}`);
      }
  }
}

function arrows(got, want) {
  assert.deepEqual(got.arrows, want.arrows);
}

function path(got, want) {
  assert.deepEqual(got.steps, want.steps);
}

if (answers)
  await test('the page answers as a server does', async () => {
    const page = await open(pathToFileURL(file).href, { viewport: { width: 1440, height: 900 } });
    await ready(page);
    const counts = {};
    for (const {
      query: { op, ...args },
      value,
    } of JSON.parse(await readFile(answers, 'utf8'))) {
      const got = await page.evaluate(([o, a]) => window.sliver.ask(o, a), [op, args]);
      try {
        ({ lanes, tasks, task, processes, arrows, path, analysis: lockTable })[op](got, value, !!args.t1);
      } catch (e) {
        throw new Error(`${op} ${JSON.stringify(args)}: ${e.message}`, { cause: e });
      }
      counts[op] = (counts[op] ?? 0) + 1;
    }
    if (counts.processes) {
      // Each process has a group, with its threads and their calls, and a part of the panel.
      await until(page, () => window.sliver.state.groups.length === 3);
      await analyzed(page);
      await settled(page);
      const { groups } = await state(page);
      assert.deepEqual(groups.map((g) => g.title.replace(/ .*/, '')).sort(), ['shopd', 'worker1', 'worker2']);
      assert.match(await page.locator('#panel-body').innerText(), /Processes[\s\S]*worker2 \(4442\)/);
      const it = await item(page, '', 3);
      await page.mouse.click(it.x, it.y);
      await page.locator('#side h2').filter({ hasText: it.name }).waitFor();
      await picture(page, 'share-several');
      assert.deepEqual(page.problems, []);
      return;
    }
    if (!counts.lanes) {
      // Each process with tasks has a group, which folds.
      const heads = page.locator('#tasks li.group button[aria-expanded]');
      await until(page, () => document.querySelectorAll('#tasks li.group').length === 2);
      const names = await heads.allInnerTexts();
      assert.deepEqual(names.map((n) => n.replace(/^\S* ?\d+ goroutines of /, '')).sort(), ['shopd (4242)', 'worker2 (4442)']);
      for (const n of [0, 1]) await heads.nth(n).click();
      await until(page, () => window.sliver.state.tasks.rows === window.sliver.state.tasks.count);
      await heads.nth(0).click();
      await until(page, () => window.sliver.state.tasks.rows < window.sliver.state.tasks.count);
      await scroll(page, '#tasks li.group', 1, 20);
      await until(page, () => window.sliver.state.tasks.fine && window.sliver.task() !== null);
      const hit = await page.evaluate(() => window.sliver.task());
      assert.equal(hit.process, 2, `the rows of the second group are not there: ${JSON.stringify(hit)}`);
      await page.mouse.click(hit.x, hit.y);
      await page.getByRole('heading', { name: `goroutine ${hit.id}`, exact: true }).waitFor();
      assert.equal((await state(page)).task.process, 2);
      await picture(page, 'share-tasks-several');
      assert.deepEqual(page.problems, []);
      return;
    }
    assert.ok(counts.lanes > 5 && counts.tasks > 3 && counts.task > 10, JSON.stringify(counts));
    // The tracks are on the page.
    await page
      .locator('#tasks')
      .getByRole('button', { name: /^▸ \d+ goroutines$/ })
      .click();
    await until(page, () => window.sliver.state.tasks.rows > 20);
    await scroll(page, '#tasks li');
    await settled(page); // the rows are where the scrolling ends
    await until(page, () => window.sliver.state.tasks.fine && window.sliver.task(1) !== null);
    const it = await page.evaluate(() => window.sliver.task(1));
    await page.mouse.move(it.x, it.y);
    await until(page, (id) => document.getElementById('tip').innerText.startsWith(`goroutine ${id}`), it.id);
    await page.mouse.click(it.x, it.y);
    await page
      .locator('#side')
      .getByRole('heading', { name: `goroutine ${it.id}`, exact: true })
      .waitFor();
    await picture(page, 'share-tasks');
    assert.deepEqual(page.problems, []);
  });
else
  await test('the file opens without a network', async () => {
    const page = await open(pathToFileURL(file).href, { viewport: { width: 1440, height: 900 } });
    await page.context().setOffline(true);
    await page.reload();
    await ready(page);
    await analyzed(page);
    const text = () => page.locator('#panel-body').innerText();
    assert.match(await text(), /mutex oven[\s\S]*held mostly by cook-\d/);
    await picture(page, 'share');
    // Calls, their place and their neighbors.
    await settled(page);
    const it = await item(page, '', 12);
    await page.mouse.click(it.x, it.y);
    const side = page.locator('#side');
    await side.locator('h2').filter({ hasText: it.name }).waitFor();
    await side.getByText('Median').waitFor();
    const { sums } = await state(page);
    const parts = sums.parts.reduce((n, p) => n + p.total, 0);
    assert.ok(Math.abs(parts - (sums.end - sums.start)) < 2, `the parts of a call are ${parts} ns, it took ${sums.end - sums.start}`);
    // It may be the last one of its function.
    const next = side.getByRole('button', { name: 'Next →' });
    await next.waitFor();
    const last = (await next.getAttribute('aria-disabled')) === 'true' || (await next.isDisabled());
    await page.keyboard.press(last ? '[' : ']');
    await until(page, ([t, back]) => (window.sliver.state.selected?.start - t) * (back ? -1 : 1) > 0, [it.start, last]);
    await page.keyboard.press('Escape');
    // A range is added up in the page: its parts make up the whole.
    await tab(page, 'Functions');
    const total = async () => {
      await analyzed(page);
      return (await state(page)).total;
    };
    await page.keyboard.press('0');
    await settled(page);
    const whole = await total();
    await select(page, 0, 1);
    const full = await total();
    await page.keyboard.press('Escape');
    await select(page, 0, 0.5);
    const a = await total();
    await page.keyboard.press('Escape');
    await select(page, 0.5, 1);
    const b = await total();
    assert.ok(a > 0 && b > 0 && Math.abs(a + b - full) < 0.001 * whole, `two halves have ${a} and ${b} ns of CPU time, all of it ${full}`);
    assert.ok(Math.abs(full - whole) < 0.001 * whole, `a range over all has ${full} ns of CPU time, the file ${whole}`);
    await tab(page, 'Locks');
    assert.match(await text(), /mutex oven/);
    await page.keyboard.press('Escape');
    await page.getByRole('searchbox', { name: /Search/ }).fill('knead');
    await until(page, () => /calls, /.test(document.querySelector('.search output').innerText));
    await picture(page, 'share-search');
    assert.deepEqual(page.problems, []);
  });
await browser.close();
process.exit(failed ? 1 : 0);
