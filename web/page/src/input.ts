// Pointer, wheel and touch on the timeline.

import { el } from './dom';
import type { Timeline } from './timeline';

const mostZoom = 3; // logarithm, of one event: a busy browser joins several

interface Point {
  x: number;
  y: number;
}

export function pointers(v: Timeline): void {
  const calls = el<HTMLCanvasElement>('calls');
  const axis = el<HTMLCanvasElement>('axis');
  const down = new Map<number, Point>();
  let mode: 'none' | 'pan' | 'range' | 'pinch' = 'none';
  let start = { x: 0, y: 0, t: 0 };
  let moved = false;
  let pinch = { d: 1, x: 0 };
  let speed = 0; // px/ms, for letting go while moving
  let at = 0;
  // The last click and the one before: the panel that the first opens moves what
  // is below the pointer, and a double-click is meant for the first target.
  let last = { at: -1e9, x: 0, y: 0, t0: 0, t1: -1 };
  let first = last;

  const local = (c: HTMLElement, e: { clientX: number; clientY: number }): { x: number; y: number } => {
    const r = c.getBoundingClientRect();
    return { x: e.clientX - r.left, y: e.clientY - r.top };
  };

  const wheel = (e: WheelEvent): void => {
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 30 : e.deltaMode === 2 ? 300 : 1;
    const { x } = local(calls, e);
    const dx = e.shiftKey && !e.deltaX ? e.deltaY : e.deltaX;
    if (Math.abs(dx) > Math.abs(e.shiftKey ? 0 : e.deltaY)) {
      v.pan((dx * unit) / v.width, true);
      return;
    }
    // A pinch on a touchpad comes as a wheel with Ctrl, in small steps.
    const zooms = e.ctrlKey || e.metaKey || (v.gestures === 'map' && !e.altKey);
    if (!zooms) {
      v.scrollBy(e.deltaY * unit);
      return;
    }
    const k = e.ctrlKey && Math.abs(e.deltaY) < 50 ? 0.01 : 0.0022;
    v.zoom(Math.exp(Math.max(-mostZoom, Math.min(mostZoom, e.deltaY * unit * k))), x);
  };
  calls.addEventListener('wheel', wheel, { passive: false });
  axis.addEventListener('wheel', wheel, { passive: false });

  const begin = (c: HTMLCanvasElement, e: PointerEvent): void => {
    if (e.button > 1) return;
    const p = local(c, e);
    // The first finger to come down: the end of an earlier one was lost.
    if (e.isPrimary) down.clear();
    c.setPointerCapture(e.pointerId);
    down.set(e.pointerId, p);
    if (down.size === 2) {
      const [a, b] = [...down.values()] as [Point, Point];
      mode = 'pinch';
      pinch = { d: Math.max(20, Math.hypot(a.x - b.x, a.y - b.y)), x: (a.x + b.x) / 2 };
      v.onHover(null, 0, 0);
      return;
    }
    moved = false;
    speed = 0;
    at = e.timeStamp;
    start = { ...p, t: v.time(p.x) };
    // Of Perfetto's gestures a drag selects, and with Shift it moves; of a map's it is the other way
    // around. A finger moves, unless Select is on.
    const selects = v.gestures === 'perfetto' && e.pointerType !== 'touch' ? !e.shiftKey && e.button === 0 : e.shiftKey;
    mode = c === axis || v.selectMode || selects ? 'range' : 'pan';
  };
  calls.addEventListener('pointerdown', (e) => {
    calls.focus({ preventScroll: true });
    begin(calls, e);
  });
  axis.addEventListener('pointerdown', (e) => begin(axis, e));

  const move = (c: HTMLCanvasElement, e: PointerEvent): void => {
    const p = local(c, e);
    const was = down.get(e.pointerId);
    if (!was) {
      if (c === calls && e.pointerType !== 'touch') {
        const spot = v.spot(p.x, p.y);
        calls.classList.toggle('opens', !!spot?.opens);
        if (spot) spot.hover(e.clientX, e.clientY);
        else v.onHover(null, 0, 0);
      }
      return;
    }
    down.set(e.pointerId, p);
    if (mode === 'pinch' && down.size === 2) {
      const [a, b] = [...down.values()] as [Point, Point];
      const d = Math.max(20, Math.hypot(a.x - b.x, a.y - b.y));
      const mid = (a.x + b.x) / 2;
      v.zoom(pinch.d / d, mid, true);
      if (!v.follow) v.pan((pinch.x - mid) / v.width, true);
      pinch = { d, x: mid };
      return;
    }
    // A finger rolls while it taps.
    if (!moved && Math.hypot(p.x - start.x, p.y - start.y) < (e.pointerType === 'touch' ? 10 : 4)) return;
    if (!moved) {
      moved = true;
      v.onHover(null, 0, 0);
      calls.classList.toggle('drag', mode === 'pan');
    }
    if (mode === 'pan') {
      v.pan((was.x - p.x) / v.width, true);
      v.scrollBy(was.y - p.y);
      const dt = Math.max(1, e.timeStamp - at);
      speed = 0.6 * speed + 0.4 * ((was.x - p.x) / dt);
      at = e.timeStamp;
    } else if (mode === 'range') {
      // There is nothing to choose before the recording's beginning or behind its end.
      const b = v.bounds();
      const [t, from] = [v.time(Math.min(Math.max(p.x, 0), v.width)), start.t].map((x) => Math.min(Math.max(x, b.t0), b.t1)) as [
        number,
        number,
      ];
      v.onRange({ t0: Math.min(from, t), t1: Math.max(from, t) }, false);
    }
  };
  calls.addEventListener('pointermove', (e) => move(calls, e));
  axis.addEventListener('pointermove', (e) => move(axis, e));
  calls.addEventListener('pointerleave', () => v.onHover(null, 0, 0));

  const end = (c: HTMLCanvasElement, e: PointerEvent): void => {
    if (!down.delete(e.pointerId)) return;
    calls.classList.remove('drag');
    if (down.size) {
      // One finger of two is left: it pans on.
      const [p] = [...down.values()] as [Point];
      start = { ...p, t: v.time(p.x) };
      mode = 'pan';
      moved = true;
      return;
    }
    const p = local(c, e);
    if (!moved && e.type === 'pointerup') {
      if (c === axis) {
        const flag = v.notes
          .flags()
          .map((t) => t.spot(p.x, p.y))
          .find((x) => x);
        if (flag) flag.click();
        else v.onRange(null, true);
      } else {
        first = last;
        if (e.timeStamp - last.at < 500 && Math.hypot(e.clientX - last.x, e.clientY - last.y) < (e.pointerType === 'touch' ? 20 : 6)) {
          mode = 'none';
          return;
        }
        const spot = v.spot(p.x, p.y);
        mode = 'none';
        if (!spot || spot.time) last = { at: e.timeStamp, x: e.clientX, y: e.clientY, t0: spot?.time?.t0 ?? 0, t1: spot?.time?.t1 ?? -1 };
        if (spot) spot.click();
        else {
          if (v.range && !v.selectMode) v.onRange(null, true);
          v.onSelect(null);
        }
      }
    } else if (mode === 'range' && moved) v.onRange(v.range, true);
    else if (mode === 'pan' && moved && Math.abs(speed) > 0.3 && e.timeStamp - at < 60)
      v.show(v.t0 + ((speed * 160) / v.width) * v.span, v.t1 + ((speed * 160) / v.width) * v.span);
    mode = 'none';
  };
  for (const c of [calls, axis]) {
    c.addEventListener('pointerup', (e) => end(c, e));
    c.addEventListener('pointercancel', (e) => end(c, e));
  }

  calls.addEventListener('dblclick', () => {
    const a = first.t0;
    const b = first.t1;
    if (b < a) return;
    const pad = Math.max((b - a) * 0.05, 25);
    v.setFollow(false);
    v.show(a - pad, b + pad);
  });
}
