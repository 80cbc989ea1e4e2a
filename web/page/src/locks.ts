// The tab of locks: each with who held it, in which functions, and who wanted it.

import type { Analysis, LockRow, Share } from './analysis';
import { h } from './dom';
import { count, dur, lockKey, percent } from './format';
import type { Actions } from './overview';

export function locksTab(a: Analysis, act: Actions, open: string, toggle: (name: string) => void): HTMLElement {
  const locks = a.report.locks;
  if (!locks.length) return h('p', { class: 'soft pad' }, 'No thread waited for a lock of another one in this range.');
  const max = Math.max(...locks.map((l) => l.total_ns));
  return h(
    'div',
    { class: 'tables' },
    h(
      'table',
      { class: 'grid' },
      h('caption', { class: 'away' }, 'Locks'),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          ...['Lock', 'Waited', 'Waits', 'Longest', 'At once', 'Held mostly by', 'in'].map((t, i) =>
            h('th', { scope: 'col', class: i > 0 && i < 5 ? 'num' : '' }, t),
          ),
        ),
      ),
      h(
        'tbody',
        null,
        ...locks.flatMap((l) => {
          const is = l.name === open;
          const head = h(
            'tr',
            { class: is ? 'open' : '' },
            h(
              'td',
              null,
              h(
                'button',
                { class: 'link', 'aria-expanded': String(is), onclick: () => toggle(is ? '' : l.name) },
                `${is ? '▾' : '▸'} ${l.name}`,
              ),
            ),
            h(
              'td',
              { class: 'num' },
              h('span', { class: 'bar' }, h('i', { style: { width: `${(100 * l.total_ns) / max}%` } }), dur(l.total_ns)),
            ),
            h('td', { class: 'num' }, count(l.waits)),
            h('td', { class: 'num' }, dur(l.longest_ns)),
            h('td', { class: 'num' }, count(l.most_waiting)),
            h('td', null, l.holders[0]?.name ?? l.no_holder),
            h('td', null, l.holder_functions[0] ? fn(l.holder_functions[0].name, act) : ''),
          );
          return is ? [head, h('tr', null, h('td', { colspan: 7 }, details(a, l, act)))] : [head];
        }),
      ),
    ),
  );
}

function fn(name: string, act: Actions): HTMLElement {
  return h('button', { class: 'link', title: `${name}: light up its calls`, onclick: () => act.name(name) }, name);
}

function details(a: Analysis, l: LockRow, act: Actions): HTMLElement {
  const block = (title: string, rows: Share[], cell: (s: Share) => HTMLElement | string): HTMLElement =>
    h(
      'section',
      null,
      h('h3', null, title),
      rows.length
        ? h(
            'ul',
            { class: 'plain' },
            ...rows.map((s) =>
              h(
                'li',
                null,
                cell(s),
                h('span', { class: 'soft' }, ` ${dur(s.total_ns)} (${percent(s.total_ns / (l.total_ns || 1))}), ${count(s.waits)} waits`),
              ),
            ),
          )
        : h('p', { class: 'soft' }, l.no_holder || 'not known'),
    );
  const thread = (s: Share): HTMLElement | string => {
    const tid = Number(/\((\d+)\)/.exec(s.name)?.[1] ?? 0);
    const seq = act.seqOf(tid);
    return seq < 0 ? s.name : h('button', { class: 'link', title: 'Show the thread', onclick: () => act.thread(seq) }, s.name);
  };
  const waits = a.report.longest
    .filter((w) => w.for === l.name || w.facts.some((f) => f.name === 'lock' && f.value === l.name))
    .slice(0, 5);
  const track = l.addr
    ? h(
        'section',
        null,
        h(
          'button',
          { class: 'small', title: 'Show who held it and how many waited, over time', onclick: () => act.lane(lockKey(l)) },
          'Show its track',
        ),
      )
    : null;
  return h(
    'div',
    { class: 'three' },
    block('Held by', l.holders, thread),
    block('Held in', l.holder_functions, (s) => fn(s.name, act)),
    block('Wanted in', l.waiter_functions, (s) => fn(s.name, act)),
    waits.length
      ? h(
          'section',
          null,
          h('h3', null, 'Longest waits'),
          h(
            'ul',
            { class: 'plain' },
            ...waits.map((w) =>
              h(
                'li',
                null,
                h(
                  'button',
                  {
                    class: 'link',
                    title: 'Show it',
                    onclick: () => act.time(a.from + w.begin_ns, a.from + w.begin_ns + w.duration_ns, act.seqOf(w.tid)),
                  },
                  dur(w.duration_ns),
                ),
                ` of ${w.thread}`,
              ),
            ),
          ),
        )
      : null,
    track,
  );
}
