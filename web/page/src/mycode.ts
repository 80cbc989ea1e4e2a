// My code first: frames that are not the program's own are folded into the frame that calls them.

import type { Analysis, AFunc } from './analysis';
import { type Node, node } from './tree';

// Folded is a node that may have taken in others: rows is how many callees it has taken in.
export interface Folded extends Node {
  rows?: number;
  kids: Folded[];
  parent: Folded | null;
}

// pathOf is the key of a node below a node with that key.
export function pathOf(parent: string, k: Node): string {
  return `${parent}\0${k.name}`;
}

// folds returns a tree in which each run of frames outside of the program's own code is its outermost one, and
// a function that calls itself is one frame. So the trunk below main, the library below a call of it, and a
// runtime between two functions of the program are one row each. Values stay; what a folded frame had for
// itself is added to the one that took it in. A frame that open reports, by its path, takes nothing in.
export function folds(root: Node, own: (k: Node) => boolean, open: (path: string) => boolean): Folded {
  const out: Folded = { ...root, kids: [], parent: null };
  const walk = (from: Node, to: Folded, path: string, foreign: boolean, index: Map<string, Folded>): void => {
    const opened = open(path);
    for (const x of from.kids) {
      const mine = own(x);
      if (!opened && to !== out && ((foreign && !mine) || x.name === to.name)) {
        to.rows = (to.rows ?? 0) + 1;
        to.self += x.self;
        walk(x, to, path, foreign, index);
        continue;
      }
      let c = index.get(x.name);
      if (!c) {
        c = node(x.name, x.func, to) as Folded;
        to.kids.push(c);
        index.set(x.name, c);
      }
      c.value += x.value;
      c.self += x.self;
      c.count += x.count;
      c.other += x.other;
      c.otherSelf += x.otherSelf;
      c.size += x.size;
      walk(x, c, pathOf(path, x), !mine, below(c));
    }
  };
  const indexes = new Map<Folded, Map<string, Folded>>();
  const below = (c: Folded): Map<string, Folded> => {
    let m = indexes.get(c);
    if (!m) {
      m = new Map();
      indexes.set(c, m);
    }
    return m;
  };
  walk(root, out, '', false, below(out));
  return out;
}

// mine returns a test for nodes of the program's own code. The root and nodes of threads pass it too.
// It returns null if the tree has no such code.
export function mine(a: Analysis, own: (f: AFunc) => boolean): ((k: Node) => boolean) | null {
  const is = a.funcs.map((f) => f.thread === undefined && own(f));
  if (!a.tree.func.some((i) => is[i])) return null;
  return (k) => k.func < 0 || !!is[k.func] || a.funcs[k.func]?.thread !== undefined;
}

// covers is the share of a tree that is below the program's own code. If it is small, the program spends
// its time in other code, and folding would hide that code.
export function covers(root: Node, own: (k: Node) => boolean): number {
  let sum = 0;
  const walk = (k: Node): void => {
    for (const x of k.kids) {
      if (x.func >= 0 && own(x)) sum += x.value;
      else walk(x);
    }
  };
  walk(root);
  return root.value > 0 ? sum / root.value : 0;
}
