// The tab of traced calls: the functions with their percentiles, and of one of them the durations and the slowest calls.

import type { Analysis, Traced, TracedCall } from './analysis';
import { h } from './dom';
import { base, count, dur } from './format';
import type { Actions } from './overview';
import { type Sorts, sortable } from './table';

// known is a time that is not known of all calls.
const known = (ns: number | null): string => (ns === null ? '' : dur(ns));

// took is a figure of the calls whose beginning and end are known.
const took = (f: Traced, ns: number): string => (f.histogram.length ? dur(ns) : '');

// durations are the buckets of a histogram, with a bar for each.
function durations(f: Traced): HTMLElement {
  const most = Math.max(...f.histogram.map((b) => b.calls), 1);
  return h(
    'table',
    { class: 'grid' },
    h('caption', { class: 'away' }, `Durations of ${f.name}`),
    h('thead', null, h('tr', null, ...['Up to', 'Calls', ''].map((t, i) => h('th', { scope: 'col', class: i < 2 ? 'num' : '' }, t)))),
    h(
      'tbody',
      null,
      ...f.histogram.map((b) =>
        h(
          'tr',
          null,
          h('td', { class: 'num' }, dur(b.up_to_ns)),
          h('td', { class: 'num' }, count(b.calls)),
          h(
            'td',
            { class: 'bars' },
            h('span', { class: 'meter', 'aria-hidden': 'true' }, h('i', { style: { width: `${(100 * b.calls) / most}%` } })),
          ),
        ),
      ),
    ),
  );
}

// slowest are the calls that took longest.
function slowest(a: Analysis, f: Traced, act: Actions, sorts: Sorts, again: () => void): HTMLElement {
  const show = (c: TracedCall): HTMLElement => {
    const from = a.from + c.at_ns;
    const seq = act.seqOf(c.tid);
    const name = `${c.thread} (${c.tid})`.trim();
    if (seq < 0) return h('span', null, name);
    return h('button', { class: 'link', title: 'Show this call', onclick: () => act.time(from, from + c.duration_ns, seq) }, name);
  };
  return sortable<TracedCall>(
    'slowest',
    sorts,
    'took',
    `Slowest calls of ${f.name}`,
    f.slowest,
    [
      { key: 'took', title: 'Took', num: true, by: (r) => r.duration_ns, cell: (r) => dur(r.duration_ns) },
      { key: 'cpu', title: 'On CPU', num: true, by: (r) => r.on_cpu_ns ?? -1, cell: (r) => known(r.on_cpu_ns) },
      { key: 'ready', title: 'For a CPU', num: true, wide: true, by: (r) => r.runnable_ns ?? -1, cell: (r) => known(r.runnable_ns) },
      { key: 'off', title: 'Waited', num: true, by: (r) => r.off_cpu_ns ?? -1, cell: (r) => known(r.off_cpu_ns) },
      { key: 'thread', title: 'Thread', by: (r) => r.thread, cell: show },
      { key: 'at', title: 'At', num: true, by: (r) => r.at_ns, cell: (r) => dur(r.at_ns) },
      {
        key: 'caller',
        title: 'Called by',
        wide: true,
        by: (r) => r.caller,
        cell: (r) => (r.caller ? h('button', { class: 'link', title: r.caller, onclick: () => act.name(r.caller) }, r.caller) : ''),
      },
      { key: 'woken', title: 'Woken by', wide: true, by: (r) => r.woken_by, cell: (r) => r.woken_by },
    ],
    again,
  );
}

export function tracedTab(
  a: Analysis,
  act: Actions,
  sorts: Sorts,
  open: string,
  toggle: (key: string) => void,
  again: () => void,
): HTMLElement {
  const all = a.report.traced ?? [];
  if (!all.length) return h('p', { class: 'soft pad' }, 'No calls were traced: sliver record --trace FUNCTION does that.');
  const picked = all.find((f) => f.name === open) ?? all[0]!;
  const rows = sortable<Traced>(
    'traced',
    sorts,
    'total',
    'Traced functions',
    all,
    [
      {
        key: 'name',
        title: 'Function',
        by: (r) => r.name,
        cell: (r) =>
          h(
            'button',
            {
              class: 'link',
              'aria-pressed': String(r === picked),
              title: `${r.name}${r.file ? ` (${base(r.file)}${r.line ? `:${r.line}` : ''})` : ''}: show its durations and slowest calls`,
              onclick: () => toggle(r.name),
            },
            `${r === picked ? '▾' : '▸'} ${r.name}`,
          ),
      },
      { key: 'calls', title: 'Calls', num: true, by: (r) => r.calls, cell: (r) => count(r.calls) },
      { key: 'total', title: 'Total', num: true, by: (r) => r.total_ns, cell: (r) => took(r, r.total_ns) },
      { key: 'p50', title: 'p50', num: true, by: (r) => r.p50_ns, cell: (r) => took(r, r.p50_ns) },
      { key: 'p90', title: 'p90', num: true, wide: true, by: (r) => r.p90_ns, cell: (r) => took(r, r.p90_ns) },
      { key: 'p99', title: 'p99', num: true, by: (r) => r.p99_ns, cell: (r) => took(r, r.p99_ns) },
      { key: 'p999', title: 'p99.9', num: true, wide: true, by: (r) => r.p999_ns, cell: (r) => took(r, r.p999_ns) },
      { key: 'max', title: 'Longest', num: true, by: (r) => r.max_ns, cell: (r) => took(r, r.max_ns) },
      { key: 'cpu', title: 'On CPU', num: true, by: (r) => r.on_cpu_ns, cell: (r) => (r.timed ? dur(r.on_cpu_ns) : '') },
      {
        key: 'ready',
        title: 'For a CPU',
        num: true,
        wide: true,
        by: (r) => r.runnable_ns,
        cell: (r) => (r.timed ? dur(r.runnable_ns) : ''),
      },
      { key: 'off', title: 'Waited', num: true, by: (r) => r.off_cpu_ns, cell: (r) => (r.timed ? dur(r.off_cpu_ns) : '') },
      {
        key: 'left',
        title: 'No return',
        num: true,
        wide: true,
        by: (r) => r.left,
        cell: (r) => h('span', { title: 'Left by an exception, longjmp or panic' }, r.left ? count(r.left) : ''),
      },
    ],
    again,
  );
  const estimated = all.some((f) => f.calls && !f.times_exact);
  return h(
    'div',
    { class: 'tables' },
    h(
      'section',
      null,
      h('h3', null, 'Traced functions'),
      rows,
      a.report.more.traced ? h('p', { class: 'soft pad' }, `${count(a.report.more.traced)} more functions`) : null,
      estimated
        ? h(
            'p',
            { class: 'soft pad' },
            'On CPU, for a CPU and waited are estimated from the samples, and not known of calls shorter than two of their intervals; ' +
              'sliver record --kernel=auto measures them.',
          )
        : null,
    ),
    picked.slowest.length
      ? h('section', null, h('h3', null, `Slowest calls of ${picked.name}`), slowest(a, picked, act, sorts, again))
      : null,
    picked.histogram.length ? h('section', null, h('h3', null, `Durations of ${picked.name}`), durations(picked)) : null,
  );
}
