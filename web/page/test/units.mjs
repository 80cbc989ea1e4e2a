// Tests of the page's pure parts, without a browser: numbers and names, trees, rows, groups, the store of the
// view. Run by TestPageUnits with node --test.
import assert from 'node:assert/strict';
import test from 'node:test';
import { build } from 'esbuild';

// What the parts look at when they are loaded. A test that needs more of a page belongs to page.mjs.
const page = new EventTarget();
Object.assign(globalThis, {
  window: page,
  location: { hash: '' },
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  document: { getElementById: () => null, documentElement: {} },
});
const load = async (name) => {
  const out = await build({ entryPoints: [`src/${name}.ts`], bundle: true, format: 'esm', write: false });
  return import(`data:text/javascript,${encodeURIComponent(out.outputFiles[0].text)}`);
};

test('durations, sizes and shares have three digits', async () => {
  const { dur, bytes, percent, count } = await load('format');
  for (const [ns, want] of [
    [0, '0 ns'],
    [999, '999 ns'],
    [1e3, '1 µs'],
    [1234, '1.23 µs'],
    [12_345, '12.3 µs'],
    [123_456, '123 µs'],
    [-2.5e6, '-2.5 ms'],
    [1e9, '1 s'],
    [119e9, '119 s'],
    [120e9, '2 min 0 s'],
    [3_725e9, '62 min 5 s'],
    [7_260e9, '2 h 1 min'],
    [Infinity, '…'],
  ])
    assert.equal(dur(ns), want);
  assert.deepEqual([0, 999, 1000, 1.5e6, 12.34e9].map(bytes), ['0 B', '999 B', '1.00 kB', '1.50 MB', '12.3 GB']);
  assert.deepEqual([0, 0.001, 0.0994, 0.0996, 1, NaN].map(percent), ['0 %', '0.1 %', '9.9 %', '10 %', '100 %', '–']);
  assert.equal(count(1234567), '1,234,567');
});

test('the axis: round times, as fine as its step', async () => {
  const { clock, ticks } = await load('format');
  assert.deepEqual(ticks(95, 310, 10, 100), [110, 210]);
  assert.equal(clock(1.5e9, 1e8), '1.5 s');
  assert.equal(clock(61.25e9, 1e7), '1:01.25');
  assert.equal(clock(3_661e9, 1e9), '1:01:01');
  assert.equal(clock(-1e6, 1e9), '0 s');
  assert.equal(clock(-2e9, 1e9), '−2 s');
});

test('short names keep what tells them apart', async () => {
  const { short, forms, cut, base } = await load('format');
  for (const [name, want] of [
    ['std::vector<int, std::allocator<int> >::push_back(int&&)', 'std::vector<…>::push_back'],
    ['operator new(unsigned long)', 'operator new(unsigned long)'],
    ['(anonymous namespace)::run(int)', '(anonymous namespace)::run(int)'],
    ['net/http.(*Server).Serve', 'net/http.(*Server).Serve'],
    ['Foo.<init>', 'Foo.<init>'],
    ['<module>', '<module>'],
    ['[kernel]', '[kernel]'],
    ['a->b()', 'a->b'],
  ])
    assert.equal(short(name), want);
  assert.deepEqual(forms('http::Server::handle(Request const&)'), [
    'http::Server::handle(Request const&)',
    'http::Server::handle',
    'Server::handle',
    'handle',
  ]);
  assert.ok(forms('x'.repeat(10_000))[0].length === 400);
  const wide = (s) => 10 * s.length;
  const of = forms('Server::handle').map((s) => [s, wide(s)]);
  assert.equal(cut(of, 200, wide), 'Server::handle');
  assert.equal(cut(of, 70, wide), 'handle');
  assert.ok(cut(of, 50, wide).endsWith('…') && wide(cut(of, 50, wide)) <= 50);
  assert.equal(cut(of, 20, wide), '');
  assert.equal(base('/usr/lib/libc.so.6'), 'libc.so.6');
});

