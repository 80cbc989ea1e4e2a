// Selects the rows of a deep stack that are shown when not all fit.

import type { Model, Row } from './model';
import { interpreted, managed, type Place } from './own';

const steady = 0.95; // share of the time in which an outer call is always the same
const some = 0.05; // share of the time from which a row counts as one of the program's own calls

// Part is from one row to another, last < first where there are none.
interface Part {
  first: number;
  last: number;
}

// Rows describes a thread's rows: trunk outer ones are nearly always one call, and own and wide are
// where the program's own calls are, of its own files and of its language.
export interface Rows {
  trunk: number;
  own: Part;
  wide: Part;
}

// owned returns two tests of a function's number: for the program's own code, and for that of its
// language, libraries included.
export function owned(m: Model): [own: (func: number) => boolean, wide: (func: number) => boolean] {
  const of =
    (told: (f: Place) => boolean): ((i: number) => boolean) =>
    (i) =>
      !!m.funcs[i] && told(m.funcs[i]!);
  const own = of(m.own());
  return [own, interpreted(m.kinds) ? of(managed) : own];
}

// survey looks at rows up to edge. Unless they are of all that is recorded, it can but find
// fewer outer rows that stay the same, and more of the program's own, than before: the rows that are
// shown is not to jump about.
export function survey(rows: Row[], edge: number, [own, wide]: ReturnType<typeof owned>, was?: Rows): Rows {
  const [all] = rows[0]!.time(edge);
  const part = (of: (func: number) => boolean, was: Part = { first: Infinity, last: -1 }): Part => {
    const is = { ...was };
    rows.forEach((r, i) => {
      if ((i >= is.first && i <= is.last) || !(r.timeOf(of, edge) > some * all)) return;
      is.first = Math.min(is.first, i);
      is.last = Math.max(is.last, i);
    });
    return is;
  };
  let trunk = 0;
  while (trunk < rows.length && trunk < (was?.trunk ?? Infinity) && rows[trunk]!.time(edge)[1] >= steady * all) trunk++;
  return { trunk, own: part(own, was?.own), wide: part(wide, was?.wide) };
}

// lead is how many outer rows are of one call nearly always, and outside of the program's own code, although
// that has rows further in: how a runtime comes to run the program.
export function lead(r: Rows | undefined): number {
  if (!r || r.own.first > r.own.last) return 0;
  return Math.min(r.trunk, r.own.first);
}

// skipped is how many outer rows are left out of depth, where there is room for fewer. Those
// that stay the same go first; but the program's own calls stay as long as others could go, and
// if they are too many, the others go.
export function skipped(r: Rows | undefined, depth: number, room: number): number {
  if (!r) return 0;
  let skip = r.trunk;
  const { first, last } = r.own.first <= r.own.last ? r.own : r.wide;
  if (first <= last) {
    const most = last + 1 - room; // has the innermost of them in the last row
    skip = Math.min(Math.max(skip, Math.min(first, most)), Math.max(first, most));
  }
  skip = Math.min(skip, depth - room);
  return skip < 2 ? 0 : skip; // the line for hidden rows takes as much room
}
