package foreign

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/internal/limits"
)

// Limits of a profile. Its messages may compress a thousand to one, and expand again into
// tables.
const (
	maxProfile     = 256 << 20 // bytes uncompressed; kept in memory as a whole
	maxStrings     = 1 << 22
	maxFunctions   = 1 << 21
	maxLocations   = 1 << 22
	maxLines       = 1 << 23 // of all locations
	maxSamples     = 1 << 21
	maxFrames      = 1 << 25 // of all samples
	maxValues      = 64      // sample types
	profileStarts  = 1 << 20 // bytes allocated first
	perStackMemory = 64      // bytes of one sample without its frames
	perLocation    = 96      // bytes of one location or function
)

// pbProfile holds the parts of a profile that an import needs (github.com/google/pprof,
// proto/profile.proto). Messages may come in any order, so samples are read in a second
// pass.
type pbProfile struct {
	data      []byte
	mem       *limits.Budget
	strings   []pbText
	types     []valueType
	def       uint64 // default sample type, a string index
	functions map[uint64]uint64
	locations map[uint64]pbLocation
	lines     []uint64 // function IDs
}

type pbText struct{ from, to uint32 }

type valueType struct{ kind, unit uint64 }

// pbLocation is an address and its functions, innermost first.
type pbLocation struct {
	addr        uint64
	first, many uint32 // range in lines
}

// pbSample is one sample; its slices are valid until the next.
type pbSample struct {
	locations []uint64 // innermost first
	deep      bool     // the innermost locations were left out
	values    []int64
	labels    []pbLabel
}

type pbLabel struct {
	key, str uint64
	num      int64
}

var errMessage = errors.New("it is broken: a message does not end where it should")

// readProfile reads a profile and all of its tables.
func readProfile(r io.Reader, mem *limits.Budget) (*pbProfile, error) {
	data, err := readBounded(r, mem)
	if err != nil {
		return nil, err
	}
	if len(data) > 2 && data[0] == 0x1f && data[1] == 0x8b {
		return nil, errors.New("it is compressed twice")
	}
	p := &pbProfile{data: data, mem: mem, functions: map[uint64]uint64{}, locations: map[uint64]pbLocation{}}
	return p, p.each(p.table)
}

// readBounded reads all of r, which may be compressed.
func readBounded(r io.Reader, mem *limits.Budget) ([]byte, error) {
	head := make([]byte, 2)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	r = io.MultiReader(bytesReader(head[:n]), r)
	if n == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	}
	if err := mem.Take(profileStarts); err != nil {
		return nil, err
	}
	b := make([]byte, 0, profileStarts)
	for {
		if len(b) == cap(b) {
			if len(b) >= maxProfile {
				return nil, fmt.Errorf("it is longer than %d MiB", maxProfile>>20)
			}
			if err := mem.Take(2 * int64(cap(b))); err != nil {
				return nil, err
			}
			b = append(make([]byte, 0, 2*cap(b)), b...)
			mem.Give(int64(cap(b)) / 2)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

type byteReader []byte

func bytesReader(b []byte) *byteReader { return (*byteReader)(&b) }

func (r *byteReader) Read(b []byte) (int, error) {
	if len(*r) == 0 {
		return 0, io.EOF
	}
	n := copy(b, *r)
	*r = (*r)[n:]
	return n, nil
}

// each yields the messages and numbers of the profile.
func (p *pbProfile) each(yield func(n protowire.Number, body []byte, value uint64) error) error {
	return fields(p.data, func(n protowire.Number, body []byte, value uint64) error { return yield(n, body, value) })
}

// fields yields the fields of a message as bytes or a number.
func fields(b []byte, yield func(n protowire.Number, body []byte, value uint64) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errMessage
		}
		b = b[size:]
		var body []byte
		var value uint64
		switch kind {
		case protowire.VarintType:
			value, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			body, size = protowire.ConsumeBytes(b)
			if body == nil {
				body = []byte{}
			}
		default:
			if size = protowire.ConsumeFieldValue(n, kind, b); size >= 0 {
				b = b[size:]
				continue
			}
		}
		if size < 0 {
			return errMessage
		}
		b = b[size:]
		if err := yield(n, body, value); err != nil {
			return err
		}
	}
	return nil
}

// numbers yields the values of a repeated field, packed or not.
func numbers(body []byte, value uint64, yield func(uint64)) error {
	if body == nil {
		yield(value)
		return nil
	}
	for len(body) > 0 {
		v, size := protowire.ConsumeVarint(body)
		if size < 0 {
			return errMessage
		}
		yield(v)
		body = body[size:]
	}
	return nil
}

// Fields of the message Profile.
const (
	fieldSampleType    = 1
	fieldSample        = 2
	fieldLocation      = 4
	fieldFunction      = 5
	fieldString        = 6
	fieldDefaultSample = 14
)