test('names of tasks', async () => {
  const { functionOf, taskForms } = await load('format');
  assert.deepEqual(taskForms('slow-report slow_report_task'), ['slow-report slow_report_task', 'slow-report']);
  const http = taskForms('net/http.(*Server).Serve.gowrap3');
  assert.deepEqual(http.slice(0, 2), ['net/http.(*Server).Serve.gowrap3', 'http.(*Server).Serve.gowrap3']);
  assert.ok(http.every((f, i) => !i || f.length < http[i - 1].length) && http.at(-1) === 'Serve.gowrap3', http.join(', '));
  assert.deepEqual(taskForms('main.worker'), ['main.worker', 'worker']);
  assert.equal(taskForms('http::Server::handle(Request const&)').at(-1), 'handle');
  assert.equal(functionOf('asyncio task', 'slow-report slow_report_task'), 'slow_report_task');
  assert.equal(functionOf('asyncio task', 'poll'), 'poll');
  assert.equal(functionOf('goroutine', 'http::Server::handle(Request const&)'), 'http::Server::handle(Request const&)');
});

// Paths are the recorded program's: nothing of them becomes another part of the address.
test('links to the source', async () => {
  const { sourceLink, editorProblem } = await load('settings');
  assert.equal(sourceLink('/src/a b.cc', 7, 'vscode://file{file}:{line}'), 'vscode://file/src/a%20b.cc:7');
  assert.equal(
    sourceLink('/x?y#z&line=1', undefined, 'idea://open?file={file}&line={line}'),
    'idea://open?file=/x%3Fy%23z%26line%3D1&line=1',
  );
  assert.equal(sourceLink('/$&{line}', 3, 'e:{file}:{line}'), 'e:/%24%26%7Bline%7D:3');
  for (const [file, pattern] of [
    ['src/a.cc', 'e:{file}'],
    ['<frozen os>', 'e:{file}'],
    ['/a', ''],
    ['/a', 'javascript:{file}'],
    ['/a', 'JavaScript:{file}'],
    ['/a', '{file}'],
  ])
    assert.equal(sourceLink(file, 1, pattern), '', pattern);
  assert.equal(editorProblem(''), '');
  assert.match(editorProblem('vscode:'), /has no \{file\}/);
});

// tree makes a server's tree of "name value (…)" rows: [name, own value, kids…].
const columns = (root) => {
  const t = { parent: [], func: [], count: [], cpu: [] };
  const names = [];
  const walk = ([name, own, ...kids], parent) => {
    const i = t.parent.length;
    t.parent.push(parent);
    if (!names.includes(name)) names.push(name);
    t.func.push(names.indexOf(name));
    t.count.push(1);
    t.cpu.push(own);
    for (const k of kids) t.cpu[i] += walk(k, i);
    return t.cpu[i];
  };
  walk(root, 0);
  return [t, (i) => ({ name: names[i] })];
};
const text = (k) => `${k.name}=${k.self}/${k.value}${k.kids.length ? `(${k.kids.map(text).join(' ')})` : ''}`;
const all = { focus: null, hide: null };
const sample = ['all', 0, ['main', 1, ['a', 2, ['lock', 3]], ['b', 4, ['lock', 5], ['a', 6]]], ['idle', 0, ['poll', 0]]];

test('a tree of columns: values, focus, hidden functions', async () => {
  const { build: tree } = await load('tree');
  const [t, names] = columns(sample);
  assert.equal(text(tree(t, 'cpu', names, all)), 'all=0/21(main=1/21(a=2/5(lock=3/3) b=4/15(lock=5/5 a=6/6)))');
  assert.equal(text(tree(t, 'cpu', names, { focus: /^a$/, hide: null })), 'all=0/11(main=0/11(a=2/5(lock=3/3) b=0/6(a=6/6)))');
  // Callees of a hidden function are its caller's: of equal ones one is left.
  assert.equal(text(tree(t, 'cpu', names, { focus: null, hide: /^b$/ })), 'all=0/21(main=5/21(a=8/11(lock=3/3) lock=5/5))');
  assert.equal(tree(t, 'wait', names, all).value || 0, 0);
});

