// Tables whose columns sort by a click on their head.

import { h } from './dom';
import { count } from './format';

export interface Column<T> {
  key: string;
  title: string;
  num?: boolean;
  wide?: boolean; // only where there is room
  by: (r: T) => number | string;
  cell: (r: T) => HTMLElement | string;
}

// Sorts are the columns that tables are sorted by, by the table's name.
export type Sorts = Partial<Record<string, { key: string; down: boolean }>>;

export function sortable<T>(
  table: string,
  sorts: Sorts,
  usual: string,
  caption: string,
  rows: T[],
  cols: Column<T>[],
  again: () => void,
  limit = 400,
): HTMLElement {
  const sort = sorts[table] ?? { key: usual, down: true };
  const col = cols.find((c) => c.key === sort.key) ?? cols[0]!;
  const sorted = [...rows].sort((a, b) => {
    const x = col.by(a);
    const y = col.by(b);
    const o = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
    return sort.down ? -o : o;
  });
  const look = (c: Column<T>): string => (c.num ? 'num' : '') + (c.wide ? ' less-wide' : '');
  const head = h(
    'tr',
    null,
    ...cols.map((c) =>
      h(
        'th',
        { scope: 'col', class: look(c), 'aria-sort': c === col ? (sort.down ? 'descending' : 'ascending') : 'none' },
        h(
          'button',
          {
            class: 'link',
            onclick: () => {
              sorts[table] = { key: c.key, down: c === col ? !sort.down : !!c.num };
              again();
            },
          },
          c.title,
          c === col ? (sort.down ? ' ▼' : ' ▲') : '',
        ),
      ),
    ),
  );
  const body = h(
    'tbody',
    null,
    ...sorted.slice(0, limit).map((r) => h('tr', null, ...cols.map((c) => h('td', { class: look(c) }, c.cell(r))))),
  );
  return h(
    'div',
    { class: 'scroll' },
    h('table', { class: 'grid' }, h('caption', { class: 'away' }, caption), h('thead', null, head), body),
    rows.length > limit ? h('p', { class: 'soft pad' }, `${count(rows.length - limit)} more; use the filter`) : null,
  );
}
