// Call trees: merged, turned around, compared.

export type Weight = 'wall' | 'cpu' | 'wait' | 'lock' | 'samples';

// Named is what names nodes.
export interface Named {
  name: string;
}

// Columns are a server's tree: node 0 is the root, and a node comes after its parent.
export type Columns = { parent: number[]; func: number[]; count?: number[] } & Partial<Record<Weight, number[]>>;

export interface Node {
  name: string;
  func: number; // -1: the root, a thread
  value: number;
  self: number;
  other: number; // of the tree compared with, in the same unit
  otherSelf: number;
  count: number;
  size: number; // width in a graph: at least that of its callees, before and now
  kids: Node[];
  parent: Node | null;
}

export interface Filter {
  focus: RegExp | null;
  hide: RegExp | null;
}

export function node(name: string, func: number, parent: Node | null): Node {
  return { name, func, value: 0, self: 0, other: 0, otherSelf: 0, count: 0, size: 0, kids: [], parent };
}

// build makes nodes of a server's tree. Hidden functions give their callees to
// their callers; with a focus only stacks through it count.
export function build(t: Columns, w: Weight, names: (i: number) => Named | undefined, f: Filter): Node {
  const weight = t[w] ?? [];
  const n = t.parent.length;
  const own = new Float64Array(n);
  for (let i = 0; i < n; i++) own[i] = weight[i]!;
  for (let i = n - 1; i > 0; i--) own[t.parent[i]!]! -= weight[i]!;
  const root = node('all', -1, null);
  const at: Node[] = new Array(n);
  const focused = new Uint8Array(n);
  const index = new Map<Node, Map<number, Node>>();
  at[0] = root;
  focused[0] = f.focus ? 0 : 1;
  const add = (k: Node, v: number): void => {
    k.self += v;
    for (let p: Node | null = k; p; p = p.parent) p.value += v;
  };
  for (let i = 1; i < n; i++) {
    const p = at[t.parent[i]!]!;
    const fn = names(t.func[i]!);
    const name = fn?.name ?? '?';
    focused[i] = focused[t.parent[i]!] || f.focus?.test(name) ? 1 : 0;
    if (f.hide?.test(name)) at[i] = p;
    else if (f.hide) {
      // A node below a hidden function may now be a sibling of an equal one.
      let m = index.get(p);
      if (!m) {
        m = new Map();
        index.set(p, m);
      }
      let k = m.get(t.func[i]!);
      if (!k) {
        k = node(name, t.func[i]!, p);
        p.kids.push(k);
        m.set(t.func[i]!, k);
      }
      at[i] = k;
    } else {
      at[i] = node(name, t.func[i]!, p);
      p.kids.push(at[i]!);
    }
    at[i]!.count += t.count?.[i] ?? 0;
    if (focused[i] && own[i]! > 0) add(at[i]!, own[i]!);
  }
  prune(root);
  return root;
}

function prune(k: Node): void {
  k.kids = k.kids.filter((x) => x.value > 0);
  for (const x of k.kids) prune(x);
}

export function heavy(k: Node): void {
  k.kids.sort((a, b) => Math.max(b.value, b.other) - Math.max(a.value, a.other));
  for (const x of k.kids) heavy(x);
}

export function depth(k: Node): number {
  let d = 0;
  for (const x of k.kids) d = Math.max(d, depth(x));
  return d + 1;
}

function child(p: Node, name: string, func: number): Node {
  let k = p.kids.find((x) => x.name === name);
  if (!k) {
    k = node(name, func, p);
    p.kids.push(k);
  }
  return k;
}

// sandwich gives all callers of a function, inverted, and all that it calls.
export function sandwich(root: Node, name: string): { callers: Node; callees: Node } {
  const callers = node(name, -1, null);
  const callees = node(name, -1, null);
  const merge = (from: Node, to: Node): void => {
    to.value += from.value;
    to.self += from.self;
    to.count += from.count;
    for (const x of from.kids) merge(x, child(to, x.name, x.func));
  };
  const walk = (k: Node): void => {
    if (k.name === name && k.func >= 0) {
      callers.func = callees.func = k.func;
      merge(k, callees);
      callers.value += k.value;
      let to = callers;
      for (let p = k.parent; p?.parent; p = p.parent) {
        to = child(to, p.name, p.func);
        to.value += k.value;
      }
      return; // calls of itself are inside
    }
    for (const x of k.kids) walk(x);
  };
  walk(root);
  heavy(callers);
  heavy(callees);
  return { callers, callees };
}

export interface FuncRow {
  name: string;
  func: number;
  self: number;
  total: number;
  count: number;
  otherSelf: number;
  otherTotal: number;
}

// table sums up by function; recursion counts once for the total.
export function table(root: Node): FuncRow[] {
  const rows = new Map<string, FuncRow>();
  const open = new Map<string, number>();
  const walk = (k: Node): void => {
    let r = rows.get(k.name);
    if (!r) {
      r = { name: k.name, func: k.func, self: 0, total: 0, count: 0, otherSelf: 0, otherTotal: 0 };
      rows.set(k.name, r);
    }
    if (k.func >= 0) r.func = k.func;
    r.self += k.self;
    r.otherSelf += k.otherSelf;
    r.count += k.count;
    const n = open.get(k.name) ?? 0;
    if (n === 0) {
      r.total += k.value;
      r.otherTotal += k.other;
    }
    open.set(k.name, n + 1);
    for (const x of k.kids) walk(x);
    open.set(k.name, n);
  };
  for (const k of root.kids) walk(k);
  return [...rows.values()];
}

// diff lays tree a (before) under b (after). With share set both are scaled to
// the same sum.
export function diff(a: Node, b: Node, share: boolean): Node {
  const scale = share && a.value > 0 ? b.value / a.value : 1;
  const root = node('all', -1, null);
  const merge = (from: Node, to: Node, other: boolean): void => {
    if (other) {
      to.other += from.value * scale;
      to.otherSelf += from.self * scale;
    } else {
      to.value += from.value;
      to.self += from.self;
      to.count += from.count;
    }
    const by = new Map(to.kids.map((x) => [x.name, x]));
    for (const x of from.kids) {
      let k = by.get(x.name);
      if (!k) {
        k = node(x.name, other ? -2 : x.func, to);
        to.kids.push(k);
        by.set(x.name, k);
      }
      merge(x, k, other);
    }
  };
  merge(b, root, false);
  merge(a, root, true);
  heavy(root);
  widen(root);
  return root;
}

function widen(k: Node): void {
  let sum = 0;
  for (const x of k.kids) {
    widen(x);
    sum += x.size;
  }
  k.size = Math.max(k.value, k.other, sum);
}
