package analysis

import (
	"slices"

	"github.com/sliverprof/sliver/export/view"
)

// maxNotes limits the notes of several processes.
const maxNotes = 200

// Notes describes what a recording lacks, one line each, for the page: of several processes first the sums and the
// processes that are left out, then what each process lacks, with its name.
func Notes(views []*view.View) []string {
	if len(views) == 1 {
		return own(views[0])
	}
	out := view.Losses(views)
	for _, v := range views {
		lines := own(v)
		for _, l := range v.Rec.Left.Lines() { // out has them
			lines = slices.DeleteFunc(lines, func(x string) bool { return x == view.Text(l, 300) })
		}
		for _, l := range lines {
			if len(out) >= maxNotes {
				return out
			}
			if named := v.Process() + ": " + l; !slices.Contains(out, named) {
				out = append(out, named)
			}
		}
	}
	return out
}

// own are the notes of one process. The head of the page has the number of ticks and events that are lost.
func own(v *view.View) []string {
	out := v.NotableLosses()
	if v.Rec.Symbols == nil {
		out = append(out, "the recording holds no names: functions are shown as module+offset")
	}
	return out
}
