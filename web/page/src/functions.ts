// The table of functions.

import type { Desk } from './desk';
import { fill, h } from './dom';
import { pattern } from './filter';
import { percent } from './format';
import { sortable } from './table';
import { type FuncRow, table } from './tree';

export function functionsTab(d: Desk): void {
  const total = d.root!.value || 1;
  const p = d.needle ? pattern(d.needle) : null;
  const a = d.analysis!;
  const rows = table(d.root!).filter((r) => a.funcs[r.func]?.thread === undefined && (!p || p.test(r.name)));
  const bar = (x: number): HTMLElement =>
    h('span', { class: 'bar' }, h('i', { style: { width: `${Math.min(100, (100 * x) / total)}%` } }), d.amount(x));
  fill(
    d.body,
    d.tools(d.find()),
    sortable<FuncRow>(
      'functions',
      d.sorts,
      'self',
      'Functions of the range',
      rows,
      [
        { key: 'name', title: 'Function', by: (r) => r.name, cell: (r) => d.nameCell(r.name, r.func) },
        {
          key: 'module',
          title: 'Module',
          wide: true,
          by: (r) => a.funcs[r.func]?.module ?? '',
          cell: (r) => (a.funcs[r.func]?.module ?? '').replace(/.*\//, ''),
        },
        {
          key: 'place',
          title: 'Source',
          wide: true,
          by: (r) => a.funcs[r.func]?.file ?? '',
          cell: (r) => {
            const f = a.funcs[r.func];
            return f?.file ? f.file.replace(/.*\//, '') + (f.line ? `:${f.line}` : '') : '';
          },
        },
        { key: 'self', title: 'Self', num: true, by: (r) => r.self, cell: (r) => bar(r.self) },
        { key: 'selfp', title: '%', num: true, by: (r) => r.self, cell: (r) => percent(r.self / total) },
        { key: 'total', title: 'Total', num: true, by: (r) => r.total, cell: (r) => bar(r.total) },
        { key: 'totalp', title: '%', num: true, by: (r) => r.total, cell: (r) => percent(r.total / total) },
      ],
      () => d.draw(),
    ),
  );
}
