package timeline

import (
	"bufio"
	"bytes"
	"fmt"
	"image/color"
	"io"
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// WriteSVG draws rec to w.
func WriteSVG(w io.Writer, rec *trace.Recording, o view.Options) error {
	return drawOn(w, rec, o, &svg{})
}

type svg struct{ b bytes.Buffer }

func (s *svg) begin(w, h float64, title, about string) {
	fmt.Fprintf(&s.b, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %[1]g %[2]g" font-family="monospace" font-size="11">
<title>%s</title>
<desc>%s</desc>
<rect width="100%%" height="100%%" fill="#fff"/>
`, w, h, escape(title), escape(about))
}

func (s *svg) rect(x, y, w, h float64, c color.RGBA, title string) {
	fmt.Fprintf(&s.b, `<rect x="%.2f" y="%g" width="%.2f" height="%g" fill="#%02x%02x%02x"`, x, y, w, h, c.R, c.G, c.B)
	if title == "" {
		s.b.WriteString("/>\n")
		return
	}
	s.b.WriteString("><title>" + escape(title) + "</title></rect>\n")
}

func (s *svg) text(x, y, size float64, c color.RGBA, text string) {
	fmt.Fprintf(&s.b, `<text x="%.2f" y="%g" fill="#%02x%02x%02x"`, x, y, c.R, c.G, c.B)
	if size != 11 {
		fmt.Fprintf(&s.b, ` font-size="%g"`, size)
	}
	s.b.WriteString(` pointer-events="none">` + escape(text) + "</text>\n")
}

func (s *svg) finish(w io.Writer) error {
	s.b.WriteString("</svg>\n")
	b := bufio.NewWriter(w)
	if _, err := s.b.WriteTo(b); err != nil {
		return err
	}
	return b.Flush()
}

// escape escapes s for XML.
func escape(s string) string {
	return escaper.Replace(view.Text(s, 1<<16))
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")
