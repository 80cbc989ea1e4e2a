// The tab of waits: by reason, by function, the longest ones, and those of tasks.

import type { Analysis, LongWait, TaskWait, WaitFunc } from './analysis';
import { h } from './dom';
import { base, count, dur } from './format';
import { type Actions, waitLines } from './overview';
import { type Sorts, sortable } from './table';

const shownLongest = 12;

function matches(needle: string): (...s: string[]) => boolean {
  if (!needle) return () => true;
  let p: RegExp;
  try {
    p = new RegExp(needle, 'i');
  } catch {
    p = new RegExp(needle.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'i');
  }
  return (...s) => s.some((x) => p.test(x));
}

export function waitsTab(
  a: Analysis,
  act: Actions,
  sorts: Sorts,
  needle: string,
  find: (s: string) => void,
  again: () => void,
): HTMLElement {
  const has = matches(needle);
  const i = h('input', {
    type: 'search',
    value: needle,
    placeholder: 'Filter',
    'aria-label': 'Filter waits',
    onchange: () => find(i.value),
  });
  const name = (n: string): HTMLElement => h('button', { class: 'link', title: `${n}: light up its calls`, onclick: () => act.name(n) }, n);
  const lines = waitLines(a).filter((l) => has(l.what, l.kind));
  const lock = (k: string): boolean => k === 'lock' || k === 'GIL';
  const by = sortable(
    'waits',
    sorts,
    'total',
    'Waits by reason',
    lines,
    [
      {
        key: 'what',
        title: 'Waits for',
        by: (r) => r.what,
        cell: (r) => (lock(r.kind) ? h('button', { class: 'link', onclick: () => act.lock(r.what) }, r.what) : r.what),
      },
      { key: 'kind', title: 'Kind', wide: true, by: (r) => r.kind, cell: (r) => r.kind },
      { key: 'total', title: 'Total', num: true, by: (r) => r.total, cell: (r) => dur(r.total) },
      { key: 'waits', title: 'Times', num: true, by: (r) => r.waits, cell: (r) => count(r.waits) },
      { key: 'longest', title: 'Longest', num: true, by: (r) => r.longest, cell: (r) => dur(r.longest) },
    ],
    again,
  );
  const funcs = sortable<WaitFunc>(
    'waitfuncs',
    sorts,
    'total',
    'Waits by function',
    a.report.functions.filter((f) => has(f.name, f.for)),
    [
      { key: 'name', title: 'Function that waits', by: (r) => r.name, cell: (r) => (r.name.startsWith('[') ? r.name : name(r.name)) },
      { key: 'for', title: 'Mostly for', by: (r) => r.for, cell: (r) => r.for },
      { key: 'total', title: 'Total', num: true, by: (r) => r.total_ns, cell: (r) => dur(r.total_ns) },
      { key: 'waits', title: 'Times', num: true, by: (r) => r.waits, cell: (r) => count(r.waits) },
      { key: 'longest', title: 'Longest', num: true, by: (r) => r.longest_ns, cell: (r) => dur(r.longest_ns) },
    ],
    again,
  );
  const tasks = a.report.goroutines?.waits.filter((w) => has(w.for, w.func)) ?? [];
  const taskTable = tasks.length
    ? sortable<TaskWait>(
        'taskwaits',
        sorts,
        'total',
        'Waits of goroutines',
        tasks,
        [
          { key: 'for', title: 'Goroutines wait for', by: (r) => r.for, cell: (r) => r.for },
          { key: 'func', title: 'In', by: (r) => r.func, cell: (r) => name(r.func) },
          {
            key: 'place',
            title: 'Source',
            wide: true,
            by: (r) => r.file,
            cell: (r) => (r.file ? `${base(r.file)}${r.line ? `:${r.line}` : ''}` : ''),
          },
          { key: 'total', title: 'Total', num: true, by: (r) => r.total_ns, cell: (r) => dur(r.total_ns) },
          { key: 'tasks', title: 'Goroutines', num: true, by: (r) => r.tasks, cell: (r) => count(r.tasks) },
          { key: 'longest', title: 'Longest', num: true, by: (r) => r.longest_ns, cell: (r) => dur(r.longest_ns) },
        ],
        again,
      )
    : null;
  const list = a.tasks?.list.filter((t) => has(t.name, t.func, t.why ?? '')) ?? [];
  const taskList = list.length
    ? sortable(
        'tasks',
        sorts,
        'ran',
        'Tasks',
        list,
        [
          {
            key: 'name',
            title: a.tasks!.what.replace(/^./, (c) => c.toUpperCase()),
            by: (r) => r.name,
            cell: (r) =>
              h(
                'button',
                {
                  class: 'link',
                  title: 'Show its track',
                  onclick: () => act.task({ id: r.id, at: r.at, process: a.of === undefined ? undefined : r.process }),
                },
                r.name,
              ),
          },
          { key: 'ran', title: 'Ran', num: true, by: (r) => r.ran, cell: (r) => dur(r.ran) },
          {
            key: 'longest',
            title: 'Longest run',
            num: true,
            by: (r) => r.longest,
            cell: (r) =>
              r.seq < 0
                ? dur(r.longest)
                : h('button', { class: 'link', title: 'Show it', onclick: () => act.time(r.at, r.at + r.longest, r.seq) }, dur(r.longest)),
          },
          { key: 'ready', title: 'Ready', num: true, by: (r) => r.ready, cell: (r) => dur(r.ready) },
          { key: 'waited', title: 'Waited', num: true, by: (r) => r.waited, cell: (r) => dur(r.waited) },
          { key: 'why', title: 'Mostly for', wide: true, by: (r) => r.why ?? '', cell: (r) => r.why ?? '' },
        ],
        again,
        200,
      )
    : null;
  const longest = a.report.longest.filter((w) => has(w.for, w.thread, w.stack[0]?.func ?? '')).slice(0, shownLongest);
  return h(
    'div',
    { class: 'tables' },
    h('div', { class: 'tools' }, i),
    lines.length
      ? h('section', null, h('h3', null, 'By reason'), by)
      : h('p', { class: 'soft pad' }, 'No waits in this range, idle ones aside.'),
    taskTable ? h('section', null, h('h3', null, 'Waits of goroutines'), taskTable) : null,
    a.report.functions.length ? h('section', null, h('h3', null, 'By function'), funcs) : null,
    longest.length ? h('section', null, h('h3', null, 'The longest single waits'), longestTable(a, longest, act)) : null,
    taskList ? h('section', null, h('h3', null, 'Tasks'), taskList) : null,
  );
}

