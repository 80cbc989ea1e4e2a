// Numbers and names as a person reads them.

export function dur(ns: number): string {
  if (!Number.isFinite(ns)) return '…';
  const a = Math.abs(ns);
  const f = (v: number, u: string): string => `${trim(v)} ${u}`;
  if (a < 1e3) return f(ns, 'ns');
  if (a < 1e6) return f(ns / 1e3, 'µs');
  if (a < 1e9) return f(ns / 1e6, 'ms');
  if (a < 120e9) return f(ns / 1e9, 's');
  const s = Math.round(a / 1e9);
  const sign = ns < 0 ? '−' : '';
  if (s < 7200) return `${sign + Math.floor(s / 60)} min ${s % 60} s`;
  return `${sign + Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

function trim(v: number): string {
  const a = Math.abs(v);
  const s = a >= 100 ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : v.toFixed(2);
  return s.includes('.') ? s.replace(/\.?0+$/, '') : s;
}

export function count(n: number): string {
  return Math.round(n).toLocaleString('en');
}

export function bytes(n: number): string {
  for (const [unit, k] of [
    ['GB', 1e9],
    ['MB', 1e6],
    ['kB', 1e3],
  ] as const)
    if (n >= k) return `${(n / k).toPrecision(3)} ${unit}`;
  return `${n} B`;
}

export function percent(x: number): string {
  if (!Number.isFinite(x)) return '–';
  const p = x * 100;
  return `${p >= 9.95 || p === 0 ? p.toFixed(0) : p.toFixed(1)} %`;
}

// clock is a time on the axis; step says how fine it must be.
export function clock(ns: number, step: number): string {
  const neg = ns <= -step / 2; // what rounds to nothing has no sign
  const a = Math.abs(ns);
  const digits = step >= 1e9 ? 0 : Math.min(9, Math.ceil(-Math.log10(step / 1e9) - 1e-9));
  const s = a / 1e9;
  const m = Math.floor(s / 60);
  const hh = Math.floor(m / 60);
  let out: string;
  if (m === 0) out = `${s.toFixed(digits)} s`;
  else {
    const rest = (s - m * 60).toFixed(digits).padStart(digits ? digits + 3 : 2, '0');
    out = `${hh ? `${hh}:${String(m % 60).padStart(2, '0')}` : String(m)}:${rest}`;
  }
  return (neg ? '−' : '') + out;
}

// ticks are the times of grid lines in [t0, t1): round ones, counted from the recording's begin.
export function ticks(t0: number, t1: number, from: number, step: number): number[] {
  const out: number[] = [];
  for (let k = Math.ceil((t0 - from) / step); from + k * step < t1; k++) out.push(from + k * step);
  return out;
}

export function base(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

// short drops the contents of parentheses and angle brackets, as far as they match,
// for where there is little room.
export function short(name: string): string {
  // <init> and <lambda> are names themselves.
  if (!/[(<]/.test(name) || name.startsWith('[') || name.startsWith('<') || /\.<\w+>/.test(name)) return name;
  let out = '';
  let angle = 0;
  for (let i = 0; i < name.length; i++) {
    const c = name[i];
    if (name.startsWith('operator', i) && angle === 0) return name;
    if (c === '<') {
      if (angle++ === 0) out += '<…>';
    } else if (c === '>' && name[i - 1] !== '-' && angle > 0) angle--;
    else if (c === '(' && angle === 0) {
      if (name.startsWith('(anonymous', i) || name.startsWith('(*', i)) return name;
      break;
    } else if (angle === 0) out += c;
  }
  return out.trim() || name;
}

// forms are a name and shorter ones of it, the longest first: without the parentheses,
// then without the package, namespace or class that it is in, whose beginning is all that
// would be left of it where there is little room.
export function forms(name: string): string[] {
  const out = [name.slice(0, 400)];
  const add = (s: string): void => void (s.length < out[out.length - 1]!.length && out.push(s));
  let s = short(name);
  add(s.slice(0, 400));
  if (/^[[<]|\+0x[0-9a-f]+$|operator|[: ]\//.test(s)) return out;
  s = s.replace(/\/0x[0-9a-f]+(?=\.|$)/, ''); // of a hidden class of Java's
  add(s.slice(0, 400));
  const end = s.search(/(\.(cold|part|constprop|isra|lto_priv)(\.\d+)*)*$/); // parts that the compiler made
  const begins: number[] = []; // of the words, the outermost first
  for (let i = 0, nested = 0; i < end; i++) {
    const c = s[i]!;
    if ('(<[{'.includes(c)) nested++;
    else if (')>]}'.includes(c)) nested--;
    else if (nested === 0 && '.:/'.includes(c)) begins.push(i + 1);
  }
  const words = begins.filter((b) => b < end && !'.:/'.includes(s[b]!));
  // Names that a compiler made are kept with their outer function.
  const least = words.length && /^(func|gowrap)?\d+$|^[<{]/.test(s.slice(words[words.length - 1], end)) ? 2 : 1;
  for (let n = 2; n >= least; n--) if (words.length >= n) add(s.slice(words[words.length - n]).slice(0, 400));
  return out;
}

// functionOf is the function of a task: of an asyncio task it follows the name.
export function functionOf(what: string, name: string): string {
  return what === 'asyncio task' ? name.slice(name.lastIndexOf(' ') + 1) : name;
}

// taskForms is the forms of a task's name, the longest first: of an asyncio task its name without its function,
// of a goroutine its function without the path of its package.
export function taskForms(name: string): string[] {
  const first = /^([^ ([<]+) /.exec(name)?.[1];
  if (first) return [name, first];
  const path = /^[\w./-]+\//.exec(name)?.[0];
  const [all, ...rest] = forms(name);
  return path ? [all!, name.slice(path.length), ...rest.filter((f) => f.length < name.length - path.length)] : [all!, ...rest];
}

// cut is the longest form that fits in w pixels, or as much as fits of the shortest; '' where
// that would be a letter or two.
export function cut(of: [string, number][], w: number, width: (s: string) => number): string {
  for (const [s, is] of of) if (is <= w) return s;
  const [s, is] = of[of.length - 1]!;
  const n = Math.floor((s.length * (w - 8)) / is);
  if (n < 3) return '';
  const c = `${s.slice(0, n)}…`;
  return width(c) <= w ? c : `${s.slice(0, Math.max(2, Math.floor(n * 0.8)))}…`;
}

// Names of the system calls that threads wait in most, for the two machines.
const amd64: Record<number, string> = {
  0: 'read',
  1: 'write',
  7: 'poll',
  17: 'pread64',
  18: 'pwrite64',
  19: 'readv',
  20: 'writev',
  22: 'pipe',
  23: 'select',
  32: 'dup',
  34: 'pause',
  35: 'nanosleep',
  42: 'connect',
  43: 'accept',
  44: 'sendto',
  45: 'recvfrom',
  46: 'sendmsg',
  47: 'recvmsg',
  61: 'wait4',
  65: 'semop',
  70: 'msgrcv',
  72: 'fcntl',
  73: 'flock',
  74: 'fsync',
  75: 'fdatasync',
  128: 'rt_sigtimedwait',
  130: 'rt_sigsuspend',
  202: 'futex',
  220: 'semtimedop',
  230: 'clock_nanosleep',
  232: 'epoll_wait',
  247: 'waitid',
  270: 'pselect6',
  271: 'ppoll',
  281: 'epoll_pwait',
  288: 'accept4',
  299: 'recvmmsg',
  426: 'io_uring_enter',
  441: 'epoll_pwait2',
  449: 'futex_waitv',
};
const arm64: Record<number, string> = {
  22: 'epoll_pwait',
  25: 'fcntl',
  32: 'flock',
  63: 'read',
  64: 'write',
  65: 'readv',
  66: 'writev',
  67: 'pread64',
  68: 'pwrite64',
  72: 'pselect6',
  73: 'ppoll',
  82: 'fsync',
  83: 'fdatasync',
  95: 'waitid',
  98: 'futex',
  101: 'nanosleep',
  115: 'clock_nanosleep',
  133: 'rt_sigsuspend',
  137: 'rt_sigtimedwait',
  188: 'msgrcv',
  192: 'semtimedop',
  193: 'semop',
  202: 'accept',
  203: 'connect',
  206: 'sendto',
  207: 'recvfrom',
  211: 'sendmsg',
  212: 'recvmsg',
  242: 'accept4',
  243: 'recvmmsg',
  260: 'wait4',
  426: 'io_uring_enter',
  441: 'epoll_pwait2',
  449: 'futex_waitv',
};

export function syscall(nr: number, arch: string): string {
  return (arch === 'arm64' ? arm64 : amd64)[nr] ?? `system call ${nr}`;
}

// lockName returns what a lock is called, with its address.
export function lockName(l: { addr: string; wait?: string; kind?: string }): string {
  return l.wait ? (l.wait.includes(l.addr) ? l.wait : `${l.wait} (${l.addr})`) : `${l.kind || 'lock'} ${l.addr}`;
}

// lockKey identifies a lock: equal addresses of several processes are different locks.
export function lockKey(l: { addr: string; process?: number }): string {
  return l.process ? `${l.addr} of ${l.process}` : l.addr;
}