test('functions: recursion counts once; callers and callees', async () => {
  const { build: tree, table, sandwich } = await load('tree');
  const of = (x) => {
    const [t, names] = columns(x);
    return tree(t, 'cpu', names, all);
  };
  const root = of(['all', 0, ['f', 1, ['f', 2, ['g', 3, ['f', 4]]]], ['g', 5]]);
  const rows = Object.fromEntries(table(root).map((r) => [r.name, [r.self, r.total, r.count]]));
  assert.deepEqual(rows, { f: [7, 10, 3], g: [8, 12, 2] });
  const { callers, callees } = sandwich(of(sample), 'lock');
  assert.equal(text(callers), 'lock=0/8(b=0/5(main=0/5) a=0/3(main=0/3))');
  assert.equal(text(callees), 'lock=8/8');
});

test('a comparison has both trees, scaled to one sum as shares', async () => {
  const { build: tree, diff } = await load('tree');
  const of = (x) => {
    const [t, names] = columns(x);
    return tree(t, 'cpu', names, all);
  };
  const d = diff(of(['all', 0, ['main', 0, ['a', 10], ['gone', 10]]]), of(['all', 0, ['main', 0, ['a', 5], ['new', 5]]]), false);
  const main = d.kids[0];
  assert.deepEqual([d.value, d.other], [10, 20]);
  assert.deepEqual(Object.fromEntries(main.kids.map((k) => [k.name, [k.value, k.other]])), { a: [5, 10], gone: [0, 10], new: [5, 0] });
  assert.ok(main.size >= main.kids.reduce((s, k) => s + k.size, 0));
  const s = diff(of(['all', 0, ['a', 10], ['b', 30]]), of(['all', 0, ['a', 1], ['b', 3]]), true);
  assert.deepEqual(
    s.kids.map((k) => [k.name, k.value, k.other]),
    [
      ['b', 3, 3],
      ['a', 1, 1],
    ],
  );
});

test("frames outside of the program's own code fold", async () => {
  const { covers, folds } = await load('mycode');
  let func = 0;
  const n = (name, self, ...kids) => ({
    name,
    func: func++,
    self,
    value: self + kids.reduce((s, k) => s + k.value, 0),
    count: 1,
    other: 0,
    otherSelf: 0,
    size: 0,
    kids,
    parent: null,
  });
  // The trunk, a runtime between two functions of the program, a library below one, and recursion.
  const walk = n('walk', 3, n('walk', 4, n('walk', 5, n('malloc', 6, n('brk', 7)))), n('free', 1));
  const main = n('main', 2, n('rt.call', 1, n('rt.invoke', 2, walk)), n('read', 1, n('sys_read', 8)));
  const root = { ...n('all', 0, n('_start', 0, n('libc_main', 1, main))), func: -1 };
  const mine = (k) => ['main', 'walk'].includes(k.name);
  const rows = (k) =>
    `${k.name}${k.rows ? `+${k.rows}` : ''}=${k.self}/${k.value}${k.kids.length ? `(${k.kids.map(rows).join(' ')})` : ''}`;
  assert.equal(
    rows(folds(root, mine, () => false)),
    'all=0/41(_start+1=1/41(main=2/40(rt.call+1=3/29(walk+2=12/26(malloc+1=13/13 free=1/1)) read+1=9/9)))',
  );
  assert.equal(
    rows(folds(root, mine, (p) => p === '\0_start\0main\0read')),
    'all=0/41(_start+1=1/41(main=2/40(rt.call+1=3/29(walk+2=12/26(malloc+1=13/13 free=1/1)) read=1/9(sys_read=8/8))))',
  );
  assert.equal(covers(root, mine), 40 / 41);
  assert.equal(
    covers(root, (k) => k.name === 'free'),
    1 / 41,
  );
});

test('rows that are left out keep the program’s own in sight', async () => {
  const { skipped, lead } = await load('rows');
  const none = { first: Infinity, last: -1 };
  const r = (trunk, own = none, wide = none) => ({ trunk, own, wide });
  assert.equal(skipped(undefined, 30, 10), 0);
  assert.equal(skipped(r(0), 30, 10), 0); // nothing stays the same: nothing goes
  assert.equal(skipped(r(5), 30, 10), 5);
  assert.equal(skipped(r(25), 30, 10), 20); // no more than there is no room for
  assert.equal(skipped(r(1), 30, 10), 0); // the line for one row takes as much room
  assert.equal(skipped(r(18, { first: 4, last: 8 }), 30, 10), 4); // own rows stay
  assert.equal(skipped(r(2, { first: 15, last: 20 }), 30, 10), 11); // the innermost own row is in the last
  assert.equal(skipped(r(2, none, { first: 15, last: 20 }), 30, 10), 11);
  assert.equal(lead(r(6, { first: 4, last: 9 })), 4);
  assert.equal(lead(r(6)), 0);
});

