// How a selected call spent its time: on a CPU, and off it by reason. The parts add up to its length.

import { type Part, parts, partWords } from './analysis';
import { able } from './able';
import { h } from './dom';
import { count, dur, percent } from './format';
import type { LockInfo } from './proto';

// unseen is time off a CPU whose reason no sample saw.
export type SumPart = Part | 'unseen';
export interface PartSum {
  part: SumPart;
  what?: string;
  lock?: LockInfo;
  total: number;
  count?: number;
  longest?: number;
  at?: number;
}
export interface Sums {
  start: number;
  end: number;
  running?: boolean;
  parts: PartSum[];
}

const order: readonly SumPart[] = [...parts, 'unseen'];
const callWords: Record<SumPart, string> = { ...partWords, cpu: 'on a CPU', idle: 'idle', unseen: 'off a CPU, not sampled' };

// fitted makes the totals of the waits that samples found, and of the time on a CPU that the scheduler
// counted, add up to length: it is what package web does on a server.
export function fitted(found: PartSum[], cpu: number, length: number): PartSum[] {
  cpu = Math.min(Math.max(cpu, 0), length);
  const waits = found.reduce((sum, p) => sum + p.total, 0);
  const k = waits > length - cpu ? (length - cpu) / waits : 1;
  const all = found.map((p) => ({ ...p, total: p.total * k }));
  const unseen = length - cpu - waits * k;
  if (unseen >= 1) all.push({ part: 'unseen', total: unseen });
  all.push({ part: 'cpu', total: cpu });
  return all.filter((p) => p.total > 0).sort((a, b) => b.total - a.total);
}

// SumWords name the parts of a task, where those of a call do not fit.
export interface SumWords {
  caption: string;
  length: string;
  parts: Partial<Record<SumPart, string>>;
}

export interface SumActs {
  holder(l: LockInfo): string; // its name; '': not known
  time(t0: number, t1: number): void; // shows a wait
  goHolder(l: LockInfo, at: number, to: number): void;
}

export function sumsView(s: Sums, act: SumActs, of?: SumWords): HTMLElement {
  const words = { ...callWords, ...of?.parts };
  const length = s.end - s.start;
  const share = (ns: number): string => percent(length > 0 ? ns / length : 0);
  const by = order
    .map((part) => ({ part, total: s.parts.reduce((n, p) => n + (p.part === part ? p.total : 0), 0) }))
    .filter((p) => p.total > 0);
  const row = (p: PartSum): HTMLElement => {
    const { at, longest, lock } = p;
    const what = p.what ?? '';
    const title = p.count ? `${count(p.count)} × sampled, the longest ${dur(longest ?? 0)}: show it` : '';
    const name =
      at !== undefined && longest
        ? able(h('button', { class: 'link', onclick: () => act.time(at, at + longest) }, words[p.part]), title)
        : words[p.part];
    const held = lock && act.holder(lock);
    return h(
      'tr',
      null,
      h(
        'td',
        null,
        h('i', { class: `dot part-${p.part}` }),
        name,
        what ? h('span', { class: 'soft' }, ` ${what}`) : null,
        held && lock
          ? h(
              'span',
              { class: 'soft' },
              ', held by ',
              able(
                h('button', { class: 'link', onclick: () => act.goHolder(lock, at ?? s.start, (at ?? s.start) + (longest ?? 0)) }, held),
                'Go to what the holder did',
              ),
            )
          : null,
      ),
      h('td', { class: 'num' }, dur(p.total)),
      h('td', { class: 'num' }, share(p.total)),
    );
  };
  return h(
    'div',
    null,
    h(
      'div',
      { class: 'states', role: 'img', 'aria-label': by.map((p) => `${words[p.part]} ${share(p.total)}`).join(', ') },
      ...by.map((p) => h('i', { class: `part-${p.part}`, style: { width: `${(100 * p.total) / (length || 1)}%` } })),
    ),
    h(
      'table',
      { class: 'spent' },
      h('caption', { class: 'away' }, of?.caption ?? 'How this call spent its time'),
      h('tbody', null, ...s.parts.map(row)),
      h(
        'tfoot',
        null,
        h(
          'tr',
          null,
          h('th', { scope: 'row' }, of?.length ?? (s.running ? 'So far' : 'Its length')),
          h('td', { class: 'num' }, dur(length)),
          h('td', { class: 'num' }, '100 %'),
        ),
      ),
    ),
  );
}
