// Looks for barriers in each view of the page with axe-core, in both color schemes and at the width of a
// phone. Started by TestPageHasNoBarriers of package web:
//
//	node axe.mjs SYNTHSERVE CHROMIUM [PICTURES] [NAME…]
//
// Rules are those of WCAG 2.2 AA and axe's best practices. Text in canvases is beyond axe: page.mjs has its contrast.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import {
  analyzed,
  aPhone,
  browser,
  canvas,
  item,
  only,
  open,
  picture,
  ready,
  running,
  scroll,
  select,
  serve,
  settled,
  tab,
  until,
} from './harness.mjs';

const axe = await readFile(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const found = new Map(); // elements by rule, and where
let rules = 0;

// look runs axe over the page as it is now. A panel that waits for new sums is dimmed: it is not looked at.
async function look(page, where, tries = 5) {
  await until(page, () => !document.querySelector('.stale'));
  await picture(page, `axe-${where.replace(/\W+/g, '-')}`);
  await page.evaluate(axe);
  const { violations, passes, dimmed } = await page.evaluate(async (t) => {
    let dimmed = !!document.querySelector('.stale');
    const watch = new MutationObserver(() => {
      dimmed ||= !!document.querySelector('.stale');
    });
    watch.observe(document.getElementById('panel'), { attributeFilter: ['class'] });
    const found = await window.axe.run(document, { runOnly: t, resultTypes: ['violations'] });
    dimmed ||= watch.takeRecords().length > 0;
    watch.disconnect();
    return { ...found, dimmed };
  }, tags);
  const nodes = violations.flatMap((v) => v.nodes.map((n) => ({ v, n, near: n.any.flatMap((x) => x.relatedNodes) })));
  const fine = await page.evaluate(
    fits,
    nodes.map(({ v, n, near }) => [v.id, n.target[0], near.map((k) => k.target[0])]),
  );
  if ((fine.includes(null) || dimmed) && tries) return look(page, where, tries - 1); // the page has replaced an element since
  rules += passes.length;
  nodes.forEach(({ v, n, near }, i) => {
    if (fine[i]) return;
    const key = `${v.id}: ${v.help}`;
    if (!found.has(key)) found.set(key, new Map());
    found
      .get(key)
      .set(
        n.html.slice(0, 160),
        `${where}: ${n.failureSummary.replace(/\s+/g, ' ').slice(0, 200)} ${near.map((k) => k.html.slice(0, 80)).join(' | ')}`,
      );
  });
}

// fits reports false findings of target-size: a target at the edge of a scroll area is whole after scrolling,
// and axe counts neighbors that are clipped and invisible.
// The result is null for an element that is gone.
const fits = (nodes) =>
  nodes.map(([rule, selector, others]) => {
    const r = document.querySelector(selector)?.getBoundingClientRect();
    if (!r) return null;
    if (rule !== 'target-size') return false;
    const seen = (e, b = e.getBoundingClientRect()) => e.contains(document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2));
    const near = others.map((o) => document.querySelector(o)).filter((e) => e && seen(e));
    if (others.length && !near.length) return true;
    const over = (b) => b.left < r.right && b.right > r.left && b.top < r.bottom && b.bottom > r.top;
    if (r.width >= 24 && r.height >= 24 && !near.some((e) => over(e.getBoundingClientRect()))) return true;
    const space = Math.max(0, (24 - r.height) / 2);
    for (let e = document.querySelector(selector).parentElement; e; e = e.parentElement) {
      if (!/auto|scroll/.test(getComputedStyle(e).overflowY)) continue;
      const box = e.getBoundingClientRect();
      if (r.top - space < box.top || r.bottom + space > box.bottom) return true;
    }
    return false;
  });