test('parts of a call add up to its length', async () => {
  const { fitted } = await load('sums');
  const total = (p) => p.reduce((s, x) => s + x.total, 0);
  const p = fitted(
    [
      { part: 'lock', total: 30 },
      { part: 'io', total: 10 },
    ],
    40,
    100,
  );
  assert.deepEqual(
    p.map((x) => [x.part, x.total]),
    [
      ['cpu', 40],
      ['lock', 30],
      ['unseen', 20],
      ['io', 10],
    ],
  );
  const over = fitted(
    [
      { part: 'lock', total: 90 },
      { part: 'io', total: 30 },
    ],
    40,
    100,
  );
  assert.ok(Math.abs(total(over) - 100) < 1e-9 && Math.abs(over.find((x) => x.part === 'lock').total - 45) < 1e-9);
  assert.deepEqual(fitted([], 500, 100), [{ part: 'cpu', total: 100 }]);
  assert.deepEqual(fitted([], -5, 0), []);
});

test('pools by their names', async () => {
  const { roleOf } = await load('groups');
  assert.deepEqual(
    ['worker-12', 'http-nio-8080-exec-3', 'main', 'x', 'other'].map((n) => roleOf(n)),
    ['worker-*', 'http-nio-*-exec-*', 'main*', 'x', 'other*'],
  );
  assert.equal(roleOf('java', true), 'main');
});

test('text on spans has contrast', async () => {
  const { inkOn } = await load('color');
  assert.deepEqual(['#ffffff', '#ffff00', '#000000', '#0000ff', '#7a7a7a'].map(inkOn), [
    '#000000',
    '#000000',
    '#ffffff',
    '#ffffff',
    '#000000',
  ]);
});

test('thin items of one bin become one; others stay', async () => {
  const { Row } = await load('model');
  const frame = (items) => ({
    start: Float64Array.from(items, (x) => x[0]),
    end: Float64Array.from(items, (x) => x[1]),
    busy: Float32Array.from(items, (x) => x[1] - x[0]),
    value: Uint32Array.from(items, (x) => x[2]),
    count: Uint32Array.from(items, () => 1),
  });
  const r = new Row(0);
  r.add(
    frame([
      [0, 2, 7],
      [3, 8, 9],
      [12, 14, 7],
      [20, 90, 5],
    ]),
    0,
    4,
    10,
  );
  assert.equal(r.n, 3);
  assert.deepEqual([...r.count.subarray(0, 3)], [2, 1, 1]);
  assert.deepEqual([r.start[0], r.end[0], r.busy[0], r.value[0]], [0, 8, 7, 9]); // the busiest names it
  r.add(frame([[95, Infinity, 5]]), 0, 1, 10);
  assert.equal(r.n, 4);
  r.dropOpen();
  r.dropOpen();
  assert.equal(r.n, 3);
  assert.deepEqual(
    [r.at(0), r.at(13), r.at(50)].map((i) => r.start[i]),
    [0, 12, 20],
  );
});

