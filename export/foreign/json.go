package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// values splits a JSON text into values. It only finds the end of each value; the caller
// checks its contents. With encoding/json's Decoder, which looks at each byte several
// times, an import took more than twice as long.
type values struct {
	r    io.Reader
	buf  []byte
	pos  int   // of the next byte in buf
	base int64 // offset of buf in the text
	err  error // read error of r, or io.EOF
}

// maxValue limits one JSON value: an event with its arguments, or another value that is
// skipped.
const maxValue = 32 << 20

var errLarge = fmt.Errorf("a value is larger than %d bytes", maxValue)

func newValues(r io.Reader) *values { return &values{r: r, buf: make([]byte, 0, 1<<16)} }

// offset returns the position of the next byte in the text.
func (v *values) offset() int64 { return v.base + int64(v.pos) }

// more reads more input and keeps the bytes after from; false at the end.
func (v *values) more(from int) bool {
	if v.err != nil {
		return false
	}
	if from > 0 {
		v.buf = v.buf[:copy(v.buf, v.buf[from:])]
		v.base += int64(from)
		v.pos -= from
	}
	if len(v.buf) == cap(v.buf) {
		if len(v.buf) > maxValue {
			v.err = errLarge
			return false
		}
		v.buf = append(make([]byte, 0, 2*cap(v.buf)), v.buf...)
	}
	n := 0
	for tries := 0; n == 0 && v.err == nil; tries++ {
		n, v.err = v.r.Read(v.buf[len(v.buf):cap(v.buf)])
		if tries == 100 {
			v.err = io.ErrNoProgress
		}
	}
	v.buf = v.buf[:len(v.buf)+n]
	return n > 0
}

// peek returns the next byte that is not white space; 0 at the end of the text or after a
// read error.
func (v *values) peek() byte {
	for {
		for ; v.pos < len(v.buf); v.pos++ {
			switch c := v.buf[v.pos]; c {
			case ' ', '\t', '\r', '\n':
			default:
				return c
			}
		}
		if !v.more(v.pos) {
			return 0
		}
	}
}

// atEnd reports, after peek, whether the input is exhausted.
func (v *values) atEnd() bool { return v.pos >= len(v.buf) }

// ended returns the read error, or io.ErrUnexpectedEOF at the end of the text.
func (v *values) ended() error {
	if v.err == nil || v.err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return v.err
}

// want consumes c.
func (v *values) want(c byte) error {
	switch got := v.peek(); {
	case got == c:
		v.pos++
		return nil
	case v.atEnd():
		return v.ended()
	default:
		return fmt.Errorf("%q where %q should be", got, c)
	}
}

// next returns the next value. It is valid until the next call.
func (v *values) next() ([]byte, error) {
	if v.peek(); v.atEnd() {
		return nil, v.ended()
	}
	var s scan
	from, at := v.pos, v.pos
	for {
		n, done := s.run(v.buf[at:])
		if at += n; done {
			break
		}
		at -= from
		if !v.more(from) {
			if v.err != io.EOF || !s.scalar {
				return nil, v.ended()
			}
			from, at = v.pos, v.pos+at
			break
		}
		from, at = v.pos, v.pos+at
	}
	v.pos = at
	if at-from > maxValue {
		return nil, errLarge
	}
	if at == from {
		return nil, fmt.Errorf("%q where a value should be", v.buf[at])
	}
	return v.buf[from:at], nil
}

// scan finds the end of a value, which may arrive in pieces.
type scan struct {
	depth            int
	text, esc, begun bool
	scalar           bool
}

// run returns how many bytes of b belong to the value, and whether it ends there.
func (s *scan) run(b []byte) (n int, done bool) {
	for i := 0; i < len(b); i++ {
		if s.text {
			if s.esc {
				s.esc = false
				continue
			}
			j := bytes.IndexByte(b[i:], '"')
			k := len(b)
			if j >= 0 {
				k = i + j
			}
			if e := bytes.IndexByte(b[i:k], '\\'); e >= 0 {
				i += e
				s.esc = true
				continue
			}
			if j < 0 {
				return len(b), false
			}
			i = k
			s.text = false
			if s.depth == 0 {
				return i + 1, true
			}
			continue
		}
		switch c := b[i]; c {
		case '"':
			if s.scalar {
				return i, true
			}
			s.text, s.begun = true, true
		case '{', '[':
			if s.scalar {
				return i, true
			}
			s.depth++
			s.begun = true
		case '}', ']':
			if s.depth == 0 {
				return i, true
			}
			if s.depth--; s.depth == 0 {
				return i + 1, true
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if s.depth == 0 {
				return i, true
			}
		default:
			if !s.begun {
				s.scalar, s.begun = true, true
			}
		}
	}
	return len(b), false
}

// jsonEvent is an event. Fields that may be a number or a text stay raw. It is valid as
// long as the bytes that it was parsed from.
type jsonEvent struct {
	Ph   string          `json:"ph"`
	Name string          `json:"name"`
	Ts   json.RawMessage `json:"ts"`
	Dur  json.RawMessage `json:"dur"`
	Pid  json.RawMessage `json:"pid"`
	Tid  json.RawMessage `json:"tid"`
	Args json.RawMessage `json:"args"`
}

// parse parses an event. The fast path handles the usual form; encoding/json parses
// everything else and reports errors.
func (e *jsonEvent) parse(b []byte) error {
	if e.fields(b) {
		return nil
	}
	*e = jsonEvent{}
	return json.Unmarshal(b, e)
}

func (e *jsonEvent) fields(b []byte) bool {
	if len(b) < 2 || b[0] != '{' {
		return false
	}
	i := 1
	space := func() byte {
		for ; i < len(b); i++ {
			switch b[i] {
			case ' ', '\t', '\r', '\n':
			default:
				return b[i]
			}
		}
		return 0
	}
	value := func() []byte {
		var s scan
		n, done := s.run(b[i:])
		if !done || n == 0 {
			return nil
		}
		i += n
		return b[i-n : i]
	}
	if space() == '}' {
		return i == len(b)-1
	}
	for {
		if space() != '"' {
			return false
		}
		key := value()
		if len(key) < 2 || space() != ':' {
			return false
		}
		i++
		space()
		val := value()
		if val == nil {
			return false
		}
		ok := true
		switch string(key[1 : len(key)-1]) {
		case "ph":
			e.Ph, ok = plainText(val)
		case "name":
			e.Name, ok = plainText(val)
		case "ts":
			e.Ts = val
		case "dur":
			e.Dur = val
		case "pid":
			e.Pid = val
		case "tid":
			e.Tid = val
		case "args":
			e.Args = val
		}
		if !ok {
			return false
		}
		switch space() {
		case ',':
			i++
		case '}':
			return i == len(b)-1
		default:
			return false
		}
	}
}

// plainText returns a JSON string that needs no unescaping.
func plainText(b []byte) (string, bool) {
	if len(b) < 2 || b[0] != '"' {
		return "", false
	}
	b = b[1 : len(b)-1]
	for _, c := range b {
		if c == '\\' || c < ' ' {
			return "", false
		}
	}
	return string(b), utf8.Valid(b)
}

// isWrongType reports whether an event is valid JSON with fields of the wrong type.
func isWrongType(err error) bool {
	var wrong *json.UnmarshalTypeError
	return errors.As(err, &wrong)
}
