// Locks and counters over time, of the recording that the page carries: what the query lanes of a server answers.

import { lockKey } from './format';
import type { LockInfo } from './proto';
import type { Lane, Recording, SharedThread } from './shared';

interface LockSum {
  lock: LockInfo;
  total: number;
  most: number;
  waiting: number[];
  holder: number[];
  lead: number[];
}

export function lanesOf(rec: Recording, threads: SharedThread[], t0: number, t1: number, n: number, cpu: number[]): unknown {
  const width = (t1 - t0) / n;
  const mean = (): number[] => new Array<number>(n).fill(0);
  const bins = { cpu, runnable: mean(), lock: mean(), gap: mean() };
  const locks = new Map<string, LockSum>();
  const spread = (a: number, b: number, f: (k: number, ns: number) => void): void => {
    for (let k = Math.max(0, Math.floor((a - t0) / width)); k < n && t0 + k * width < b; k++) {
      const ns = Math.min(b, t0 + (k + 1) * width) - Math.max(a, t0 + k * width);
      if (ns > 0) f(k, ns);
    }
  };
  const each = (l: Lane, f: (i: number, a: number, b: number) => void): void => {
    for (let i = l.at(t0); i < l.start.length && l.start[i]! < t1; i++) f(i, Math.max(l.start[i]!, t0), Math.min(l.end[i]!, t1));
  };
  const add =
    (to: number[]) =>
    (k: number, ns: number): void => {
      to[k]! += ns / width;
    };
  for (const t of threads) {
    each(t.states, (i, a, b) => {
      if ((t.states.value[i]! & 0xff) === 2) spread(a, b, add(bins.runnable));
    });
    each(t.gaps, (i, a, b) => {
      if (!(t.gaps.value[i]! & 1)) spread(a, b, add(bins.gap)); // not a mark
    });
    each(t.locks, (i, a, b) => {
      const info = rec.head.locks?.[t.locks.value[i]!];
      if (!info) return;
      let l = locks.get(lockKey(info));
      if (!l) {
        l = { lock: { ...info, holder: undefined }, total: 0, most: 0, waiting: mean(), holder: mean(), lead: mean() };
        locks.set(lockKey(info), l);
      }
      const { waiting, holder, lead } = l;
      l.total += b - a;
      spread(a, b, (k, ns) => {
        bins.lock[k]! += ns / width;
        waiting[k]! += ns / width;
        if (!info.holder) return;
        if (holder[k] === info.holder) lead[k]! += ns;
        else if (lead[k]! >= ns) lead[k]! -= ns;
        else [holder[k], lead[k]] = [info.holder, ns - lead[k]!];
      });
    });
  }
  const found = [...locks.values()].sort((a, b) => b.total - a.total);
  for (const l of found) l.most = l.waiting.reduce((a, b) => Math.max(a, b), 0);
  return {
    t0,
    t1,
    counters: Object.entries(bins).map(([name, b]) => ({ name, bins: b })),
    locks: found.slice(0, 64),
    more: Math.max(0, found.length - 64),
  };
}
