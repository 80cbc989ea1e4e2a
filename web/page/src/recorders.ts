// The user's flight recorders ('sliver watch'): what they watch, their dumps,
// and a button that asks for one.

import { able } from './able';
import { el, fill, h, say } from './dom';
import { bytes } from './format';
import type { Link } from './proto';

interface Dump {
  at: string;
  reason: string;
  text: string;
  file: string;
  bytes: number;
}
interface Recorder {
  name: string;
  pid: number;
  keep: string;
  dir: string;
  targets: string[];
  waiting?: string;
  trouble?: string;
  dumps: Dump[];
}

const shown = 20; // dumps of each

export async function recorders(conn: Link): Promise<void> {
  const d = el<HTMLDialogElement>('dialog');
  const list = h('div', { class: 'recorders' }, h('p', { class: 'soft' }, 'Asking…'));
  const load = async (): Promise<void> => {
    try {
      const all = (await conn.get<{ recorders: Recorder[] }>('/api/recorders')).recorders;
      fill(
        list,
        ...all.map(one),
        all.length ? null : h('p', { class: 'soft' }, 'No flight recorder of yours is running. Start one with: sliver watch'),
      );
    } catch (e) {
      fill(list, h('p', { class: 'problem' }, (e as Error).message));
    }
  };
  const dump = async (b: HTMLButtonElement, title: string, name: string): Promise<void> => {
    able(b, title, 'It is being written');
    try {
      const r = await conn.post<{ files: string[] }>('/api/dump', { recorder: name });
      say(`dumped to ${r.files.join(', ')}`);
      await load();
    } catch (e) {
      able(b, title);
      b.after(h('span', { class: 'problem' }, (e as Error).message));
    }
  };
  const one = (r: Recorder): HTMLElement => {
    const title = `Have it write the last ${r.keep} to ${r.dir}`;
    const b = able(h('button', { class: 'small', onclick: () => void dump(b, title, r.name) }, 'Dump now'), title);
    return h(
      'section',
      { 'aria-label': `Recorder ${r.name}` },
      h(
        'div',
        { class: 'head' },
        h('h3', null, r.name),
        h('span', { class: 'soft grow' }, r.waiting ? `waits for ${r.waiting}` : r.targets.join(' · ')),
        b,
      ),
      r.trouble ? h('p', { class: 'problem' }, r.trouble) : null,
      h(
        'ul',
        null,
        ...r.dumps
          .slice(-shown)
          .reverse()
          .map((x) =>
            h(
              'li',
              null,
              h('span', { class: 'when' }, new Date(x.at).toLocaleString()),
              ' ',
              h('b', null, x.reason),
              ' ',
              x.text,
              h('div', { class: 'soft path' }, `${x.file} (${bytes(x.bytes)})`),
            ),
          ),
      ),
      r.dumps.length ? null : h('p', { class: 'soft' }, `No dumps yet; they go to ${r.dir}.`),
    );
  };
  fill(
    d,
    h(
      'div',
      { class: 'head' },
      h('h2', null, 'Flight recorders'),
      h('button', { class: 'icon', 'aria-label': 'Close', onclick: () => d.close() }, '×'),
    ),
    list,
  );
  d.showModal();
  await load();
}
