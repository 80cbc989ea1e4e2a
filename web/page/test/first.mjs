// Opens recordings of real programs, and live pages, and looks at what the first screen says of each
// without a click and without scrolling. Started by TestPageFirstScreen of cmd/sliver with
//
//	node first.mjs SLIVER CHROMIUM PICTURES|- CASES
//
// CASES is JSON: [{"name", "file" (a recording) or "pid" (watched live), "want": [regular expressions], "rows" (one of a
// function that a track shows, without scrolling), "runtime" (one of a function that none shows until View says so)}].
import assert from 'node:assert/strict';
import { browser, open, picture, sliver, state, until } from './harness.mjs';

const [, , , list] = process.argv.slice(2);

// seen is the text of the panel that is on the screen.
const seen = () => {
  const body = document.getElementById('panel-body')?.getBoundingClientRect();
  if (!body) return ''; // the page has not built itself yet
  const bottom = Math.min(body.bottom, innerHeight);
  const out = [];
  const walk = document.createTreeWalker(document.getElementById('panel'), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    range.selectNodeContents(n);
    const r = range.getBoundingClientRect();
    if (r.width > 0 && r.bottom <= bottom && r.right <= innerWidth + 1) out.push(n.data);
  }
  return out.join('\n');
};

let failed = 0;
for (const c of JSON.parse(list)) {
  const s = await sliver(c.pid ? ['record', '-p', String(c.pid), '--web', '-o', c.file] : ['view', c.file]);
  let page;
  try {
    page = await open(s.url, { viewport: { width: 1440, height: 900 } });
    let text = '';
    for (let end = Date.now() + 30_000; ; await page.waitForTimeout(200)) {
      text = await page.evaluate(seen);
      if (Date.now() > end || c.want.every((w) => new RegExp(w).test(text))) break;
    }
    await picture(page, `first-${c.name}`);
    for (const w of c.want) assert.match(text, new RegExp(w), `${c.name}: the first screen says:\n${text}`);
    if (c.rows)
      await until(page, (w) => window.sliver.named().some((n) => new RegExp(w).test(n)), c.rows).catch(async (e) => {
        const tracks = (await state(page)).tracks.map((t) => `${t.name}: ${t.rows} of ${t.depth} rows, ${t.mode}`);
        const only = (await page.evaluate(() => window.sliver.named())).join(', ');
        throw new Error(`${e.message}\nno row of ${c.rows} in\n${tracks.join('\n')}\nonly ${only}`);
      });
    if (c.runtime) {
      const theirs = async () => (await page.evaluate(() => window.sliver.named())).filter((n) => new RegExp(c.runtime).test(n));
      assert.deepEqual(await theirs(), [], `${c.name}: rows of the interpreter's own code`);
      const turn = async () => {
        await page.getByRole('button', { name: 'View', exact: true }).click();
        await page.getByRole('menuitemcheckbox', { name: "the interpreter's own" }).click();
      };
      const depth = (await state(page)).tracks.map((t) => t.depth);
      await turn();
      await until(page, (was) => window.sliver.state.tracks.some((t, i) => t.depth > was[i]), depth);
      await until(page, () => /code=all/.test(location.hash));
      await turn();
      await until(page, (was) => window.sliver.state.tracks.every((t, i) => t.depth <= was[i]), depth);
    }
    for (const w of c.not ?? []) assert.doesNotMatch(text, new RegExp(w), `${c.name}: the first screen says:\n${text}`);
    assert.equal(await page.evaluate(() => document.getElementById('panel-body').scrollTop), 0);
    assert.deepEqual(page.problems, []);
    console.log(`ok   ${c.name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${c.name}\n${e.message}`);
  }
  await page?.context().close(); // sliver stays while a page is open
  await s.stop();
}
await browser.close();
process.exit(failed ? 1 : 0);
