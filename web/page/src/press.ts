// A redraw between the press and the click would take the element away that the click is for.

const after = 300; // ms in which the click of a touch comes after the finger has left

// Press knows whether a pointer is down on an element, or its click is still to come.
export class Press {
  private down = false;
  private timer = 0;
  private due: (() => void) | null = null;

  constructor(e: HTMLElement) {
    e.addEventListener('pointerdown', () => {
      clearTimeout(this.timer);
      this.down = true;
    });
    for (const end of ['pointerup', 'pointercancel'] as const) {
      window.addEventListener(
        end,
        (p) => {
          if (!this.down) return;
          clearTimeout(this.timer);
          this.timer = window.setTimeout(() => this.release(), end === 'pointerup' && p.pointerType === 'touch' ? after : 0);
        },
        true,
      );
    }
    window.addEventListener(
      'click',
      () => {
        if (!this.down) return;
        clearTimeout(this.timer);
        this.timer = window.setTimeout(() => this.release());
      },
      true,
    );
  }

  private release(): void {
    this.down = false;
    const f = this.due;
    this.due = null;
    f?.();
  }

  // calm calls f at once, or after the click that a press announces. Of several only the last is called.
  calm(f: () => void): void {
    if (this.down) this.due = f;
    else f();
  }
}
