// The overview names slow functions, contended locks and long waits on one screen.

import {
  type Analysis,
  coverage,
  cpuTotal,
  type Finding,
  findings,
  notSampled,
  type Owned,
  type Part,
  parts,
  partWords,
  type ThreadTime,
  whole,
} from './analysis';
import { h } from './dom';
import { count, dur, functionOf, percent } from './format';
import type { PathStep } from './path';
import type { TaskAt } from './tasks';

// What rows of tables do when they are clicked.
export interface Actions {
  name(name: string): void; // light up all calls of a function
  callers(name: string): void; // show the callers and callees of a function
  time(t0: number, t1: number, seq: number): void; // show this time of a thread
  thread(seq: number): void; // bring a thread into view and choose it
  task(task: TaskAt): void; // bring the track of a task into view and select it
  lock(name: string): void; // open a lock's row
  tab(tab: string): void;
  lane(addr: string): void; // show the track of a lock
  seqOf(tid: number): number; // -1: unknown
}

const most = 7; // rows of a card

type Child = HTMLElement | string | null;

export function stateBar(t: ThreadTime, scale = t.observed): HTMLElement {
  const bar = h('span', {
    class: 'states',
    role: 'img',
    'aria-label': parts
      .filter((p) => t[p] > 0)
      .map((p) => `${partWords[p]} ${percent(t[p] / (t.observed || 1))}`)
      .join(', '),
  });
  for (const p of parts) {
    if (t[p] <= 0) continue;
    bar.append(
      h('i', {
        class: `part-${p}`,
        style: { width: `${(100 * t[p]) / (scale || 1)}%` },
        title: `${partWords[p]}: ${dur(t[p])} (${percent(t[p] / (t.observed || 1))})`,
      }),
    );
  }
  return bar;
}

export function legend(): HTMLElement {
  return h(
    'ul',
    { class: 'statekey', 'aria-label': 'Colors of states' },
    ...parts.map((p) => h('li', null, h('i', { class: `part-${p}` }), partWords[p])),
  );
}

function card(title: string, about: string, more: Child, ...rows: Child[]): HTMLElement {
  return h(
    'section',
    { class: 'card', 'aria-label': title },
    h('h3', null, title, about ? h('span', { class: 'soft' }, about) : null, h('span', { class: 'grow' }), more),
    ...rows,
  );
}

function meter(part: number, all: number, kind = ''): HTMLElement {
  return h(
    'span',
    { class: `meter ${kind}`, 'aria-hidden': 'true' },
    h('i', { style: { width: `${Math.min(100, all > 0 ? (100 * part) / all : 0)}%` } }),
  );
}

// row is a line of a card: a name that does something, a value and a bar, and a line below.
function row(name: string, title: string, act: () => void, value: string, bar: HTMLElement, below: Child = null): HTMLElement {
  return h(
    'li',
    null,
    h('div', { class: 'line' }, h('button', { class: 'link', title, onclick: act }, name), h('span', { class: 'val' }, value)),
    bar,
    below ? h('div', { class: 'below soft' }, below) : null,
  );
}

function list(...rows: Child[]): HTMLElement {
  return h('ul', { class: 'lines' }, ...rows);
}

// whichProcesses says which of several processes were analyzed.
export function whichProcesses(a: Analysis): string {
  if (!a.of || a.of < 2) return '';
  if (a.process) return `${a.process}, one of ${count(a.of)} processes`;
  return a.processes === a.of ? `${count(a.of)} processes` : `${count(a.processes ?? 0)} of ${count(a.of)} processes`;
}

// excluded describes the idle waits that the numbers omit; '' if there are none.
export function excluded(a: Analysis): string {
  const l = a.report.idle;
  const out: string[] = [];
  if (l.threads) out.push(`${count(l.threads)} idle thread${l.threads === 1 ? '' : 's'} (${dur(l.ns)})`);
  if (l.other_threads)
    out.push(`idle waits of ${count(l.other_threads)} other thread${l.other_threads === 1 ? '' : 's'} (${dur(l.other_ns)})`);
  return out.length ? `Left out: ${out.join(', ')}` : '';
}

