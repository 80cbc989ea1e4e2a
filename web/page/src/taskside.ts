// The panel of a selected task: what it does at a time and waits for, and how it spent its time.

import { able } from './able';
import { h, put } from './dom';
import { partOf } from './draw';
import { base, clock, dur, functionOf } from './format';
import { type PartSum, sumsView, type SumWords } from './sums';
import { stateWord, type Task } from './tasks';

export interface TaskDetail extends Task {
  what: string;
  row: number;
  seen?: number;
  prev: number;
  next: number;
  span?: { start: number; end: number; value: number; state: string; reason?: string; thread: number };
  stack: { name: string; file?: string; line?: number }[];
  reasons: { reason: string; value: number; total: number; count: number; longest: number; at: number }[];
}

export interface TaskActs {
  thread(seq: number): string; // its name with its TID; '': it is not of this recording
  calls(seq: number, t0: number, t1: number): void; // what that thread did then
  show(id: number, at: number): void;
  track(row: number): void;
  time(t0: number, t1: number): void;
  func(name: string): void; // finds its calls
}

// taskSums are the parts of a task's known time.
export function taskSums(d: TaskDetail): PartSum[] {
  const all: PartSum[] = [
    { part: 'cpu', what: '', total: d.ran },
    { part: 'runnable', what: '', total: d.ready },
    ...d.reasons.map(
      (w): PartSum => ({ part: partOf(w.value) ?? 'other', what: w.reason, total: w.total, count: w.count, longest: w.longest, at: w.at }),
    ),
  ];
  return all.filter((p) => p.total > 0).sort((a, b) => b.total - a.total);
}

// A task that a thread runs need not be on a CPU: the thread may wait for one.
const taskWords: SumWords = {
  caption: 'How this task spent its time',
  length: 'As far as known',
  parts: { cpu: 'on a thread', runnable: 'ready to run, on no thread' },
};

export function taskView(d: TaskDetail, begin: number, act: TaskActs): HTMLElement {
  const s = d.span;
  const dl = h('dl');
  const add = (k: string, ...val: (Node | string)[]): void => put(dl, h('dt', null, k), h('dd', null, ...val));
  const func = functionOf(d.what, d.func ?? '');
  if (d.func && d.func !== func) add('Name', d.func.slice(0, -func.length - 1));
  if (func) add('Function', able(h('button', { class: 'link', onclick: () => act.func(func) }, func), 'Light up its calls'));
  if (d.parent)
    add('Started by', able(h('button', { class: 'link', onclick: () => act.show(d.parent!, s?.start ?? 0) }, `${d.what} ${d.parent}`), ''));
  if (s) {
    add('State', s.reason ? `waits: ${s.reason}` : stateWord(s.value));
    add('Begin', clock(s.start - begin, 1000));
    add('Duration', dur(s.end - s.start));
    const on = s.thread >= 0 ? act.thread(s.thread) : '';
    add(
      'Thread',
      ...(on
        ? [`${on} `, able(h('button', { class: 'small', onclick: () => act.calls(s.thread, s.start, s.end) }, 'Go to its calls'), '')]
        : ['none ran it']),
    );
  } else add('State', 'not known at this time');
  const parts = taskSums(d);
  const sum = parts.reduce((n, p) => n + p.total, 0);
  const stack = h(
    'ol',
    { class: 'stack' },
    ...d.stack.map((f) =>
      h(
        'li',
        null,
        able(h('button', { class: 'link', onclick: () => act.func(f.name) }, f.name), f.name),
        h('span', { class: 'soft' }, f.file ? ` ${base(f.file)}${f.line ? `:${f.line}` : ''}` : ''),
      ),
    ),
  );
  const where =
    s?.state !== 'waiting'
      ? null
      : d.stack.length
        ? [
            h('h3', null, 'Waits here'),
            h('p', { class: 'soft' }, `as a look at all of them found it at ${clock((d.seen ?? 0) - begin, 1e6)}`),
            stack,
          ]
        : [h('h3', null, 'Waits here'), h('p', { class: 'soft' }, 'No look at all of them found it in this wait.')];
  return h(
    'div',
    null,
    h(
      'div',
      { class: 'buttons' },
      able(
        h('button', { class: 'small', onclick: () => act.show(d.id, d.prev) }, '← Previous'),
        'What it did before',
        d.prev >= 0 ? '' : 'Nothing before is known',
      ),
      able(
        h('button', { class: 'small', onclick: () => act.show(d.id, d.next) }, 'Next →'),
        'What it did then',
        d.next >= 0 ? '' : 'Nothing behind is known',
      ),
      h('button', { class: 'small', onclick: () => act.track(d.row) }, 'Show its track'),
      s ? h('button', { class: 'small', onclick: () => act.time(s.start, s.end) }, 'Zoom to it') : null,
    ),
    dl,
    ...(where ?? []),
    h('h3', null, 'Where its time went'),
    sum
      ? sumsView({ start: 0, end: sum, parts }, { holder: () => '', goHolder: () => {}, time: (t0, t1) => act.time(t0, t1) }, taskWords)
      : h('p', { class: 'soft' }, 'not known'),
  );
}