// table parses one field that is not a sample.
func (p *pbProfile) table(n protowire.Number, body []byte, value uint64) error {
	switch {
	case n == fieldDefaultSample:
		p.def = value
	case body == nil:
	case n == fieldSampleType:
		if len(p.types) >= maxValues {
			return fmt.Errorf("it has more than %d sample types", maxValues)
		}
		var t valueType
		err := fields(body, func(n protowire.Number, _ []byte, v uint64) error {
			switch n {
			case 1:
				t.kind = v
			case 2:
				t.unit = v
			}
			return nil
		})
		p.types = append(p.types, t)
		return err
	case n == fieldString:
		if len(p.strings) >= maxStrings {
			return fmt.Errorf("it has more than %d strings", maxStrings)
		}
		// body is a subslice of data.
		to := cap(p.data) - cap(body) + len(body)
		p.strings = append(p.strings, pbText{uint32(to - len(body)), uint32(to)})
	case n == fieldFunction:
		var id, name uint64
		if err := fields(body, func(n protowire.Number, _ []byte, v uint64) error {
			switch n {
			case 1:
				id = v
			case 2:
				name = v
			}
			return nil
		}); err != nil {
			return err
		}
		if len(p.functions) >= maxFunctions {
			return fmt.Errorf("it has more than %d functions", maxFunctions)
		}
		if _, ok := p.functions[id]; ok || id == 0 {
			return fmt.Errorf("it is broken: function %d is there twice or has no number", id)
		}
		p.functions[id] = name
		return p.mem.Take(perLocation)
	case n == fieldLocation:
		return p.location(body)
	}
	return nil
}

func (p *pbProfile) location(body []byte) error {
	l := pbLocation{first: uint32(len(p.lines))}
	var id uint64
	err := fields(body, func(n protowire.Number, body []byte, v uint64) error {
		switch {
		case n == 1:
			id = v
		case n == 3:
			l.addr = v
		case n == 4 && body != nil:
			if len(p.lines) >= maxLines {
				return fmt.Errorf("it has more than %d lines", maxLines)
			}
			var fn uint64
			if err := fields(body, func(n protowire.Number, _ []byte, v uint64) error {
				if n == 1 {
					fn = v
				}
				return nil
			}); err != nil {
				return err
			}
			p.lines = append(p.lines, fn)
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.many = uint32(len(p.lines)) - l.first
	if len(p.locations) >= maxLocations {
		return fmt.Errorf("it has more than %d locations", maxLocations)
	}
	if _, ok := p.locations[id]; ok || id == 0 {
		return fmt.Errorf("it is broken: location %d is there twice or has no number", id)
	}
	p.locations[id] = l
	return p.mem.Take(perLocation)
}

// text returns a string of the profile's table, at most maxName bytes.
func (p *pbProfile) text(i uint64) string {
	if i >= uint64(len(p.strings)) {
		return ""
	}
	s := p.strings[i]
	return string(p.data[s.from:min(s.to, s.from+maxName)])
}

// samples yields the samples.
func (p *pbProfile) samples(yield func(*pbSample) error) error {
	var s pbSample
	n := 0
	return p.each(func(field protowire.Number, body []byte, _ uint64) error {
		if field != fieldSample || body == nil {
			return nil
		}
		if n++; n > maxSamples {
			return fmt.Errorf("it has more than %d samples", maxSamples)
		}
		s = pbSample{locations: s.locations[:0], values: s.values[:0], labels: s.labels[:0]}
		err := fields(body, func(n protowire.Number, body []byte, v uint64) error {
			switch n {
			case 1:
				return numbers(body, v, s.location)
			case 2:
				return numbers(body, v, func(v uint64) {
					if len(s.values) < maxValues {
						s.values = append(s.values, int64(v))
					}
				})
			case 3:
				return s.label(body)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if s.deep = len(s.locations) > maxDepth; s.deep {
			s.locations = s.locations[len(s.locations)-maxDepth:]
		}
		return yield(&s)
	})
}

// location adds a location. Beyond the limit it keeps the outermost ones, which come
// last.
func (s *pbSample) location(id uint64) {
	if len(s.locations) >= 2*maxDepth+1 {
		n := copy(s.locations, s.locations[maxDepth:])
		s.locations = s.locations[:n]
	}
	s.locations = append(s.locations, id)
}

// maxLabels limits how many labels of a sample are read.
const maxLabels = 64

func (s *pbSample) label(body []byte) error {
	if len(s.labels) >= maxLabels || body == nil {
		return nil
	}
	var l pbLabel
	err := fields(body, func(n protowire.Number, _ []byte, v uint64) error {
		switch n {
		case 1:
			l.key = v
		case 2:
			l.str = v
		case 3:
			l.num = int64(v)
		}
		return nil
	})
	s.labels = append(s.labels, l)
	return err
}