function longestTable(a: Analysis, waits: LongWait[], act: Actions): HTMLElement {
  const fact = (w: LongWait, n: string): string => w.facts.find((f) => f.name === n)?.value ?? '';
  return h(
    'table',
    { class: 'grid' },
    h('caption', { class: 'away' }, 'The longest single waits'),
    h('thead', null, h('tr', null, ...['Length', 'Thread', 'Waits for', 'In', 'Held by'].map((t) => h('th', { scope: 'col' }, t)))),
    h(
      'tbody',
      null,
      ...waits.map((w) =>
        h(
          'tr',
          null,
          h(
            'td',
            { class: 'num' },
            h(
              'button',
              {
                class: 'link',
                title: 'Show it',
                onclick: () => act.time(a.from + w.begin_ns, a.from + w.begin_ns + w.duration_ns, act.seqOf(w.tid)),
              },
              dur(w.duration_ns),
            ),
          ),
          h(
            'td',
            null,
            h('button', { class: 'link', title: 'Show the thread', onclick: () => act.thread(act.seqOf(w.tid)) }, `${w.thread} (${w.tid})`),
          ),
          h('td', null, w.for),
          h('td', null, w.stack.find((f) => f.file && !/pthread|futex|sysdeps|nptl/.test(f.file))?.func ?? w.stack[0]?.func ?? ''),
          h('td', null, fact(w, 'holder')),
        ),
      ),
    ),
  );
}
