// Which rows of a deep stack are shown, where there is no room for all of them.

import { FuncView, Model, Row } from './model';

const steady = 0.95; // share of the time in which an outer call is always the same
const some = 0.05; // share of the time from which a row counts as one of the program's own calls

// Rows is what is known of a thread's rows: so many outer ones are nearly always one call, and
// the program's own calls are from one row to another, last < first where there are none.
export interface Rows { trunk: number; first: number; last: number }

// owned tells a program's own functions: of one in Java, Python or JavaScript those, not the
// virtual machine's; else those of its executable, but for Go's runtime.
export function owned(m: Model): (func: number) => boolean {
  const managed = (f: FuncView): boolean => f.kind === 'java' || f.kind === 'python' || f.kind === 'js';
  if (m.kinds.has('java') || m.kinds.has('python') || m.kinds.has('js')) return (i) => !!m.funcs[i] && managed(m.funcs[i]);
  const exe = m.hello?.process.exe;
  return (i) => {
    const f = m.funcs[i];
    return !!f && !!exe && f.module === exe && !(f.kind === 'go' && /^(runtime|syscall|sync|internal)[./]/.test(f.name));
  };
}

// survey looks at rows up to edge. Unless they are of all that is recorded, it can but find
// fewer outer rows that stay the same, and more that are the program's own, than was: what is
// shown is not to jump about.
export function survey(rows: Row[], edge: number, own: (func: number) => boolean, was?: Rows): Rows {
  const [all] = rows[0].time(edge);
  const is: Rows = { trunk: 0, first: was?.first ?? Infinity, last: was?.last ?? -1 };
  while (is.trunk < rows.length && is.trunk < (was?.trunk ?? Infinity) && rows[is.trunk].time(edge)[1] >= steady * all) is.trunk++;
  rows.forEach((r, i) => {
    if ((i >= is.first && i <= is.last) || !(r.timeOf(own, edge) > some * all)) return;
    is.first = Math.min(is.first, i);
    is.last = Math.max(is.last, i);
  });
  return is;
}

// skipped is how many outer rows are left out of depth, where there is room for fewer. Those
// that stay the same go first; but the program's own calls stay as long as others could go, and
// if they are too many, the others go.
export function skipped(r: Rows | undefined, depth: number, room: number): number {
  if (!r) return 0;
  let skip = r.trunk;
  if (r.first <= r.last) {
    const most = r.last + 1 - room; // has the innermost of them in the last row
    skip = Math.min(Math.max(skip, Math.min(r.first, most)), Math.max(r.first, most));
  }
  skip = Math.min(skip, depth - room);
  return skip < 2 ? 0 : skip; // the line that tells of it takes as much room
}
