package timeline

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// WritePNG draws rec to w at twice the SVG's resolution.
func WritePNG(w io.Writer, rec *trace.Recording, o view.Options) error {
	f, err := opentype.Parse(gomono.TTF)
	if err != nil {
		return fmt.Errorf("read the font: %w", err)
	}
	p := &raster{font: f, faces: map[float64]font.Face{}}
	return drawOn(w, rec, o, p)
}

// scale is the number of PNG pixels per SVG pixel.
const scale = 2

type raster struct {
	img   *image.RGBA
	font  *opentype.Font
	faces map[float64]font.Face
	err   error
}

func (p *raster) begin(w, h float64, _, _ string) {
	p.img = image.NewRGBA(image.Rect(0, 0, int(w*scale), int(math.Ceil(h*scale))))
	draw.Draw(p.img, p.img.Bounds(), image.NewUniform(white), image.Point{}, draw.Src)
}

// rect fills a box; partly covered pixels are blended.
func (p *raster) rect(x, y, w, h float64, c color.RGBA, _ string) {
	x0, x1 := x*scale, (x+w)*scale
	top, bottom := int(math.Round(y*scale)), int(math.Round((y+h)*scale))
	b := p.img.Bounds()
	for px := max(int(x0), 0); px < b.Max.X && float64(px) < x1; px++ {
		part := min(float64(px+1), x1) - max(float64(px), x0)
		for py := max(top, 0); py < min(bottom, b.Max.Y); py++ {
			d := p.img.Pix[p.img.PixOffset(px, py):][:3:3]
			d[0], d[1], d[2] = mix(d[0], c.R, part), mix(d[1], c.G, part), mix(d[2], c.B, part)
		}
	}
}

func mix(under, over uint8, part float64) uint8 {
	return uint8(math.Round(float64(under)*(1-part) + float64(over)*part))
}

func (p *raster) text(x, y, size float64, c color.RGBA, s string) {
	face := p.faces[size]
	if face == nil {
		var err error
		face, err = opentype.NewFace(p.font, &opentype.FaceOptions{Size: size * scale, DPI: 72, Hinting: font.HintingFull})
		if err != nil {
			p.err = err
			return
		}
		p.faces[size] = face
	}
	d := font.Drawer{Dst: p.img, Src: image.NewUniform(c), Face: face,
		Dot: fixed.Point26_6{X: fixed.Int26_6(x * scale * 64), Y: fixed.Int26_6(y * scale * 64)}}
	d.DrawString(s)
}

func (p *raster) finish(w io.Writer) error {
	if p.err != nil {
		return p.err
	}
	return png.Encode(w, p.img)
}
