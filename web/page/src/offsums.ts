// How a call of the recording that the page carries spent its time.

import { partOf } from './draw';
import type { Recording } from './shared';
import { fitted, type PartSum, type Sums } from './sums';

// sumsOf is about the call of a thread at a depth (-1: the innermost) and a time.
export function sumsOf(rec: Recording, seq: number, at: number, depth: number): Sums {
  const t = rec.threads.find((x) => x.seq === seq);
  if (!t) throw new Error(`there is no thread ${seq}`);
  const has = (d: number): boolean => d < t.rows.length && t.rows[d]!.start[t.rows[d]!.at(at)]! <= at;
  let d = 0;
  while ((depth < 0 || d <= depth) && has(d)) d++;
  d--;
  if (d < 0 || (depth >= 0 && d !== depth)) throw new Error(`there is no call at depth ${depth}`);
  const r = t.rows[d]!;
  const i = r.at(at);
  const [start, end] = [r.start[i]!, r.end[i]!];
  const sums = new Map<string, PartSum>();
  const s = t.states;
  for (let k = s.at(start); k < s.start.length && s.start[k]! < end; k++) {
    const found = partOf(s.value[k]!);
    if (!found || found === 'cpu') continue;
    const [a, b] = [Math.max(s.start[k]!, start), Math.min(s.end[k]!, end)];
    const l = t.locks.at(a);
    // A wait without a description may still have a lock.
    const lock = (found === 'lock' || found === 'other') && t.locks.start[l]! < b ? rec.head.locks?.[t.locks.value[l]!] : undefined;
    const part = lock ? 'lock' : found;
    const what = rec.head.waits?.[t.waits[k]! - 1] ?? lock?.wait ?? lock?.addr ?? '';
    const key = `${part}\0${what}`;
    let p = sums.get(key);
    if (!p) {
      p = { part, what, total: 0, count: 0, longest: 0 };
      sums.set(key, p);
    }
    p.total += b - a;
    p.count!++;
    if (b - a > p.longest!) {
      p.longest = b - a;
      p.at = a;
      p.lock = lock;
    }
  }
  return { start, end, parts: fitted([...sums.values()], r.cpu[i]!, end - start) };
}
