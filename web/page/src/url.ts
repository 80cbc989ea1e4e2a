// The address holds the view, so that a reload or a shared link comes back to
// it. It is all in the fragment, which browsers do not send.

import type { Mark } from './marks';

export interface State {
  token: string;
  t0?: number;
  t1?: number;
  follow?: boolean;
  range?: [number, number];
  call?: [number, number, number];
  marks?: Mark[];
  task?: [number, number]; // selected task, time
  tasks?: string; // tracks of tasks: open or folded, then the order
  q?: string;
  chosen?: number[];
  hidden?: number[];
  pinned?: number[];
  order?: number[];
  modes?: [number, string][];
  filter?: string;
  processes?: string; // order of the groups: wait, otherwise by CPU time
  groups?: string[]; // the roles of groups that are not as at first; undefined: no groups
  tab?: string;
  top?: number;
  color?: string;
  kinds?: string;
  weight?: string;
  flame?: string; // order of the flame graph
  idle?: boolean;
  code?: string; // whether frames outside of the program's own code are folded
}

const list = (s: string | null): number[] | undefined =>
  s
    ? s
        .split(',')
        .map(Number)
        .filter((n) => Number.isFinite(n))
    : undefined;

export function read(): State {
  const p = new URLSearchParams(location.hash.slice(1));
  const num = (k: string): number | undefined => {
    const v = p.get(k);
    return v === null || !Number.isFinite(Number(v)) ? undefined : Number(v);
  };
  const range = list(p.get('range'));
  const call = list(p.get('call'));
  const task = list(p.get('task'));
  return {
    token: p.get('token') ?? '',
    t0: num('t0'),
    t1: num('t1'),
    follow: p.get('live') === '1',
    range: range?.length === 2 ? [range[0]!, range[1]!] : undefined,
    call: call?.length === 3 ? [call[0]!, call[1]!, call[2]!] : undefined,
    marks: p.has('mark') ? p.getAll('mark').map((m) => ({ t: parseFloat(m), text: m.replace(/^\S* ?/, '') })) : undefined,
    task: task?.length === 2 ? [task[0]!, task[1]!] : undefined,
    tasks: p.get('tasks') ?? undefined,
    q: p.get('q') ?? undefined,
    chosen: list(p.get('on')),
    hidden: list(p.get('hide')),
    pinned: list(p.get('pin')),
    order: list(p.get('order')),
    modes: p
      .get('rows')
      ?.split(',')
      .map((s) => s.split(':'))
      .filter((x) => x.length === 2)
      .map(([a, b]) => [Number(a), b!]),
    filter: p.get('threads') ?? undefined,
    processes: p.get('processes') ?? undefined,
    groups: p.has('groups') ? p.getAll('turned') : undefined,
    tab: p.get('tab') ?? undefined,
    top: num('top'),
    color: p.get('color') ?? undefined,
    kinds: p.get('kinds') ?? undefined,
    weight: p.get('weight') ?? undefined,
    flame: p.get('flame') ?? undefined,
    idle: p.get('idle') === '1',
    code: p.get('code') ?? undefined,
  };
}

// write puts the state into the address. A step that the reader made becomes one of the browser's history.
export function write(s: State, step = false): void {
  const p = new URLSearchParams();
  const put = (k: string, v: string | undefined): void => {
    if (v) p.set(k, v);
  };
  put('token', s.token);
  if (s.follow) put('live', '1');
  if (s.t0 !== undefined && s.t1 !== undefined) {
    put('t0', String(Math.round(s.t0)));
    put('t1', String(Math.round(s.t1)));
  }
  put('range', s.range?.map(Math.round).join(','));
  put('call', s.call?.map(Math.round).join(','));
  for (const m of s.marks ?? []) p.append('mark', `${m.t} ${m.text}`);
  put('task', s.task?.map(Math.round).join(','));
  put('tasks', s.tasks);
  put('q', s.q);
  put('on', s.chosen?.join(','));
  put('hide', s.hidden?.join(','));
  put('pin', s.pinned?.join(','));
  put('order', s.order?.join(','));
  put('rows', s.modes?.map((m) => m.join(':')).join(','));
  put('threads', s.filter);
  put('processes', s.processes);
  if (s.groups) put('groups', 'pool');
  for (const role of s.groups ?? []) p.append('turned', role);
  put('tab', s.tab);
  put('color', s.color === 'state' ? undefined : s.color);
  put('kinds', s.kinds);
  put('weight', s.weight === 'cpu' ? undefined : s.weight);
  put('flame', s.flame === 'heavy' ? undefined : s.flame);
  if (s.idle) put('idle', '1');
  put('code', s.code);
  if (s.top) put('top', String(Math.round(s.top)));
  const hash = `#${p.toString().replaceAll('%2C', ',').replaceAll('%3A', ':')}`;
  if (hash === location.hash) return;
  if (step) history.pushState(null, '', hash);
  else history.replaceState(null, '', hash);
}