test('the store: words of the address, and steps that Back undoes', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { Store, num, list, put, lists } = await load('store');
  const w = new URLSearchParams('a=5&b=x&c=1,2,3&d=&e=1,x,3');
  assert.deepEqual([num(w, 'a'), num(w, 'b'), num(w, 'z')], [5, undefined, undefined]);
  assert.deepEqual(
    [list(w, 'c'), list(w, 'c', 3), list(w, 'c', 2), list(w, 'd'), list(w, 'e')],
    [[1, 2, 3], [1, 2, 3], undefined, undefined, [1, 3]],
  );
  const out = new URLSearchParams();
  put(out, 'no', '');
  put(out, 'zero', 0);
  put(out, 'yes', 'word');
  lists(out, 'none', []);
  lists(out, 'some', [1.4, 2.6]);
  assert.equal(out.toString(), 'yes=word&some=1%2C3');

  const past = [];
  const goes = (how) => (_state, _title, hash) => {
    past.push([how, hash]);
    location.hash = hash;
  };
  globalThis.history = { pushState: goes('push'), replaceState: goes('replace') };
  location.hash = '#token=secret&tab=first';
  let tab = '';
  let openings = 0;
  let reloads = 0;
  const s = new Store(
    [
      {
        save: (x) => put(x, 'tab', tab),
        load: (x, opened) => {
          tab = x.get('tab') ?? '';
          openings += opened;
        },
      },
    ],
    () => reloads++,
  );
  const change = (to, how) => {
    tab = to;
    s[how]();
  };
  change('early', 'step'); // nothing is shown yet
  t.mock.timers.tick(1000);
  assert.deepEqual(past, []);
  s.open();
  assert.equal(tab, 'first');
  change('follows', 'step'); // from what was opened
  t.mock.timers.tick(399);
  assert.deepEqual(past, []);
  t.mock.timers.tick(1);
  change('second', 'keep');
  t.mock.timers.tick(249);
  change('third', 'step'); // of changes close together one step is enough
  t.mock.timers.tick(1);
  assert.deepEqual(past, [['push', '#token=secret&tab=third']]);
  s.step(); // nothing changed
  t.mock.timers.tick(1000);
  change('fourth', 'keep');
  t.mock.timers.tick(1000);
  assert.deepEqual(past.slice(1), [['replace', '#token=secret&tab=fourth']]);
  location.hash = '#token=secret&tab=back';
  change('lost', 'step');
  page.dispatchEvent(new Event('popstate'));
  assert.equal(tab, 'back');
  t.mock.timers.tick(1000);
  assert.equal(past.length, 2);
  location.hash = '#token=other';
  page.dispatchEvent(new Event('popstate'));
  assert.deepEqual([reloads, tab, openings], [1, 'back', 1]);
  s.close(); // another recording: what the page was opened with is shown again
  location.hash = '#token=secret&tab=back';
  change('deaf', 'step');
  t.mock.timers.tick(1000);
  assert.equal(past.length, 2);
  s.open();
  assert.deepEqual([tab, openings], ['first', 2]);
});

test('the ruler says where its lines are', async () => {
  const { clock, ticks } = await load('format');
  for (const [t0, t1, step] of [
    [0.9e9, 5.9e9, 0.5e9],
    [84e6, 90e6, 1e6],
    [12e9, 30e9, 2e9],
  ]) {
    const lines = ticks(t0, t1, 84e6, step);
    assert.ok(lines.length >= 6 && lines[0] >= t0 && lines.at(-1) < t1, `${lines.length} lines`);
    for (const t of lines)
      assert.ok(
        Math.abs(parseFloat(clock(t - 84e6, step)) * 1e9 - (t - 84e6)) < 1,
        `a line at ${t - 84e6} ns says ${clock(t - 84e6, step)}`,
      );
  }
});

