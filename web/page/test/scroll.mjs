// Counts the frames of a page that scrolls through many tracks. Started by BenchmarkScroll:
//
//	node scroll.mjs SYNTHSERVE CHROMIUM - THREADS TASKS SECONDS
//
// It prints the frames in a second, the longest time between two of them in ms, and how many rows of the
// list it has seen.
import assert from 'node:assert/strict';
import { browser, open, ready, serve, settled, until } from './harness.mjs';

const [threads, tasks, seconds] = process.argv.slice(5).map(Number);
const speed = 8000; // px a second: ten screens
const s = await serve('-threads', String(threads), '-samples', '1500', '-tasks', String(tasks));
const page = await open(s.url, { viewport: { width: 1440, height: 900 } });
await ready(page);
await settled(page);
if (tasks) {
  await until(page, () => window.sliver.state.tasks.count > 0);
  await page
    .locator('#tasks')
    .getByRole('button', { name: /goroutines$/ })
    .click();
  await until(page, (n) => window.sliver.state.tasks.rows > n, 0.9 * tasks);
}
const got = await page.evaluate(
  ([most, list, speed]) =>
    new Promise((ok) => {
      const t = document.getElementById('tracks');
      const seen = new Set();
      const at = [];
      const frame = (now) => {
        at.push(now);
        for (const li of document.querySelectorAll(list)) seen.add(li.style.top);
        const past = (now - at[0]) / 1000;
        if (past >= most) {
          const gaps = at.slice(1).map((x, i) => x - at[i]);
          return ok({ rate: (1000 * gaps.length) / (now - at[0]), longest: Math.max(...gaps), rows: seen.size });
        }
        t.scrollTop = speed * past;
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    }),
  [seconds, tasks ? '#tasks li' : '#labels li', speed],
);
assert.ok(got.rows > 50, `only ${got.rows} rows were on the screen`);
assert.deepEqual(page.problems, []);
console.log(got.rate.toFixed(1), got.longest.toFixed(1), got.rows);
await browser.close();
await s.stop();
process.exit(0);
