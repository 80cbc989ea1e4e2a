package main

// frame is one function that a node runs through.
type frame struct {
	name  string
	outer bool // has separate times, in rec.outer
}

func inner(names ...string) (f []frame) {
	for _, n := range names {
		f = append(f, frame{name: n})
	}
	return append(f, frame{name: "main.(*run).body"})
}

// shapes are the frames of each function, outermost first.
var shapes = [funcs + 1][]frame{
	inner("main.alpha"),
	inner("main.beta", "main.beta.func1"),
	inner("main.gamma", "main.gammaPanics"),
	inner("main.delta", "main.(*circle).draw"),
	inner("main.epsilon", "main.square.draw"),
	zetaShape,
	inner("main.eta", "main.etaOf[go.shape.int]"),
	inner("main.theta", "main.(*box[go.shape.string]).call"),
	inner("main.root"),
}

//go:noinline
func alpha(r *run, i int) { r.body(i, r.script.nodes[i].pre) }

//go:noinline
func beta(r *run, i int) {
	outer := r.hold
	r.hold = func(i int) { r.body(i, r.script.nodes[i].pre) }
	r.hold(i)
	r.hold = outer
}

// gamma's callee panics when it is done.
//
//go:noinline
func gamma(r *run, i int) {
	defer func() {
		if recover() == nil {
			panic("gamma: no panic to recover from")
		}
	}()
	gammaPanics(r, i)
}

//go:noinline
func gammaPanics(r *run, i int) {
	defer func() { r.hold = nil }()
	r.body(i, r.script.nodes[i].pre)
	panic(i)
}

type shape interface{ draw(r *run, i int) }

type circle struct{}

//go:noinline
func (*circle) draw(r *run, i int) { r.body(i, r.script.nodes[i].pre) }

type square struct{ side int }

// draw of a value: calls through the interface use a compiler-generated wrapper.
//
//go:noinline
func (s square) draw(r *run, i int) {
	if s.side != 4 {
		panic("epsilon: not its square")
	}
	r.body(i, r.script.nodes[i].pre)
}

//go:noinline
func choose(round bool) shape {
	if round {
		return &circle{}
	}
	return &square{4}
}

//go:noinline
func delta(r *run, i int) { choose(true).draw(r, i) }

//go:noinline
func epsilon(r *run, i int) { choose(false).draw(r, i) }

// Plain functions call the generic ones, whose own address would be that of a wrapper of
// the same name.
//
//go:noinline
func eta(r *run, i int) { etaOf[int](r, i) }

//go:noinline
func etaOf[T any](r *run, i int) {
	var zero T
	sink(&zero)
	r.body(i, r.script.nodes[i].pre)
}

//go:noinline
func sink(any) {}

//go:noinline
func theta(r *run, i int) { (&box[string]{}).call(r, i) }

type box[T any] struct{ value T }

//go:noinline
func (b *box[T]) call(r *run, i int) {
	sink(&b.value)
	r.body(i, r.script.nodes[i].pre)
}

//go:noinline
func root(r *run, i int) { r.body(i, 0) }
