// Tasks over time, of the recording that the page carries: what the queries tasks and task of a server answer.

import type { Recording, SharedTask, TaskGroup } from './shared';
import type { Span, Task, TasksReply } from './tasks';
import type { TaskDetail } from './taskside';

interface Args {
  t0?: number;
  t1?: number;
  bin?: number;
  from?: number;
  max?: number;
  mode?: string;
  task?: number;
  at?: number;
  process?: number;
}

const rows = 64; // of a reply
const stateNames: Record<number, string> = { 1: 'running', 2: 'runnable', 3: 'waiting' };

function sums(t: SharedTask): Task {
  return { id: t.id, parent: t.parent, func: t.func, ran: t.ran, ready: t.ready, waited: t.waited };
}

// merged are the spans of [t0, t1): consecutive ones that begin in one part of bin ns and are shorter become
// one, which shows the longest.
function merged(t: SharedTask, t0: number, t1: number, bin: number): Span[] {
  const { spans } = t;
  const out: Span[] = [];
  let cell = NaN;
  let best = 0;
  for (let i = spans.at(t0); i < spans.start.length && spans.start[i]! < t1; i++) {
    const [a, b] = [spans.start[i]!, spans.end[i]!];
    const is: Span = [a, b, b - a, spans.value[i]!, t.threads[i]!, t.reasons[i]!, 1];
    const c = Math.floor(a / bin);
    const last = out[out.length - 1];
    if (b - a >= bin || c !== cell || !last) {
      cell = b - a < bin ? c : NaN;
      best = b - a;
      out.push(is);
      continue;
    }
    last[1] = b;
    last[2] += b - a;
    last[6]++;
    if (b - a > best) [best, last[3], last[4], last[5]] = [b - a, is[3], is[4], is[5]];
  }
  return out;
}

// inCall reports whether a task is in a system call: it is I/O without a reason of the runtime.
function inCall(t: SharedTask, i: number): boolean {
  return (t.spans.value[i]! & 0xff) === 3 && t.spans.value[i]! >>> 24 === 2 && t.reasons[i]! < 0;
}

// groupOf returns the tasks of a process; without one those of the first.
function groupOf(rec: Recording, process?: number): TaskGroup | undefined {
  return process === undefined ? rec.groups[0] : rec.groups.find((g) => (g.head.process ?? 0) === process);
}

export function tasksOf(rec: Recording, a: Args): TasksReply {
  const [t0, t1] = a.t1 ? [a.t0 ?? 0, a.t1] : [0, rec.head.to];
  const group = groupOf(rec, a.process);
  const head = group?.head;
  const all = group?.tasks ?? [];
  const from = Math.min(a.from ?? 0, all.length);
  const order = (a.mode === 'wait' ? group?.waiters : undefined) ?? all;
  const reasons = head?.reasons ?? [];
  return {
    t0,
    t1,
    what: head?.what,
    count: all.length,
    idle: head?.idle ?? 0,
    lost: head?.lost,
    more: head?.more,
    made: 1,
    from,
    reasons,
    ...(rec.head.among && { process: a.process ?? head?.process ?? 0, processes: rec.groups.map((g) => g.head.process ?? 0) }),
    list: order.slice(from, from + (a.max || rows)).map((t) => ({ ...sums(t), spans: merged(t, t0, t1, a.bin || (t1 - t0) / 4096) })),
  };
}

export function taskOf(rec: Recording, a: Args): TaskDetail {
  const group = groupOf(rec, a.process);
  const t = group?.tasks.find((x) => x.id === a.task);
  if (!group || !t) throw new Error(`there is no task ${a.task} in this file`);
  const { head } = group;
  const s = t.spans;
  const word = (i: number): string => head.reasons[t.reasons[i]!] ?? '';
  const out: TaskDetail = {
    ...sums(t),
    what: head.what,
    row: (a.mode === 'wait' ? group.waiters : group.tasks).indexOf(t),
    prev: -1,
    next: -1,
    stack: [],
    reasons: [],
  };
  const waits = new Map<string, TaskDetail['reasons'][number]>();
  s.start.forEach((start, i) => {
    const state = s.value[i]! & 0xff;
    if (state === 2 || (t.threads[i]! >= 0 && (state !== 3 || inCall(t, i)))) return;
    let w = waits.get(word(i));
    if (!w) {
      w = { reason: word(i), value: s.value[i]!, total: 0, count: 0, longest: 0, at: 0 };
      waits.set(word(i), w);
    }
    const ns = s.end[i]! - start;
    w.total += ns;
    w.count++;
    if (ns > w.longest) [w.longest, w.at] = [ns, start];
  });
  out.reasons = [...waits.values()].sort((x, y) => y.total - x.total);
  const at = a.at ?? 0;
  const i = s.at(at);
  const found = s.start[i]! <= at;
  if (i > 0) out.prev = s.start[i - 1]!;
  out.next = s.start[found ? i + 1 : i] ?? -1;
  if (!found) return out;
  const [start, end] = [s.start[i]!, s.end[i]!];
  out.span = {
    start,
    end,
    value: s.value[i]!,
    state: inCall(t, i) ? 'syscall' : (stateNames[s.value[i]! & 0xff] ?? 'unknown'),
    reason: word(i),
    thread: t.threads[i]!,
  };
  if (out.span.state !== 'waiting') return out;
  const far = (x: { at: number }): number => Math.max(start - x.at, x.at - end, 0);
  const seen = t.seen.filter((x) => x.reason === out.span!.reason).sort((x, y) => far(x) - far(y))[0];
  if (seen) [out.seen, out.stack] = [seen.at, head.stacks[seen.stack] ?? []];
  return out;
}
