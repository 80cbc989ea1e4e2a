// The tab of I/O: findings, each with what to change, and the files with their sums.

import type { Analysis, IOFile, IOFinding, IORing } from './analysis';
import { h } from './dom';
import { bytes, count, dur } from './format';
import type { Actions } from './overview';
import { type Sorts, sortable } from './table';

// functionOf is a frame's function without its place.
function functionOf(frame: string): string {
  return frame.replace(/ \([^()]*:\d+\)$/, '');
}

function stack(title: string, frames: string[], act: Actions): HTMLElement | null {
  if (!frames.length) return null;
  return h(
    'section',
    null,
    h('h3', null, title),
    h(
      'ul',
      { class: 'plain' },
      ...frames.map((f) =>
        h(
          'li',
          null,
          h('button', { class: 'link', title: `${functionOf(f)}: light up its calls`, onclick: () => act.name(functionOf(f)) }, f),
        ),
      ),
    ),
  );
}

function finding(a: Analysis, f: IOFinding, open: string, toggle: (key: string) => void, act: Actions): HTMLElement[] {
  const key = `${f.rule} ${f.path} ${f.at_ns}`;
  const is = key === open;
  const seq = act.seqOf(f.tid);
  const at = a.from + f.at_ns;
  const others = (f.also ?? []).length + (f.also_more ?? 0);
  const head = h(
    'tr',
    { class: is ? 'open' : '' },
    h(
      'td',
      null,
      h('button', { class: 'link', 'aria-expanded': String(is), onclick: () => toggle(is ? '' : key) }, `${is ? '▾' : '▸'} ${f.rule}`),
    ),
    h(
      'td',
      null,
      f.advice,
      others ? h('span', { class: 'soft' }, ` And of ${count(others)} other ${others > 1 ? 'files' : 'file'}.`) : null,
    ),
    h(
      'td',
      null,
      seq < 0
        ? `${f.thread} (${f.tid})`
        : h(
            'button',
            { class: 'link', title: 'Show this time of the thread', onclick: () => act.time(at - f.longest_ns, at, seq) },
            `${f.thread} (${f.tid})`,
          ),
    ),
    h('td', { class: 'num' }, f.longest_ns ? dur(f.longest_ns) : ''),
  );
  if (!is) return [head];
  const facts = [
    f.path,
    f.ops
      ? `${count(f.ops)} operations, ${bytes(f.requested_bytes)} requested, at most ${bytes(f.buffer_bytes)} at once, ${dur(f.total_ns)}`
      : '',
    f.size_bytes >= 0 ? `the file has ${bytes(f.size_bytes)}` : '',
    f.also ? `the same of ${f.also.join(', ')}${f.also_more ? ` and ${count(f.also_more)} more` : ''}` : '',
  ].filter((x) => x);
  return [
    head,
    h(
      'tr',
      null,
      h(
        'td',
        { colspan: 4 },
        h('p', { class: 'soft' }, facts.join('; ')),
        h('div', { class: 'three' }, stack('Opened in', f.opened, act), stack('Called in', f.stack, act)),
      ),
    ),
  ];
}

// waited is a number of waits and their time.
function waited(title: string, n: number, ns: number): HTMLElement {
  return h('span', { title }, n ? `${count(n)} in ${dur(ns)}` : '');
}

// name of a file, or of several with alike names; they have no percentiles.
const name = (r: IOFile): string => (r.files ? `${r.path} (${count(r.files)} files)` : r.path || r.kind);

