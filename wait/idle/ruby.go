package idle

import (
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// rubyPooled reports whether a stack, from its innermost Ruby frame on, has the shape of a pool thread's in
// Ruby: it waits for an element of a queue, or for a condition, in the blocks of its thread. A thread that
// is not the main one begins with a block.
func rubyPooled(frames []Frame) bool {
	var names []string // methods without classes, innermost first
	for i := range frames {
		switch k := frames[i].Kind; {
		case k == stack.KindError:
			return false
		case k == frames[0].Kind:
			names = append(names, rubyMethod(frames[i].Name))
		}
	}
	n := 1
	switch names[0] {
	case "pop", "shift", "deq":
	case "sleep": // of a Mutex, in ConditionVariable#wait
		if n < len(names) && names[n] != "wait" {
			return false
		}
		for n < len(names) && rubyWaits[names[n]] {
			n++
		}
	default:
		return false
	}
	if n >= len(names) || !strings.HasPrefix(names[len(names)-1], "block ") {
		return false
	}
	for _, name := range names[n : len(names)-1] {
		if !strings.HasPrefix(name, "block ") && !rubyGlue[name] && !takes(Frame{Name: name}) {
			return false
		}
	}
	return true
}

// rubyWaits are methods of ConditionVariable and Monitor, and rubyGlue those that only call a block.
var (
	rubyWaits = map[string]bool{"wait": true, "wait_for_cond": true, "wait_while": true, "wait_until": true}
	rubyGlue  = map[string]bool{"loop": true, "catch": true, "synchronize": true, "mon_synchronize": true, "each": true, "times": true}
)

// rubyMethod returns a method's name without its class, which labels have from 3.4 on: "Thread::Queue#pop".
func rubyMethod(label string) string {
	if strings.HasPrefix(label, "block ") {
		return label
	}
	return label[strings.LastIndexAny(label, "#.")+1:]
}
