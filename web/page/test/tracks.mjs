// Cases about tracks, for page.mjs.
import assert from 'node:assert/strict';
import {
  analyzed,
  canvas,
  drawn,
  open,
  phone,
  picture,
  pixels,
  ready,
  scroll,
  serve,
  settled,
  state,
  tall,
  until,
  zoomBy,
} from './harness.mjs';

// shown is all tracks on the screen while they are scrolled from top to bottom, by kind.
async function shown(page) {
  const kinds = new Map();
  await scroll(page, 0);
  await until(page, () => window.sliver.state.top === 0);
  for (let last = -1; ; ) {
    const st = await state(page);
    for (const t of st.shown) {
      if (!kinds.has(t.kind)) kinds.set(t.kind, new Map());
      kinds.get(t.kind).set(t.key, t);
    }
    if (st.top === last) return kinds;
    last = st.top;
    await page.evaluate(() => {
      const s = document.getElementById('tracks');
      s.scrollTop += s.clientHeight * 0.8;
    });
    await drawn(page);
    await until(page, () => window.sliver.state.tasks.fine);
  }
}

export function cases(test) {
  test('tracks of every kind are placed and found alike', async () => {
    const s = await serve('-threads', '10', '-samples', '2000', '-tasks', '30');
    const page = await open(s.url);
    await ready(page);
    await analyzed(page);
    await until(page, () => window.sliver.state.tasks.count > 0 && window.sliver.state.lanesFine);
    await page.getByRole('button', { name: 'View' }).click();
    await page.getByRole('menuitemcheckbox', { name: 'grouped by pool' }).click();
    await until(page, () => window.sliver.state.groups.length > 0);
    if (!(await state(page)).tasks.open) await page.locator('#tasks .group .link').first().click();
    await until(page, () => window.sliver.state.tasks.open && window.sliver.state.tasks.fine);
    const kinds = await shown(page);
    for (const kind of ['thread', 'group', 'task', 'counter', 'lock']) {
      const all = [...(kinds.get(kind)?.values() ?? [])];
      assert.ok(all.length > 0, `no track of kind ${kind}`);
      for (const t of all) assert.ok(t.title && t.h > 0, JSON.stringify(t));
    }
    assert.equal(kinds.get('task').size, (await state(page)).tasks.count);
    // No two tracks of any kind overlap.
    const all = [...kinds.values()].flatMap((m) => [...m.values()]).sort((a, b) => a.y - b.y);
    for (let i = 1; i < all.length; i++) assert.ok(all[i - 1].y + all[i - 1].h <= all[i].y, JSON.stringify([all[i - 1], all[i]]));
    // A click on a group's line in the timeline folds it, as the button beside it does.
    await scroll(page, 0);
    await tall(page);
    const role = (await state(page)).groups[0].role;
    await page.evaluate((role) => {
      document.getElementById('tracks').scrollTop = Math.max(0, window.sliver.state.groups.find((g) => g.role === role).y - 40);
    }, role);
    await drawn(page);
    const b = await canvas(page);
    const { groups, top } = await state(page);
    const group = groups.find((g) => g.role === role);
    await page.mouse.click(b.x + b.width / 2, b.y + group.y - top + 12);
    await until(page, ([role, was]) => window.sliver.state.groups.find((g) => g.role === role).open !== was, [role, group.open]);
    assert.deepEqual(page.problems, []);
    await s.stop();
  });

  test("a click on a note's flag shows the note", async () => {
    const s = await serve('-threads', '2', '-samples', '1000');
    const page = await open(s.url);
    await ready(page);
    await analyzed(page);
    const b = await canvas(page);
    const x = b.width * 0.4;
    await page.mouse.click(b.x + x, b.y + 40, { button: 'right' });
    await page.getByRole('menuitem', { name: /Note at this time/ }).click();
    await until(page, () => window.sliver.state.marks.length === 1 && window.sliver.state.flags.length === 1);
    assert.deepEqual(
      (await state(page)).flags.map((f) => f.title),
      ['Note 1'],
    );
    await page.keyboard.press('Escape');
    await page.getByRole('tab', { name: 'Overview', exact: true }).click();
    await until(page, () => window.sliver.state.tab === 'overview');
    const axis = await page.locator('#axis').boundingBox();
    await page.mouse.click(axis.x + x + 4, axis.y + 10);
    await until(page, () => window.sliver.state.tab === 'notes' && document.activeElement?.getAttribute('aria-label') === 'Note');
    assert.equal(await page.locator('#panel-body').getByRole('textbox', { name: 'Note' }).inputValue(), 'Note 1');
    assert.deepEqual(page.problems, []);
    await s.stop();
  });

  test('several processes are groups that fold, in the order of what they used or waited', async () => {
    const s = await serve('-threads', '3', '-samples', '1200', '-processes', '5');
    const page = await open(s.url);
    await ready(page);
    await analyzed(page);
    await until(page, () => window.sliver.state.groups.length === 5 && window.sliver.state.processSums.length === 5);
    const st = await state(page);
    const sums = await page.evaluate(() => window.sliver.ask('processes', {}));
    const { processes } = st.hello;
    const name = (p) => `${processes[p].comm} (${processes[p].pid})`;
    // The three that used most are open.
    assert.deepEqual(
      st.groups.map((g) => [g.title, g.open, g.seqs.length]),
      sums.map((x, i) => [name(x.process), i < 3, 3]),
    );
    assert.equal(st.tracks.length, 9);
    const all = st.shown.map((t) => [t.kind, t.title]);
    assert.deepEqual(all[0], ['process', name(sums[0].process)]);
    // Their lines have the sums, in words and as a bar.
    const b = await canvas(page);
    assert.ok((await pixels(page, 'calls', 6, 4, 90, 16)) > 3, 'the line has no bar');
    await picture(page, 'processes');
    const head = page.locator('#labels li.group').first();
    assert.match(
      await head.locator('.name').getAttribute('title'),
      /3 threads: \/usr\/bin\/shopd --worker 4, started by 4242, exit status 3\. Click/,
    );
    // A wait for a lock leads to its holder in another process.
    await tall(page);
    await page.locator('#labels').getByRole('button', { name: 'The 3 threads of shopd (4242)', exact: true }).click();
    await page.mouse.move(b.x + b.width * 0.2, b.y + 60);
    const crosses = () =>
      page.evaluate(() => {
        const st = window.sliver.state;
        const of = new Map(st.status.threads.map((t) => [t.seq, t.process ?? 0]));
        return st.arrows.some((a) => of.get(a.from) !== of.get(a.to));
      });
    // A wait must be wide enough for an arrow. A phone has no room for such waits and two processes.
    for (let i = 0; i < 4; i++) await zoomBy(page, -240);
    for (let i = 0; i < 60 && !phone && !(await crosses()); i++) {
      await page.keyboard.press('a');
      await settled(page);
      await until(page, () => window.sliver.state.fine);
    }
    assert.ok(phone || (await crosses()), 'no arrow leads to another process');
    await picture(page, 'processes-arrows');
    await page.locator('#labels').getByRole('button', { name: 'The 3 threads of shopd (4242)', exact: true }).click();
    await scroll(page, 0);
    // By waiting time.
    await page.getByRole('button', { name: 'View' }).click();
    await page.getByRole('menuitemradio', { name: 'by waiting time' }).click();
    const waited = (x) => x.runnable + x.lock + x.io + x.sleep + x.other + x.stopped;
    const order = [...sums].sort((x, y) => waited(y) - waited(x)).map((x) => name(x.process));
    assert.deepEqual(
      (await state(page)).groups.map((g) => g.title),
      order,
    );
    await until(page, () => new URLSearchParams(location.hash.slice(1)).get('processes') === 'wait');
    // A click on the line folds the process, and the address has it.
    const first = (await state(page)).groups[0];
    await page.mouse.click(b.x + b.width / 2, b.y + 12);
    await until(page, (was) => window.sliver.state.groups[0].open !== was, first.open);
    await until(page, () => new URLSearchParams(location.hash.slice(1)).getAll('turned').length === 1);
    await page.reload();
    await ready(page);
    await until(page, (was) => window.sliver.state.groups[0]?.open !== was, first.open);
    assert.deepEqual(
      (await state(page)).groups.map((g) => g.title),
      order,
    );
    // The analysis covers all; the name chooses a process for it.
    await until(page, () => document.querySelector('#panel .left').textContent.startsWith('5 processes'));
    assert.equal(await page.getByRole('region', { name: 'Processes' }).getByRole('listitem').count(), 5);
    const other = order.find((x) => x !== 'shopd (4242)');
    await page.locator('#labels').getByRole('button', { name: other, exact: true }).click();
    await until(page, (n) => document.querySelector('#panel .left').textContent.includes(`${n}, one of 5 processes`), other);
    assert.deepEqual(page.problems, []);
    await s.stop();
  });
}