test('the program stays before its libraries where there is no room for all rows', async () => {
  const { owned, skipped, survey } = await load('rows');
  const { ownCode } = await load('own');
  // One thread whose calls are these, outermost first, each a share of its time.
  const skip = (kind, calls, room) => {
    const funcs = calls.map(([name, , file, k]) => ({ name, file, kind: k ?? kind }));
    const rows = calls.map(([, share], i) => ({ time: () => [100, 100 * share], timeOf: (of) => (of(i) ? 100 * share : 0) }));
    const kinds = new Set(funcs.map((f) => f.kind));
    return skipped(survey(rows, 100, owned({ funcs, kinds, own: () => ownCode(kinds, new Set()) })), calls.length, room);
  };
  const jdk = ['Thread.run', 'ForkJoinPool.runWorker', 'ForkJoinPool.awaitWork', 'LockSupport.park', 'VirtualThread.run'].map((n, i) => [
    `java.util.${n}`,
    i < 2 ? 1 : 0.5,
  ]);
  assert.equal(
    skip(
      'java',
      [
        ['start_thread', 1, '', 'native'],
        ...jdk,
        ['Shop.handle', 0.1],
        ['Shop.render', 0.1],
        ['java.lang.String.format', 0.1],
        ['memcpy', 0.1, '', 'native'],
      ],
      4,
    ),
    4,
  );
  // A thread that has but libraries shows those.
  assert.equal(
    skip('java', [['start_thread', 1, '', 'native'], ['call_helper', 1, '', 'native'], ...jdk, ['epoll_wait', 0.5, '', 'native']], 5),
    2,
  );
  const main = [
    ['_start', 1, '', 'native'],
    ['<module>', 1, '/srv/app.py'],
    ['run', 1, '/usr/lib/python3.12/asyncio/runners.py'],
    ['_run_once', 1, '/usr/lib/python3.12/asyncio/base_events.py'],
  ];
  assert.equal(
    skip(
      'python',
      [...main, ['on_request', 0.5, '/srv/app.py'], ['dumps', 0.5, '/usr/lib/python3.12/json/__init__.py'], ['send', 0.4, '', 'native']],
      3,
    ),
    2,
  );
  const rack = [
    ['_start', 1, '', 'native'],
    ['<main>', 1, '/usr/lib/ruby/gems/3.3.0/gems/puma-6.4/bin/puma'],
    ['Kernel#load', 1, ''],
    ['Integer#times', 1, '<internal:numeric>'],
  ];
  assert.equal(
    skip(
      'ruby',
      [
        ...rack,
        ['App#call', 0.5, '/srv/app.rb'],
        ['JSON.generate', 0.5, '/usr/lib/ruby/3.3.0/json/common.rb'],
        ['send', 0.4, '', 'native'],
      ],
      3,
    ),
    4,
  );
  assert.equal(
    skip(
      'js',
      [
        ['Start', 1, '', 'native'],
        ['onread', 0.6, 'node:internal/streams'],
        ['emit', 0.6, 'node:events'],
        ['next', 0.6, '/srv/node_modules/express/lib/router.js'],
        ['slowReport', 0.6, '/srv/server.js'],
        ['digest', 0.5, '', 'native'],
      ],
      2,
    ),
    3,
  );
});