const menu = (page, name) => page.getByRole('button', { name, exact: true }).click();
const views = {
  async recording(page, at) {
    await look(page, `${at}overview`);
    for (const name of ['Flame graph', 'Call tree', 'Functions', 'Waits', 'Locks']) {
      await tab(page, name);
      await analyzed(page);
      await look(page, at + name);
    }
    await tab(page, 'Notes');
    await menu(page, 'Add a note');
    await page.getByRole('textbox', { name: 'Note' }).waitFor();
    await look(page, `${at}notes`);
    await page.getByRole('searchbox', { name: 'Search' }).fill('malloc');
    await page.keyboard.press('Enter');
    await until(page, () => /calls, /.test(document.querySelector('.search output').innerText));
    await analyzed(page);
    await look(page, `${at}search`);
    await page.keyboard.press('Escape');
    await menu(page, 'View');
    await page.getByRole('menuitemcheckbox', { name: 'grouped by pool' }).waitFor();
    await look(page, `${at}menu`);
    await page.getByRole('menuitemcheckbox', { name: 'grouped by pool' }).click();
    await until(page, () => window.sliver.state.groups.length > 0);
    await look(page, `${at}groups`);
    await menu(page, 'Save');
    await page.getByRole('menuitem').first().waitFor();
    await look(page, `${at}save`);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: /goroutines$/ }).evaluate((e) => e.click());
    await until(page, () => window.sliver.state.tasks.rows > 0);
    await scroll(page, '#tasks li');
    await until(page, () => window.sliver.state.tasks.fine && document.querySelectorAll('#tasks button .sub').length > 2);
    // In one step: scrolling makes the rows anew, at first without a button. On a phone the details cover them.
    await page.evaluate(() => document.querySelector('#tasks button .sub').parentElement.click());
    await page
      .locator('#side')
      .getByRole('heading', { name: /^goroutine/ })
      .waitFor();
    await look(page, `${at}task`);
  },
  async call(page, at) {
    const it = await item(page, '', 8);
    await page.mouse.click(it.x, it.y);
    await page.locator('#side .spent').waitFor();
    await page.locator('#side .stats').waitFor();
    await look(page, `${at}call`);
    await page.keyboard.press('Escape');
    const b = await canvas(page);
    await page.mouse.click(b.x + b.width / 2, b.y + 60, { button: 'right' });
    await page.getByRole('menuitem').first().waitFor();
    await look(page, `${at}context menu`);
    await page.keyboard.press('Escape');
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    await look(page, `${at}help`);
    await page.keyboard.press('Escape');
    await page.getByPlaceholder('Threads…').fill('nothing has this name');
    await page.getByText('No thread is shown').waitFor();
    await analyzed(page);
    await look(page, `${at}no thread`);
  },
};

let failed = 0;
let held = 0;
async function test(name, f) {
  if (only.length && !only.some((o) => name.includes(o))) return;
  const begin = Date.now();
  found.clear();
  try {
    await f(`${name}, `);
    assert.deepEqual(
      [...found].map(([rule, list]) => `${rule}\n  ${[...list].map((x) => x.join('\n    ')).join('\n  ')}`),
      [],
    );
    held++;
    console.log(`ok   ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}\n${String(e.stack ?? e).replace(/^/gm, '     ')}`);
  }
  for (const c of browser.contexts()) await c.close().catch(() => {});
  for (const p of running) {
    p.stdin.end();
    running.delete(p);
  }
}

for (const [form, options] of [
  ['light', {}],
  ['dark', { colorScheme: 'dark' }],
  ['phone', aPhone],
]) {
  for (const [name, f] of Object.entries(views)) {
    await test(`${form}, ${name}`, async (at) => {
      const s = await serve('-threads', '6', '-samples', '1500', '-tasks', '20');
      const page = await open(s.url, options);
      await ready(page);
      await analyzed(page);
      await settled(page);
      await f(page, at);
      assert.deepEqual(page.problems, []);
      await s.stop();
    });
  }
}
await test('live, with control', async (at) => {
  const s = await serve('-live', '-threads', '4');
  const page = await open(s.url);
  await ready(page);
  await page.getByRole('group', { name: 'What was sampled' }).waitFor();
  await look(page, `${at}followed`);
  await s.stop();
  await until(page, () => !window.sliver.state.up);
  await look(page, `${at}server gone`);
});
await test('two recordings compared', async (at) => {
  const s = await serve('-threads', '4', '-samples', '1500', '-compare');
  const page = await open(s.url);
  await ready(page);
  await analyzed(page);
  await look(page, `${at}all`);
  await select(page, 0.2, 0.6);
  await look(page, `${at}range`);
  await s.stop();
});
console.log(`${held} of ${held + failed} cases hold, ${rules} rules were met`);
await browser.close();
process.exit(failed || (!only.length && rules < 500) ? 1 : 0);
