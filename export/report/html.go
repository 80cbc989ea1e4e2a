package report

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed page.html
var page string

// WriteHTML writes the report as a self-contained page.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"dur":   duration,
		"share": func(part, whole int64) string { return percent(part, whole) },
		"list":  listed,
		"pct":   func(f float64) string { return fmt.Sprintf("%.3f%%", 100*f) },
		"size":  Amount,
		"waits": waits,
		"when": func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return t.Format(time.RFC3339)
		},
		"bar": func(part, whole int64) string {
			if whole <= 0 {
				return "0%"
			}
			return fmt.Sprintf("%.1f%%", min(100*float64(part)/float64(whole), 100))
		},
		"most": func(r *Report) int64 {
			var m int64
			for i := range r.Locks {
				m = max(m, r.Locks[i].Total)
			}
			return m
		},
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("report page: %w", err)
	}
	b := bufio.NewWriter(w)
	if err := t.Execute(b, r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