function does(f: Finding, act: Actions): () => void {
  if (f.tab) return () => act.tab(f.tab!);
  if (f.lock) return () => act.lock(f.lock!);
  if (f.at) return () => act.time(f.at!.t0, f.at!.t1, f.at!.seq);
  if (f.func) return () => act.name(f.func!);
  return () => act.tab('waits');
}

const kindWord: Record<Finding['kind'], string> = {
  cpu: 'CPU',
  lock: 'Lock',
  gil: 'GIL',
  wait: 'Wait',
  task: 'Task',
  runnable: 'CPUs',
  io: 'I/O',
  call: 'Call',
};

function summary(a: Analysis, owned: Owned, act: Actions): HTMLElement {
  const found = findings(a, owned, dur).slice(0, 5);
  if (!found.length) return h('p', { class: 'soft pad' }, 'Nothing used a CPU or waited for anything in this range, idle waits aside.');
  return h(
    'ol',
    { class: 'findings', 'aria-label': 'What is slow and why' },
    ...found.map((f) =>
      h(
        'li',
        null,
        h('b', { class: `tag tag-${f.kind}` }, kindWord[f.kind]),
        h('button', { class: 'link', title: f.head, onclick: does(f, act) }, f.head),
        h('span', null, f.text),
      ),
    ),
  );
}

function functionsCard(a: Analysis, act: Actions): HTMLElement {
  const cpu = cpuTotal(a);
  const rows = a.report.on_cpu.filter((f) => f.self_ns > 0 && f.name !== notSampled).slice(0, most);
  const covered = coverage(a);
  return card(
    'On the CPUs',
    `${dur(cpu)} in all${covered < 0.98 ? `, ${percent(1 - covered)} of it not sampled` : ''}`,
    h('button', { class: 'link', onclick: () => act.tab('functions') }, 'All'),
    rows.length
      ? list(
          ...rows.map((f) =>
            row(
              f.name,
              `${f.name}${f.file ? ` (${f.file}${f.line ? `:${f.line}` : ''})` : ''}. Click to light up its calls.`,
              () => act.name(f.name),
              `${percent(f.self_ns / (cpu || 1))} ${dur(f.self_ns)}`,
              meter(f.self_ns, cpu, 'cpu'),
              f.total_ns > 1.02 * f.self_ns ? `with what it calls ${dur(f.total_ns)}` : null,
            ),
          ),
        )
      : h('p', { class: 'soft' }, 'No sample found a thread on a CPU.'),
  );
}

interface WaitLine {
  what: string;
  kind: string;
  total: number;
  longest: number;
  waits: number;
  threads: number;
  all: boolean;
}

function part(kind: string): Part {
  if (kind === 'lock' || kind === 'GIL') return 'lock';
  if (kind === 'sleep') return 'sleep';
  if (kind === 'cpu') return 'runnable';
  if (kind === 'idle') return 'idle';
  return ['file', 'peer', 'pipe', 'terminal', 'descriptors', 'page fault'].includes(kind) ? 'io' : 'other';
}

// waitLines are the waits by their reason: each lock by its name, the rest as in the report.
export function waitLines(a: Analysis): WaitLine[] {
  const range = a.to - a.from;
  const lines: WaitLine[] = [];
  for (const l of a.report.locks) {
    lines.push({
      what: l.name,
      kind: l.name.startsWith('GIL') ? 'GIL' : 'lock',
      total: l.total_ns,
      longest: l.longest_ns,
      waits: l.waits,
      threads: l.most_waiting,
      all: whole(l, range),
    });
  }
  for (const c of a.report.calls) {
    if (c.kind === 'lock' || c.kind === 'GIL') continue;
    lines.push({
      what: c.for || (c.kind === 'sleep' ? `sleep (${c.call})` : c.call),
      kind: c.kind,
      total: c.total_ns,
      longest: c.longest_ns,
      waits: c.waits,
      threads: c.threads,
      all: whole(c, range),
    });
  }
  return lines.sort((x, y) => Number(x.all) - Number(y.all) || y.total - x.total);
}