test("findings: the program's own function with its callers, locks with holder, tasks, no wait over the whole range", async () => {
  const { coverage, findings, ownCPU } = await load('analysis');
  const funcs = ['main', 'handler', 'render', 'memcpy'].map((name, i) => ({ name, module: i < 3 ? '/bin/app' : '/lib/libc.so.6' }));
  const time = (name, cpu, more) => ({
    seq: 0,
    tid: 1,
    name,
    observed: 10e9,
    cpu,
    runnable: 0,
    lock: 0,
    io: 0,
    sleep: 0,
    other: 0,
    idle: 0,
    stopped: 0,
    ...more,
  });
  const lock = (name, waits, total_ns, longest_ns, holder) => ({
    name,
    kind: 'lock',
    exclusive: true,
    waits,
    total_ns,
    longest_ns,
    most_waiting: 3,
    no_holder: '',
    holders: [{ name: `${holder} (lock word)`, waits, total_ns }],
    holder_functions: [{ name: 'render', waits, total_ns }],
    waiter_functions: [{ name: 'handler', waits, total_ns }],
  });
  const a = {
    from: 0,
    to: 10e9,
    funcs,
    threads: [time('main', 6e9), time('idle', 0, { idle: 10e9, is_idle: true })],
    // main › handler › render › memcpy, with 1 s of its own in render and 4 s in memcpy, 1 s in main.
    tree: {
      parent: [-1, 0, 1, 2, 3],
      func: [-1, 0, 1, 2, 3],
      cpu: [6e9, 6e9, 5e9, 5e9, 4e9],
      samples: [],
      wall: [],
      wait: [],
      lock: [],
      idle: [],
      folded: 0,
    },
    report: {
      on_cpu: [
        { name: 'memcpy', self_ns: 4e9, total_ns: 4e9 },
        { name: '(not sampled)', self_ns: 6e8, total_ns: 6e8 },
      ],
      calls: [],
      functions: [],
      longest: [],
      losses: [],
      locks: [lock('mutex cache', 40, 8e9, 1e9, 'worker (7)'), lock('join of main', 1, 9.9e9, 9.9e9, 'main (1)')],
      goroutines: {
        waits: [
          { for: 'sync.Mutex', func: 'main.get', tasks: 3, total_ns: 2e9, longest_ns: 1e9, holders: [] },
          { for: 'sleep', func: 'main.tick', tasks: 1, total_ns: 9e9, longest_ns: 1e9, holders: [] },
        ],
      },
    },
  };
  const own = ownCPU(a, (f) => f.module === '/bin/app');
  assert.deepEqual(
    own.map((x) => [x.func.name, x.cpu, x.mostly, x.callers.join()]),
    [
      ['render', 5e9, 'memcpy', 'main,handler'],
      ['main', 1e9, '', ''],
    ],
  );
  const found = findings(
    a,
    (f) => f.module === '/bin/app',
    (ns) => `${ns / 1e9} s`,
  );
  assert.deepEqual(
    found.map((f) => [f.kind, f.head]),
    [
      ['lock', 'mutex cache'],
      ['cpu', 'render'],
      ['lock', 'sync.Mutex in main.get'],
    ],
  );
  assert.match(found[0].text, /waited 8 s.*held mostly by worker \(7\) in render; wanted in handler/);
  assert.match(found[1].text, /^83 % of the CPU time \(5 s\), called by main › handler, mostly in memcpy$/);
  assert.equal(coverage(a), 0.9);
  // A parent's wait for a child explains nothing where the child was recorded too.
  const wait = (kind) => ({ call: 'wait4', kind, for: '', waits: 5, total_ns: 30e9, longest_ns: 5e9, threads: 2 });
  const waits = (of, kind) =>
    findings(
      { ...a, of, report: { ...a.report, calls: [wait(kind)] } },
      () => false,
      (ns) => `${ns / 1e9} s`,
    ).filter((f) => f.kind === 'wait').length;
  assert.deepEqual([waits(undefined, 'child'), waits(3, 'child'), waits(3, 'peer')], [1, 0, 1]);
});

test('names are cut where they tell least', async () => {
  const { cut, forms } = await load('format');
  for (const want of [
    ['java.util.concurrent.ForkJoinPool.awaitWork', 'ForkJoinPool.awaitWork', 'awaitWork'],
    ['Convoy$$Lambda$1/0x00007fc878000a08.run', 'Convoy$$Lambda$1.run', 'run'],
    ['net/http.(*conn).serve', '(*conn).serve', 'serve'],
    ['net/http.(*Server).Serve.gowrap3', 'Serve.gowrap3'],
    ['main.main.func1', 'main.func1'],
    [
      'v8::internal::JsonStringifier::Serialize_<false>(Handle<Object>)',
      'v8::internal::JsonStringifier::Serialize_<…>',
      'JsonStringifier::Serialize_<…>',
      'Serialize_<…>',
    ],
    ['_int_malloc.constprop.0'],
    ['matching.<locals>.<lambda>', '<locals>.<lambda>'],
    ['JSONEncoder.iterencode', 'iterencode'],
    ['java.util.HashMap.<init>', 'HashMap.<init>'],
    ['libjvm.so+0x1230'],
    ['[call stub]'],
    ['(anonymous)'],
    ['LazyCompile:*render /srv/app/views.js:9'],
    ['<module>'],
    ['a::B::operator->()'],
  ])
    assert.deepEqual(forms(want[0]), want);
  const at = (name, w) =>
    cut(
      forms(name).map((s) => [s, s.length]),
      w,
      (s) => s.length,
    );
  assert.equal(at('java.util.concurrent.ForkJoinPool.awaitWork', 30), 'ForkJoinPool.awaitWork');
  assert.equal(at('java.util.concurrent.ForkJoinPool.awaitWork', 12), 'awaitWork');
  assert.equal(at('a_function_of_some_length', 20), 'a_function_o…');
  assert.equal(at('a_function_of_some_length', 9), '');
});

