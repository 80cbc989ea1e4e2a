package query

import (
	"bufio"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sliverprof/sliver/export/view"
)

// Formats returns the output formats.
func Formats() []string { return []string{"table", "csv", "json"} }

// Write writes rows in the given format, closes them, and returns the number of rows
// written.
func Write(w io.Writer, rows *sql.Rows, format string) (n int, err error) {
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	b := bufio.NewWriterSize(w, 1<<16)
	var out writer
	switch format {
	case "table":
		out = &table{w: b, names: names}
	case "csv":
		out = &commas{w: csv.NewWriter(b)}
	case "json":
		out = &objects{w: b, names: names}
	default:
		return 0, fmt.Errorf("unknown format %q; there are: %s", format, strings.Join(Formats(), ", "))
	}
	if err := out.begin(names); err != nil {
		return 0, err
	}
	values, at := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		at[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(at...); err != nil {
			return n, err
		}
		if err := out.row(values); err != nil {
			return n, err
		}
		n++
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	if err := out.end(); err != nil {
		return n, err
	}
	return n, b.Flush()
}

type writer interface {
	begin(names []string) error
	row(values []any) error
	end() error
}

// text formats a value for a terminal.
func text(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case int64:
		return strconv.FormatInt(x, 10)
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case bool:
		if x {
			return "1"
		}
		return "0"
	case []byte:
		return fmt.Sprintf("x'%x'", x)
	case string:
		return view.Text(x, view.MaxName)
	}
	return view.Text(fmt.Sprint(v), view.MaxName)
}

// commas writes CSV (RFC 4180).
type commas struct{ w *csv.Writer }

func (c *commas) begin(names []string) error {
	var cells []string
	for _, n := range names {
		cells = append(cells, cell(n))
	}
	return c.w.Write(cells)
}

func (c *commas) row(values []any) error {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = text(v)
		if _, ok := v.(string); ok {
			cells[i] = cell(cells[i])
		}
	}
	return c.w.Write(cells)
}

func (c *commas) end() error {
	c.w.Flush()
	return c.w.Error()
}

// cell escapes a text that a spreadsheet would take for a formula:
// https://owasp.org/www-community/attacks/CSV_Injection.
func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// objects writes an array of JSON objects, one per line.
type objects struct {
	w     *bufio.Writer
	names []string
	some  bool
}

func (o *objects) begin([]string) error { return o.w.WriteByte('[') }

func (o *objects) row(values []any) error {
	if o.some {
		o.w.WriteByte(',')
	}
	o.some = true
	o.w.WriteString("\n{")
	for i, v := range values {
		if i > 0 {
			o.w.WriteString(", ")
		}
		o.w.Write(view.JSON(o.names[i], view.MaxName))
		o.w.WriteString(": ")
		switch x := v.(type) {
		case string:
			o.w.Write(view.JSON(x, view.MaxName))
		case []byte:
			o.w.Write(view.JSON(text(v), view.MaxName))
		default:
			b, err := json.Marshal(x)
			if err != nil { // infinity
				b = view.JSON(text(v), view.MaxName)
			}
			o.w.Write(b)
		}
	}
	return o.w.WriteByte('}')
}

func (o *objects) end() error {
	_, err := o.w.WriteString("\n]\n")
	return err
}

// table writes aligned columns for a terminal. The first rows set the widths, so an
// answer of any length streams.
type table struct {
	w      *bufio.Writer
	names  []string
	held   [][]string
	number []bool
	widths []int
}

const (
	measured = 1000 // rows that set the column widths
	widest   = 80   // characters; longer values are cut with an ellipsis
)

func (t *table) begin(names []string) error {
	t.number = make([]bool, len(names))
	return nil
}

func (t *table) row(values []any) error {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = text(v)
		switch v.(type) {
		case int64, float64:
			if len(t.held) == 0 {
				t.number[i] = true
			}
		}
		if utf8.RuneCountInString(cells[i]) > widest {
			cells[i] = string([]rune(cells[i])[:widest-1]) + "…"
		}
	}
	if t.widths != nil {
		return t.line(cells)
	}
	if t.held = append(t.held, cells); len(t.held) == measured {
		return t.measure()
	}
	return nil
}

func (t *table) measure() error {
	t.widths = make([]int, len(t.names))
	var head, rule []string
	for i, n := range t.names {
		n = view.Text(n, widest)
		head = append(head, n)
		t.widths[i] = utf8.RuneCountInString(n)
	}
	for _, r := range t.held {
		for i, c := range r {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, n := range t.widths {
		rule = append(rule, strings.Repeat("-", n))
	}
	t.line(head)
	t.line(rule)
	for _, r := range t.held {
		t.line(r)
	}
	t.held = nil
	return nil
}

func (t *table) line(cells []string) error {
	for i, c := range cells {
		pad := max(t.widths[i]-utf8.RuneCountInString(c), 0)
		last := i == len(cells)-1
		if i > 0 {
			t.w.WriteString("  ")
		}
		if t.number[i] {
			t.w.WriteString(strings.Repeat(" ", pad))
		}
		t.w.WriteString(c)
		if !t.number[i] && !last {
			t.w.WriteString(strings.Repeat(" ", pad))
		}
	}
	return t.w.WriteByte('\n')
}

func (t *table) end() error {
	if t.widths == nil {
		return t.measure()
	}
	return nil
}