function waitsCard(a: Analysis, act: Actions): HTMLElement | null {
  const lines = waitLines(a);
  if (!lines.length) return null;
  const max = Math.max(1, ...lines.map((l) => (l.all ? 0 : l.total)));
  return card(
    'Waiting for',
    '',
    h('button', { class: 'link', onclick: () => act.tab('waits') }, 'All'),
    list(
      ...lines
        .slice(0, most)
        .map((l) =>
          row(
            l.what,
            l.what,
            () => (part(l.kind) === 'lock' ? act.lock(l.what) : act.tab('waits')),
            dur(l.total),
            meter(l.total, max, part(l.kind)),
            l.all
              ? `one wait over the whole range (${l.kind})`
              : `${count(l.waits)} wait${l.waits === 1 ? '' : 's'}, ${dur(l.longest)} at most`,
          ),
        ),
    ),
  );
}

function locksCard(a: Analysis, act: Actions): HTMLElement | null {
  const locks = a.report.locks.filter((l) => !whole(l, a.to - a.from)).slice(0, 4);
  if (!locks.length) return null;
  const names = (s: { name: string }[]): string =>
    s
      .slice(0, 2)
      .map((x) => x.name.replace(/ \((lock word|runtime)\)$/, ''))
      .join(', ') + (s.length > 2 ? ' …' : '');
  const max = Math.max(1, ...locks.map((l) => l.total_ns));
  return card(
    'Locks',
    '',
    h('button', { class: 'link', onclick: () => act.tab('locks') }, 'All'),
    list(
      ...locks.map((l) =>
        row(
          l.name,
          l.name,
          () => act.lock(l.name),
          `${dur(l.total_ns)} waited`,
          meter(l.total_ns, max, 'lock'),
          h(
            'dl',
            { class: 'facts3' },
            h('dt', null, 'held by'),
            h('dd', null, names(l.holders) || l.no_holder || 'not known'),
            ...(l.holders.length || l.holder_functions.length
              ? [h('dt', null, 'held in'), h('dd', null, names(l.holder_functions) || 'not known')]
              : []),
            h('dt', null, 'wanted in'),
            h('dd', null, names(l.waiter_functions) || 'not known'),
          ),
        ),
      ),
    ),
  );
}

// ordered are the threads that did something, the busiest or most blocked first.
export function ordered(a: Analysis): ThreadTime[] {
  const key = (t: ThreadTime): number => t.cpu + t.runnable + 0.5 * t.lock;
  return a.threads.filter((t) => !t.is_idle).sort((x, y) => key(y) - key(x));
}

function threadsCard(a: Analysis, act: Actions): HTMLElement {
  const all = ordered(a);
  const idle = a.threads.length - all.length;
  return card(
    'Threads',
    `${count(all.length)}${idle ? ` and ${count(idle)} idle` : ''}`,
    null,
    list(
      ...all
        .slice(0, most + 1)
        .map((t) =>
          h(
            'li',
            { class: 'thread' },
            h('button', { class: 'link', title: `${t.name} (${t.tid}): show its track`, onclick: () => act.thread(t.seq) }, `${t.name}`),
            h('span', { class: 'soft tid' }, String(t.tid)),
            stateBar(t),
            h('span', { class: 'val' }, percent(t.cpu / (t.observed || 1))),
          ),
        ),
    ),
    all.length > most + 1 ? h('p', { class: 'soft' }, `${count(all.length - most - 1)} more`) : null,
  );
}

// ProcessTime is how all threads of a process spent their time. Its tid is the PID, its seq one of its threads.
export interface ProcessTime extends ThreadTime {
  threads: number;
  ended: boolean;
}

// processesCard shows the processes, of several.
function processesCard(all: ProcessTime[], act: Actions): HTMLElement | null {
  if (all.length < 2) return null;
  const shown = all.filter((p) => !p.is_idle);
  const idle = all.length - shown.length;
  const cpu = Math.max(1, ...shown.map((p) => p.cpu));
  return card(
    'Processes',
    `${count(shown.length)}${idle ? ` and ${count(idle)} idle` : ''}`,
    null,
    list(
      ...shown
        .slice(0, most)
        .map((p) =>
          row(
            `${p.name} (${p.tid})`,
            `${p.name} (${p.tid}): show its tracks`,
            () => act.thread(p.seq),
            dur(p.cpu),
            meter(p.cpu, cpu, 'cpu'),
            [`${count(p.threads)} thread${p.threads === 1 ? '' : 's'}`, p.ended ? 'ended' : ''].filter((x) => x).join(', '),
          ),
        ),
    ),
    shown.length > most ? h('p', { class: 'soft' }, `${count(shown.length - most)} more`) : null,
  );
}

