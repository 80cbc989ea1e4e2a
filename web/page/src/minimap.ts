// The overview: CPU use over the whole recording and the part that is shown.

import { theme } from './color';
import { el, fit } from './dom';
import { dur } from './format';
import type { Loads } from './proto';
import type { Timeline } from './timeline';

export class Minimap {
  private c = el<HTMLCanvasElement>('minimap');
  private loads: Loads | null = null;
  private busy = false;
  private due = 0;

  constructor(private v: Timeline) {
    let grab: { dx: number; mode: 'move' | 'left' | 'right' } | null = null;
    const time = (e: PointerEvent): number => {
      const r = this.c.getBoundingClientRect();
      const b = v.bounds();
      return b.t0 + ((e.clientX - r.left) / r.width) * (b.t1 - b.t0);
    };
    this.c.addEventListener('pointerdown', (e) => {
      this.c.setPointerCapture(e.pointerId);
      const t = time(e);
      const b = v.bounds();
      const slack = ((b.t1 - b.t0) / this.c.clientWidth) * 7;
      const narrow = v.span < 3 * slack;
      if (!narrow && Math.abs(t - v.t0) < slack) grab = { dx: t - v.t0, mode: 'left' };
      else if (!narrow && Math.abs(t - v.t1) < slack) grab = { dx: t - v.t1, mode: 'right' };
      else {
        if (t < v.t0 || t > v.t1) {
          v.setFollow(false);
          v.show(t - v.span / 2, t + v.span / 2, true);
        }
        grab = { dx: t - v.t0, mode: 'move' };
      }
    });
    this.c.addEventListener('pointermove', (e) => {
      if (!grab) return;
      const t = time(e) - grab.dx;
      v.setFollow(false);
      if (grab.mode === 'move') v.show(t, t + v.span, true);
      else if (grab.mode === 'left') v.show(Math.min(t, v.t1 - 1000), v.t1, true);
      else v.show(v.t0, Math.max(t, v.t0 + 1000), true);
    });
    const stop = (): void => {
      grab = null;
    };
    this.c.addEventListener('pointerup', stop);
    this.c.addEventListener('pointercancel', stop);
    this.c.addEventListener('dblclick', () => v.all());
    new ResizeObserver(() => this.draw()).observe(this.c.parentElement!);
  }

  // refresh asks for newer numbers, not too often.
  async refresh(force = false): Promise<void> {
    const now = performance.now();
    if (this.busy || (!force && now < this.due) || !this.v.conn.up) return;
    this.busy = true;
    this.due = now + 1000;
    try {
      this.loads = await this.v.conn.ask<Loads>('loads', { n: Math.max(50, Math.min(1500, this.c.parentElement!.clientWidth)) });
      const m = this.v.model;
      const cpu = await this.v.conn.ask<Loads>('loads', {
        t0: Math.round(this.v.t0),
        t1: Math.round(Math.max(this.v.t1, this.v.t0 + 1)),
        n: 1,
      });
      m.share.clear();
      const a = Math.max(this.v.t0, m.from());
      const b = Math.min(this.v.t1, m.edge());
      const scale = (this.v.t1 - this.v.t0) / Math.max(b - a, 1);
      for (const s of cpu.share ?? []) m.share.set(s.seq, Math.min(1, s.cpu * scale));
      this.v.onLayout();
    } catch {
      /* asked again when there is a connection */
    }
    this.busy = false;
    this.draw();
  }

  draw(): void {
    const box = this.c.parentElement!;
    const w = box.clientWidth;
    const h = box.clientHeight;
    const g = fit(this.c, w, h);
    const c = theme();
    g.fillStyle = c.panel;
    g.fillRect(0, 0, w, h);
    const b = this.v.bounds();
    const x = (t: number): number => ((t - b.t0) / (b.t1 - b.t0)) * w;
    const l = this.loads;
    let most = ''; // the CPUs that the full height means
    if (l && l.t1 > l.t0) {
      const cpus = this.v.model.hello?.process.cpus ?? 1;
      let top = 0.2;
      for (const n of l.bins) top = Math.max(top, n);
      top = Math.min(top * 1.1, cpus);
      const step = (x(l.t1) - x(l.t0)) / l.bins.length;
      g.fillStyle = c.load;
      g.beginPath();
      g.moveTo(x(l.t0), h);
      for (let i = 0; i < l.bins.length; i++) {
        const y = h - 2 - Math.min(1, l.bins[i]! / top) * (h - 8);
        g.lineTo(x(l.t0) + i * step, y);
        g.lineTo(x(l.t0) + (i + 1) * step, y);
      }
      g.lineTo(x(l.t1), h);
      g.fill();
      most = `${top.toFixed(1)} CPUs`;
    }
    const p = Math.max(0, x(this.v.t0));
    const q = Math.min(w, Math.max(x(this.v.t1), p + 2));
    g.globalAlpha = c.dark ? 0.55 : 0.6;
    g.fillStyle = c.bg;
    g.fillRect(0, 0, p, h);
    g.fillRect(q, 0, w - q, h);
    g.globalAlpha = 1;
    g.fillStyle = c.text;
    g.font = '10px ui-sans-serif, system-ui, sans-serif';
    g.textBaseline = 'top';
    g.fillText(most, 4, 3);
    if (this.v.range) {
      g.fillStyle = c.accent;
      g.fillRect(x(this.v.range.t0), h - 3, Math.max(1, x(this.v.range.t1) - x(this.v.range.t0)), 3);
    }
    g.strokeStyle = c.accent;
    g.lineWidth = 1.5;
    g.strokeRect(p + 0.75, 0.75, Math.max(1, q - p - 1.5), h - 1.5);
    this.c.setAttribute('aria-valuemin', '0');
    this.c.setAttribute('aria-valuemax', String(Math.round((b.t1 - b.t0) / 1e6)));
    this.c.setAttribute('aria-valuenow', String(Math.round((this.v.t0 - b.t0) / 1e6)));
    this.c.setAttribute('aria-valuetext', `${dur(this.v.span)} shown, from ${dur(this.v.t0 - b.t0)}, of ${dur(b.t1 - b.t0)}`);
  }
}
