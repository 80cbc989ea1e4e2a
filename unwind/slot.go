package unwind

// A Slot is the place of one language's T in every Thread, and another one in every Walker. The language
// declares it as a package variable; the zero value is ready to use. Values are made by the first
// access and belong to the goroutine that uses the Thread or Walker.
type Slot[T any] struct {
	_ byte // each Slot has an address of its own
}

// slots are the values of a Thread or a Walker.
type slots []slot

type slot struct {
	key   any // *Slot[T]
	value any // *T
}

// Of returns the language's T of a thread.
func (s *Slot[T]) Of(th *Thread) *T { return in(s, &th.slots) }

// In returns the language's T of a walker.
func (s *Slot[T]) In(w *Walker) *T { return in(s, &w.slots) }

func in[T any](s *Slot[T], of *slots) *T {
	for i := range *of {
		if x := &(*of)[i]; x.key == any(s) {
			return x.value.(*T)
		}
	}
	v := new(T)
	*of = append(*of, slot{s, v})
	return v
}
