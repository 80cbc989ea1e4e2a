package stack

// Links is a list in a runtime's memory, of the frames of one thread, innermost first. The kernel can follow it
// when it copies the thread's stack, so that the places of the frames need no prediction.
type Links struct {
	Head  Span   // the thread's state in the runtime, which is copied too; Addr 0: found by Root
	Root  uint64 // address of a pointer to the runtime's state, which at Step has the pointer to the state of its only thread
	Step  int
	First int // offset in Head of the pointer to the first frame, or to Via
	Via   int // offset of that pointer in what First points to, plus 1; 0: First is the pointer itself
	Next  int // offset in a frame of the pointer to the next one; the last frame has 0
	Len   int // bytes of a frame

	// A frame's object is what it runs. It may be freed before it is read otherwise, so the kernel copies it with the frame.
	Object    int            // offset in a frame of the pointer to it, of which the lowest three bits do not count, plus 1; 0: none
	ObjectLen int            // bytes of an object
	Key       int            // offset in it of a word that differs in another object at the same address
	Texts     [LinkTexts]int // offsets in it of pointers to its texts, plus 1; 0: none
}

// LinkTexts is the most texts of an object of Links, MaxLinks the most frames that are copied with a clock's copy of the stack.
const (
	LinkTexts = 3
	MaxLinks  = 192
)
