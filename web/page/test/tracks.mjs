// Cases about tracks, for page.mjs.
import assert from 'node:assert/strict';
import { analyzed, canvas, open, ready, serve, state, tall, until } from './harness.mjs';

// shown is all tracks on the screen while they are scrolled from top to bottom, by kind.
async function shown(page) {
  const kinds = new Map();
  await page.evaluate(() => {
    document.getElementById('tracks').scrollTop = 0;
  });
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
    await page.evaluate(() => new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok))));
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
    await page.evaluate(() => {
      document.getElementById('tracks').scrollTop = 0;
    });
    await tall(page);
    const group = (await state(page)).groups[0];
    const b = await canvas(page);
    await page.evaluate((y) => {
      document.getElementById('tracks').scrollTop = Math.max(0, y - 40);
    }, group.y);
    await until(page, (y) => window.sliver.state.top <= y, group.y);
    const { top } = await state(page);
    await page.mouse.click(b.x + b.width / 2, b.y + group.y - top + 12);
    await until(page, ([role, was]) => window.sliver.state.groups.find((g) => g.role === role).open !== was, [group.role, group.open]);
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
}
