// Thin items, of which a screen has tens of thousands: a rectangle of the canvas
// for each takes most of a frame. Each row of them is a line of pixels here, and
// one picture, as high as the row, on the canvas.

const columns = 1 << 14; // the widest screen

export class Thin {
  private canvas = document.createElement('canvas');
  private g = this.canvas.getContext('2d')!;
  private image = this.g.createImageData(1, 1);
  private px = new Uint32Array(1); // a, b, g, r from the highest byte on, not multiplied by a
  private bands: { y: number; h: number; alpha: number }[] = [];
  private used: boolean[] = [];
  private width = 1;
  private scale = 1;
  private base = 0; // of the band that is drawn into
  private last = ''; // the colour of the item before, and what it is in pixels
  private color = 0;

  // begin starts a frame of a canvas that is w CSS pixels wide.
  begin(w: number): void {
    this.scale = window.devicePixelRatio || 1;
    const width = Math.min(columns, Math.max(1, Math.round(w * this.scale)));
    if (width !== this.width) {
      this.width = width;
      this.grow(64);
    } else this.px.fill(0, 0, this.bands.length * width);
    this.bands.length = this.used.length = 0;
  }

  private grow(rows: number): void {
    const old = this.px;
    this.canvas.width = this.width;
    this.canvas.height = rows;
    this.image = this.g.createImageData(this.width, rows);
    this.px = new Uint32Array(this.image.data.buffer);
    if (this.bands.length) this.px.set(old.subarray(0, this.bands.length * this.width));
  }

  // band begins a row at y, h CSS pixels high; all of it is drawn with this alpha.
  band(y: number, h: number, alpha: number): void {
    // What nothing was put into is taken for the next.
    if (this.bands.length && !this.used[this.bands.length - 1]) this.bands.pop();
    const n = this.bands.length;
    if ((n + 1) * this.width > this.px.length) this.grow(2 * (n + 1));
    this.bands.push({ y, h, alpha });
    this.used[n] = false;
    this.base = n * this.width;
  }

  // put adds an item from a to b (CSS pixels) to the row. color is #rrggbb. In a
  // column that is covered in part, or by several, they add up.
  put(a: number, b: number, color: string, alpha: number): void {
    if (color !== this.last) {
      this.last = color;
      const n = parseInt(color.slice(1), 16);
      this.color = ((n & 0xff) << 16) | (n & 0xff00) | (n >> 16);
    }
    const c = this.color;
    const px = this.px;
    a = Math.max(0, a * this.scale);
    b = Math.min(this.width, b * this.scale);
    for (let k = Math.floor(a); k < b; k++) {
      const cover = (Math.min(b, k + 1) - Math.max(a, k)) * alpha * 255;
      const at = this.base + k;
      const was = px[at]!;
      if (was < 1 << 24) {
        px[at] = ((cover + 0.5) << 24) | c;
        continue;
      }
      const sum = (was >>> 24) + cover;
      const f = cover / sum; // the share of the new colour
      const r = (was & 0xff) + ((c & 0xff) - (was & 0xff)) * f;
      const g = ((was >> 8) & 0xff) + (((c >> 8) & 0xff) - ((was >> 8) & 0xff)) * f;
      const u = ((was >> 16) & 0xff) + (((c >> 16) & 0xff) - ((was >> 16) & 0xff)) * f;
      px[at] = (Math.min(sum, 255) << 24) | (u << 16) | (g << 8) | r;
    }
    this.used[this.bands.length - 1] = true;
  }

  // flush draws the rows.
  flush(g: CanvasRenderingContext2D): void {
    if (this.bands.length && !this.used[this.bands.length - 1]) this.bands.pop();
    const n = this.bands.length;
    if (!n) return;
    this.g.putImageData(this.image, 0, 0, 0, 0, this.width, n);
    const smooth = g.imageSmoothingEnabled;
    g.imageSmoothingEnabled = false;
    this.bands.forEach(({ y, h, alpha }, k) => {
      g.globalAlpha = alpha;
      g.drawImage(this.canvas, 0, k, this.width, 1, 0, y, this.width / this.scale, h);
    });
    g.globalAlpha = 1;
    g.imageSmoothingEnabled = smooth;
  }
}