// pathCard shows what the end of the first process waited for: the longest steps, by time.
function pathCard(steps: PathStep[], act: Actions): HTMLElement | null {
  if (steps.length < 2) return null;
  const all = steps.reduce((n, s) => n + s.end - s.begin, 0) || 1;
  const longest = [...steps].sort((x, y) => y.end - y.begin - (x.end - x.begin)).slice(0, most);
  const shown = longest.sort((x, y) => x.begin - y.begin);
  const max = Math.max(...shown.map((s) => s.end - s.begin));
  return card(
    'Critical path',
    `${count(steps.length)} steps, ${dur(all)}`,
    null,
    list(
      ...shown.map((s) =>
        row(
          `${s.name} (${s.pid})`,
          `${s.command || s.name}: show this time`,
          () => act.time(s.begin, s.end, s.thread),
          `${dur(s.end - s.begin)}, ${percent((s.end - s.begin) / all)}`,
          meter(s.end - s.begin, max, 'cpu'),
          s.waiter ? `for ${s.waiter}, ${s.how}` : '',
        ),
      ),
    ),
    steps.length > shown.length ? h('p', { class: 'soft' }, `${count(steps.length - shown.length)} shorter ones`) : null,
  );
}

function tasksCard(a: Analysis, act: Actions): HTMLElement | null {
  const t = a.tasks;
  if (!t) return null;
  const g = a.report.goroutines;
  const max = Math.max(1, ...t.funcs.map((f) => f.ran));
  const waits = (g?.waits ?? []).filter((w) => /^(sync\.|channel)/.test(w.for)).slice(0, 3);
  const title =
    t.what === 'goroutine'
      ? 'Goroutines'
      : t.what === 'asyncio task'
        ? 'asyncio tasks'
        : `${t.what.replace(/^./, (c) => c.toUpperCase())}s`;
  const funcOf = (name: string): string => functionOf(t.what, name);
  return card(
    title,
    `${count(t.count)}${t.idle ? `, ${count(t.idle)} of the runtime left out` : ''}`,
    h('button', { class: 'link', onclick: () => act.tab('waits') }, 'Waits'),
    waits.length
      ? list(
          ...waits.map((w) =>
            row(
              `${w.for} in ${w.func}`,
              `${w.file}:${w.line}`,
              () => act.name(w.func),
              `${dur(w.total_ns)} waited`,
              meter(w.total_ns, waits[0]!.total_ns, 'lock'),
              `${count(w.tasks)} goroutine${w.tasks === 1 ? '' : 's'}, ${dur(w.longest_ns)} at most`,
            ),
          ),
        )
      : null,
    list(
      ...t.funcs
        .slice(0, waits.length ? 4 : most)
        .map((f) =>
          row(
            funcOf(f.name) || '(not known)',
            `${f.name}: ${count(f.tasks)} tasks. Click to show the longest run.`,
            () => (f.seq >= 0 ? act.time(f.at, f.at + f.longest, f.seq) : act.name(funcOf(f.name))),
            `ran ${dur(f.ran)}`,
            meter(f.ran, max, 'cpu'),
            [
              f.process ?? '',
              `${count(f.tasks)} task${f.tasks === 1 ? '' : 's'}`,
              `longest run ${dur(f.longest)}`,
              f.waited > 0 ? `waited ${dur(f.waited)}` : '',
            ]
              .filter((x) => x)
              .join(', '),
          ),
        ),
    ),
  );
}

export function overview(a: Analysis, owned: Owned, act: Actions, processes: ProcessTime[], path: PathStep[]): HTMLElement {
  const cards = [
    processesCard(processes, act),
    pathCard(path, act),
    functionsCard(a, act),
    locksCard(a, act),
    tasksCard(a, act),
    waitsCard(a, act),
    threadsCard(a, act),
  ].filter((c) => c !== null);
  return h('div', { class: 'overview' }, summary(a, owned, act), h('div', { class: 'cards' }, ...cards), legend());
}