test('the table of locks: a wait that two threads made another one wait for', async () => {
  const { lockTable } = await load('locktable');
  const words = (holder, holder_in) => ({ lock: 'mutex', kind: 'lock', exclusive: true, holder, holder_in, waiter_in: 'want' });
  // Two waits: 0 to 100, held by a until 70 and then by b, and 200 to 230, held by a and then by a in another function.
  const held = { start: [0, 70, 200, 210], end: [70, 100, 210, 230], value: [0, 8 + 4, 0, 16 + 4] };
  const rec = { head: { held: [words('a', 'f'), words('b', 'g'), words('a', 'h')] } };
  const table = (t0, t1) => lockTable(rec, [{ held, process: 0 }], t0, t1, false)[0];
  const share = (name, waits, total_ns) => ({ name, waits, total_ns });
  const all = table(0, 300);
  assert.deepEqual([all.waits, all.total_ns, all.longest_ns, all.most_waiting], [2, 130, 100, 1]);
  assert.deepEqual(all.holders, [share('a', 2, 100), share('b', 1, 30)]);
  assert.deepEqual(all.holder_functions, [share('f', 2, 80), share('g', 1, 30), share('h', 1, 20)]);
  assert.deepEqual(all.waiter_functions, [share('want', 2, 130)]);
  const part = table(80, 205);
  assert.deepEqual([part.waits, part.total_ns, part.longest_ns], [2, 25, 20]);
  assert.deepEqual(part.holders, [share('b', 1, 20), share('a', 1, 5)]);
});

test('colours differ for the colour-blind too', async () => {
  const { light, dark, fillOf } = await load('color');
  assert.equal(fillOf('main'), 8, 'a function has another colour than on an earlier visit');
  // Machado, Oliveira, Fernandes 2009: the view without cones for red, green, blue.
  const eyes = [
    [1, 0, 0, 0, 1, 0, 0, 0, 1],
    [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
    [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
    [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
  ];
  const linear = (hex) =>
    [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  const lab = (hex, m) => {
    const c = linear(hex);
    const [r, g, b] = [0, 3, 6].map((k) => Math.min(1, Math.max(0, m[k] * c[0] + m[k + 1] * c[1] + m[k + 2] * c[2])));
    const f = (t) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
    const [x, y, z] = [
      f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047),
      f(0.2126 * r + 0.7152 * g + 0.0722 * b),
      f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883),
    ];
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
  };
  const bright = (hex) => {
    const [r, g, b] = linear(hex);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const t of [light, dark]) {
    const functions = t.fills.slice(0, 16);
    for (const [colours, least] of [
      [functions, 13],
      [functions.slice(0, 6), 18],
      [Object.values(t.parts), 20],
    ]) {
      for (const m of eyes) {
        for (const [i, a] of colours.entries()) {
          for (const b of colours.slice(0, i)) {
            const d = Math.hypot(...lab(a, m).map((v, k) => v - lab(b, m)[k]));
            assert.ok(d > least, `${a} and ${b} are ${d.toFixed(1)} apart`);
          }
        }
      }
    }
    const contrast = (a, b) => (Math.max(bright(a), bright(b)) + 0.05) / (Math.min(bright(a), bright(b)) + 0.05);
    const mix = (a, b, k) =>
      '#' +
      [1, 3, 5]
        .map((i) =>
          Math.round(parseInt(a.slice(i, i + 2), 16) * (1 - k) + parseInt(b.slice(i, i + 2), 16) * k)
            .toString(16)
            .padStart(2, '0'),
        )
        .join('');
    for (const f of functions) assert.ok(contrast(f, t.onFill) > 4.5, `text on ${f}`);
    // When colors show the state: on calls, pale or not, and on what a search found.
    for (const f of [...t.fills.slice(16), t.found, t.dim]) {
      const text = f === t.dim ? t.dimText : t.onState;
      assert.ok(contrast(f, text) > 4.5, `text on ${f}`);
      for (const [part, v] of Object.entries(t.veils))
        for (const k of [0.35, 0.82])
          if (part !== 'cpu') assert.ok(f === t.dim || contrast(mix(f, v, k), text) > 4.5, `text on ${f} below ${v}`);
    }
  }
});
