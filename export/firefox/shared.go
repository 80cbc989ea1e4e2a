package firefox

import (
	"strconv"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// tableOf writes a table of columns, each with n rows.
func (p *profile) tableOf(name string, n int, columns ...column) {
	p.print("\n\"" + name + "\":{\"length\":" + strconv.Itoa(n))
	for _, c := range columns {
		p.print(",\n\"" + c.name + "\":[")
		for i := range n {
			b := p.line[:0]
			if i > 0 {
				b = append(b, ',')
			}
			p.line = c.put(b, i)
			p.w.Write(p.line)
		}
		p.print("]")
	}
	p.print("}")
}

type column struct {
	name string
	put  func(b []byte, i int) []byte
}

// number makes a numeric column; negative values are written as null.
func number(name string, of func(i int) int) column {
	return column{name, func(b []byte, i int) []byte {
		if n := of(i); n >= 0 {
			return strconv.AppendInt(b, int64(n), 10)
		}
		return append(b, "null"...)
	}}
}

func always(name, val string) column {
	return column{name, func(b []byte, _ int) []byte { return append(b, val...) }}
}

// frameRow is a row of the frame table.
type frameRow struct {
	fn     int // index in p.funcs
	symbol int // index in the table of native symbols; -1: none
	line   int
	addr   int64 // in the file; -1: none
	depth  int   // inline depth
	cat    int
}

// symbol is a function's machine code.
type symbol struct {
	lib  int
	addr uint64
	name int // string index
}

// shared writes the tables that all threads share.
func (p *profile) shared() {
	rows := make([]frameRow, len(p.frames))
	var symbols []symbol
	symbolOf := map[symbol]int{}
	for i, k := range p.frames {
		r := frameRow{symbol: -1, addr: -1, line: -1, cat: k.cat}
		p.n, p.v = k.process, p.views[k.process]
		if k.loc < 0 {
			r.fn = p.function(p.v.GapFunc(stack.WhyLost), "")
			rows[i] = r
			continue
		}
		l := p.v.Names.Locs()[k.loc]
		f := &l.Frames[k.inner]
		fn := &p.v.Names.Funcs[f.Func]
		file := f.File
		if file == "" {
			file = fn.File
		}
		r.fn, r.depth = p.function(f.Func, file), len(l.Frames)-1-k.inner
		if f.Line > 0 {
			r.line = f.Line
		}
		if m := l.Key.Module; m >= 0 && m < len(p.v.Rec.Modules) {
			r.addr = int64(l.Key.Addr & (1<<53 - 1))
			// The symbol is the outermost function's; the others are inlined into it.
			outer := &p.v.Names.Funcs[l.Frames[len(l.Frames)-1].Func]
			s := symbol{p.libs0[p.n] + m, outer.Start & (1<<53 - 1), p.str(view.Text(outer.Name, view.MaxName))}
			n, ok := symbolOf[s]
			if !ok {
				n = len(symbols)
				symbols = append(symbols, s)
				symbolOf[s] = n
			}
			r.symbol = n
		}
		rows[i] = r
	}
	mods := p.modules()
	libNames := make([]int, len(mods))
	for i := range mods {
		libNames[i] = p.str(view.Text(base(mods[i].Path), 256))
	}
	funcNames := make([]int, len(p.funcs))
	for i, k := range p.funcs {
		funcNames[i] = p.str(p.views[k.process].FuncName(k.fn))
	}
	fileNames := make([]int, len(p.files))
	for i, f := range p.files {
		fileNames[i] = p.str(view.Text(f, view.MaxName))
	}

	p.print("{")
	p.tableOf("stackTable", p.tree.Len()-1, // without the empty stack
		number("frame", func(i int) int { _, l := p.tree.Node(int32(i + 1)); return int(l) }),
		number("prefix", func(i int) int { n, _ := p.tree.Node(int32(i + 1)); return int(n) - 1 }))
	p.print(",")
	p.tableOf("frameTable", len(rows),
		column{"address", func(b []byte, i int) []byte { return strconv.AppendInt(b, rows[i].addr, 10) }},
		number("inlineDepth", func(i int) int { return rows[i].depth }),
		number("category", func(i int) int { return rows[i].cat }),
		always("subcategory", "0"),
		number("func", func(i int) int { return rows[i].fn }),
		number("nativeSymbol", func(i int) int { return rows[i].symbol }),
		always("innerWindowID", "0"),
		number("line", func(i int) int { return rows[i].line }),
		always("column", "null"))
	p.print(",")
	p.tableOf("funcTable", len(p.funcs),
		number("name", func(i int) int { return funcNames[i] }),
		always("isJS", "false"),
		always("relevantForJS", "false"),
		column{"resource", func(b []byte, i int) []byte {
			return strconv.AppendInt(b, int64(p.moduleOf(p.funcs[i])), 10)
		}},
		number("source", func(i int) int {
			if n, ok := p.sources[p.funcs[i].file]; ok {
				return n
			}
			return -1
		}),
		number("lineNumber", func(i int) int {
			if n := p.of(p.funcs[i]).StartLine; n > 0 {
				return n
			}
			return -1
		}),
		always("columnNumber", "null"))
	p.print(",")
	p.tableOf("resourceTable", len(mods), // one for each library, 1 being the type for one
		number("lib", func(i int) int { return i }), number("name", func(i int) int { return libNames[i] }), always("host", "null"), always("type", "1"))
	p.print(",")
	p.tableOf("nativeSymbols", len(symbols),
		number("libIndex", func(i int) int { return symbols[i].lib }),
		number("address", func(i int) int { return int(symbols[i].addr) }),
		number("name", func(i int) int { return symbols[i].name }),
		always("functionSize", "null"))
	p.print(",")
	p.tableOf("sources", len(p.files),
		always("id", "null"), always("uuid", "null"), number("filename", func(i int) int { return fileNames[i] }),
		always("startLine", "1"), always("startColumn", "1"), always("sourceMapURL", "null"))
	p.print(",\n\"stringArray\":[")
	for i, s := range p.table {
		if i > 0 {
			p.print(",\n")
		}
		p.w.Write(view.JSON(s, view.MaxName))
	}
	p.print("]}")
}

// of returns the function of a key.
func (p *profile) of(k funcKey) *trace.Func { return &p.views[k.process].Names.Funcs[k.fn] }

// moduleOf returns the library of a function; -1 if it is unknown.
func (p *profile) moduleOf(k funcKey) int {
	if m := p.of(k).Module; m >= 0 && m < len(p.views[k.process].Rec.Modules) {
		return p.libs0[k.process] + m
	}
	return -1
}

// function numbers a function of a file.
func (p *profile) function(fn int, file string) int {
	k := funcKey{p.n, fn, file}
	i, ok := p.funcOf[k]
	if !ok {
		i = len(p.funcs)
		p.funcs = append(p.funcs, k)
		p.funcOf[k] = i
		if _, ok := p.sources[file]; !ok && file != "" {
			p.sources[file] = len(p.files)
			p.files = append(p.files, file)
		}
	}
	return i
}