export function ioTab(
  a: Analysis,
  act: Actions,
  sorts: Sorts,
  needle: string,
  open: string,
  toggle: (key: string) => void,
  find: (s: string) => void,
  again: () => void,
): HTMLElement {
  const io = a.report.io;
  if (!io) return h('p', { class: 'soft pad' }, 'I/O was not recorded: sliver record --io does that.');
  const s = needle.toLowerCase();
  const has = (x: string): boolean => x.toLowerCase().includes(s);
  const i = h('input', {
    type: 'search',
    value: needle,
    placeholder: 'Filter',
    'aria-label': 'Filter files',
    onchange: () => find(i.value),
  });
  const found = io.findings.filter((f) => has(f.path) || has(f.rule) || has(f.advice) || (f.also ?? []).some(has));
  const files = sortable<IOFile>(
    'files',
    sorts,
    'total',
    'Files',
    io.files.filter((f) => has(f.path || f.kind)),
    [
      { key: 'path', title: 'File', by: (r) => r.path, cell: (r) => h('span', { title: r.kind }, name(r)) },
      { key: 'opens', title: 'Opens', num: true, by: (r) => r.opens, cell: (r) => count(r.opens) },
      { key: 'open', title: 'Open', num: true, wide: true, by: (r) => r.open, cell: (r) => count(r.open) },
      { key: 'ops', title: 'Operations', num: true, by: (r) => r.ops, cell: (r) => count(r.ops) },
      { key: 'syncs', title: 'Syncs', num: true, wide: true, by: (r) => r.syncs, cell: (r) => count(r.syncs) },
      { key: 'read', title: 'Read', num: true, by: (r) => r.read_bytes, cell: (r) => bytes(r.read_bytes) },
      { key: 'written', title: 'Written', num: true, by: (r) => r.written_bytes, cell: (r) => bytes(r.written_bytes) },
      { key: 'total', title: 'Time', num: true, by: (r) => r.total_ns, cell: (r) => dur(r.total_ns) },
      { key: 'p50', title: 'p50', num: true, by: (r) => r.p50_ns, cell: (r) => (r.files ? '' : dur(r.p50_ns)) },
      { key: 'p99', title: 'p99', num: true, by: (r) => r.p99_ns, cell: (r) => (r.files ? '' : dur(r.p99_ns)) },
      { key: 'max', title: 'Longest', num: true, by: (r) => r.max_ns, cell: (r) => dur(r.max_ns) },
      {
        key: 'missed',
        title: 'Missed',
        num: true,
        wide: true,
        by: (r) => r.missed_ns,
        cell: (r) => waited('Reads that waited, since the page cache did not have the data', r.misses, r.missed_ns),
      },
      {
        key: 'faults',
        title: 'Page faults',
        num: true,
        wide: true,
        by: (r) => r.faulted_ns,
        cell: (r) => waited('Page faults in the mapped file that waited for storage', r.faults, r.faulted_ns),
      },
      {
        key: 'stack',
        title: 'Opened in',
        wide: true,
        by: (r) => r.stack[0] ?? '',
        cell: (r) => h('span', { title: r.stack.join('\n') }, functionOf(r.stack[0] ?? '')),
      },
    ],
    again,
  );
  const rings = (io.uring ?? []).filter((f) => has(f.path));
  const ring = sortable<IORing>(
    'uring',
    sorts,
    'total',
    'Through io_uring',
    rings,
    [
      { key: 'path', title: 'File', by: (r) => r.path, cell: (r) => r.path },
      { key: 'ops', title: 'Operations', num: true, by: (r) => r.ops, cell: (r) => count(r.ops) },
      { key: 'syncs', title: 'Syncs', num: true, wide: true, by: (r) => r.syncs, cell: (r) => count(r.syncs) },
      { key: 'others', title: 'Others', num: true, wide: true, by: (r) => r.others, cell: (r) => count(r.others) },
      { key: 'errors', title: 'Errors', num: true, by: (r) => r.errors, cell: (r) => count(r.errors) },
      { key: 'read', title: 'Read', num: true, by: (r) => r.read_bytes, cell: (r) => bytes(r.read_bytes) },
      { key: 'written', title: 'Written', num: true, by: (r) => r.written_bytes, cell: (r) => bytes(r.written_bytes) },
      { key: 'total', title: 'Time', num: true, by: (r) => r.total_ns, cell: (r) => dur(r.total_ns) },
      { key: 'max', title: 'Longest', num: true, by: (r) => r.max_ns, cell: (r) => dur(r.max_ns) },
    ],
    again,
  );
  return h(
    'div',
    { class: 'tables' },
    h('div', { class: 'tools' }, i),
    h(
      'section',
      null,
      h('h3', null, 'Findings'),
      found.length
        ? h(
            'table',
            { class: 'grid' },
            h('caption', { class: 'away' }, 'Findings'),
            h(
              'thead',
              null,
              h(
                'tr',
                null,
                ...['Rule', 'What to change', 'Thread', 'Longest'].map((t, k) => h('th', { scope: 'col', class: k === 3 ? 'num' : '' }, t)),
              ),
            ),
            h('tbody', null, ...found.flatMap((f) => finding(a, f, open, toggle, act))),
          )
        : h('p', { class: 'soft pad' }, 'No rule fired in this range.'),
    ),
    h(
      'section',
      null,
      h('h3', null, io.part ? 'Files, by the operations of this range' : 'Files'),
      files,
      a.report.more.files ? h('p', { class: 'soft pad' }, `${count(a.report.more.files)} more files took less time`) : null,
    ),
    rings.length ? h('section', null, h('h3', null, 'Through io_uring'), ring) : null,
  );
}
