package leak

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hprof"
)

// The conditions by which an object's life is over are those of LeakCanary's inspectors
// (AndroidObjectInspectors and KeyedWeakReferenceFinder of Shark, commit 0f7dbab), beside
// KOOM's thresholds for large objects. koom.go has KOOM's own report.

// An inspector says why an object of a class should be gone, "" if it may live.
type inspector struct {
	class string
	over  func(a *android, o graph.Object) string
}

var inspectors = []inspector{
	{"android.app.Activity", func(a *android, o graph.Object) string {
		return a.when(o, "android.app.Activity", "mDestroyed", "the activity was destroyed (Activity.mDestroyed)")
	}},
	{"android.app.Fragment", func(a *android, o graph.Object) string { return a.noManager(o, "android.app.Fragment") }},
	{"android.support.v4.app.Fragment", func(a *android, o graph.Object) string {
		return a.noManager(o, "android.support.v4.app.Fragment")
	}},
	{"androidx.fragment.app.Fragment", (*android).fragmentX},
	{"android.view.View", (*android).view},
	{"android.widget.Editor", func(a *android, o graph.Object) string {
		if v := a.follow(o, "mTextView"); v != 0 {
			return a.view(v)
		}
		return ""
	}},
	{"android.app.Service", func(a *android, o graph.Object) string {
		if a.services == nil || a.services[o] {
			return ""
		}
		return "the service is not among those of ActivityThread.mServices"
	}},
	{"android.content.ContextWrapper", func(a *android, o graph.Object) string {
		if c := a.activity(o); c != o && a.isTrue(c, "android.app.Activity", "mDestroyed") {
			return "it wraps an activity that was destroyed"
		}
		return ""
	}},
	{"android.app.ContextImpl", func(a *android, o graph.Object) string {
		if c := a.follow(o, "mOuterContext"); a.isTrue(c, "android.app.Activity", "mDestroyed") {
			return "its outer context is an activity that was destroyed"
		}
		return ""
	}},
	{"android.app.ApplicationPackageManager", func(a *android, o graph.Object) string {
		if c := a.follow(o, "mContext", "mOuterContext"); a.isTrue(c, "android.app.Activity", "mDestroyed") {
			return "its context is an activity that was destroyed"
		}
		return ""
	}},
	{"android.os.MessageQueue", func(a *android, o graph.Object) string {
		if a.isTrue(o, "android.os.MessageQueue", "mQuitting") || a.isTrue(o, "android.os.MessageQueue", "mQuiting") {
			return "the queue has quit (MessageQueue.mQuitting)"
		}
		return ""
	}},
	{"android.view.ViewRootImpl", func(a *android, o graph.Object) string {
		if a.isNull(o, "mView") {
			return "the window has no view any more (ViewRootImpl.mView is null)"
		}
		if c := a.activity(a.follow(o, "mContext")); a.isTrue(c, "android.app.Activity", "mDestroyed") {
			return "its context is an activity that was destroyed: a toast or dialog that was not dismissed"
		}
		return ""
	}},
	{"android.view.Window", func(a *android, o graph.Object) string {
		return a.when(o, "android.view.Window", "mDestroyed", "the window was destroyed (Window.mDestroyed)")
	}},
	{"android.widget.Toast", func(a *android, o graph.Object) string {
		if tn := a.follow(o, "mTN"); tn != 0 && !a.isNull(tn, "mWM") && a.isNull(tn, "mView") {
			return "the toast was shown and is over (Toast.mTN.mView is null)"
		}
		return ""
	}},
	{"androidx.compose.runtime.CompositionImpl", func(a *android, o graph.Object) string {
		if a.isTrue(o, "androidx.compose.runtime.CompositionImpl", "disposed") {
			return "the composition was disposed"
		}
		if v, ok := a.g.Field(o, "state"); ok && v.Type == hprof.TypeInt && v.Bits == 3 {
			return "the composition was disposed"
		}
		return ""
	}},
	{"androidx.compose.runtime.Recomposer", func(a *android, o graph.Object) string {
		name, _ := a.g.Text(a.follow(o, "_state", "_state", "name"), 40)
		if name == "ShutDown" || name == "ShuttingDown" {
			return "the recomposer is " + name
		}
		return ""
	}},
	{"mortar.MortarScope", func(a *android, o graph.Object) string {
		return a.when(o, "mortar.MortarScope", "dead", "the scope is dead (MortarScope.dead)")
	}},
}

// android is a look at an Android dump.
type android struct {
	g        *graph.Graph
	services map[graph.Object]bool // that are alive; nil: not known
}

func (a *android) follow(o graph.Object, names ...string) graph.Object {
	if o == 0 {
		return 0
	}
	return a.g.Follow(o, names...)
}

// isTrue reports whether a boolean that a class declares is set.
func (a *android) isTrue(o graph.Object, class, field string) bool {
	if o == 0 || a.g.Kind(o) != graph.KindInstance {
		return false
	}
	s, ok := a.g.Slot(a.g.Class(o), class, field)
	if !ok {
		return false
	}
	v, ok := a.g.At(o, s)
	return ok && v.Type == hprof.TypeBoolean && v.Bits != 0
}

func (a *android) when(o graph.Object, class, field, reason string) string {
	if a.isTrue(o, class, field) {
		return reason
	}
	return ""
}

// isNull reports whether an object has a reference of the name, and it is null.
func (a *android) isNull(o graph.Object, field string) bool {
	v, ok := a.g.Field(o, field)
	return ok && v.Type == hprof.TypeObject && v.Bits == 0
}

func (a *android) noManager(o graph.Object, class string) string {
	s, ok := a.g.Slot(a.g.Class(o), class, "mFragmentManager")
	if !ok {
		return ""
	}
	if v, ok := a.g.At(o, s); !ok || v.Bits != 0 {
		return ""
	}
	// A fragment that was never added also has no manager; its mCalled is false.
	if s, ok := a.g.Slot(a.g.Class(o), class, "mCalled"); ok {
		if v, ok := a.g.At(o, s); ok && v.Bits == 0 {
			return ""
		}
	}
	return "the fragment is over (Fragment.mFragmentManager is null)"
}

// fragmentX asks the life cycle of a fragment of AndroidX, which says more than its
// manager.
func (a *android) fragmentX(o graph.Object) string {
	registry := a.follow(o, "mLifecycleRegistry")
	state := a.follow(registry, "state")
	if state == 0 {
		state = a.follow(registry, "mState")
	}
	if name, ok := a.g.Text(a.follow(state, "name"), 40); ok {
		if name == "DESTROYED" {
			return "the fragment is over (its life cycle is DESTROYED)"
		}
		return ""
	}
	return a.noManager(o, "androidx.fragment.app.Fragment")
}

// maxWrapped bounds chains of contexts.
const maxWrapped = 100

// activity returns the activity that a context is or wraps, 0 if it has none.
func (a *android) activity(o graph.Object) graph.Object {
	for range maxWrapped {
		if o == 0 || a.g.Kind(o) != graph.KindInstance {
			return 0
		}
		c := a.g.Class(o)
		switch {
		case c.Is("android.app.Activity"):
			return o
		case c.Is("android.app.Application"):
			return 0
		case c.Name == "com.android.internal.policy.DecorContext":
			if w := a.follow(o, "mPhoneWindow", "mContext"); w != 0 {
				o = w
				continue
			}
		}
		o = a.follow(o, "mBase")
	}
	return 0
}

// view checks the root of a view hierarchy: the views below it leak with it.
func (a *android) view(o graph.Object) string {
	parent := a.follow(o, "mParent")
	inRoot := parent != 0 && !a.g.Class(parent).Is("android.view.View")
	if parent != 0 && !inRoot {
		return ""
	}
	if c := a.activity(a.follow(o, "mContext")); a.isTrue(c, "android.app.Activity", "mDestroyed") {
		return "its context is an activity that was destroyed"
	}
	attached, _ := a.g.Field(o, "mWindowAttachCount")
	if a.isNull(o, "mAttachInfo") && int32(attached.Bits) > 0 &&
		(inRoot || a.g.Class(o).Name == "com.android.internal.policy.DecorView") {
		return "it was shown and is detached (View.mAttachInfo is null)"
	}
	return ""
}

// findServices reads which services ActivityThread has.
func (a *android) findServices() {
	class := a.g.ClassByName("android.app.ActivityThread")
	if class == nil {
		return
	}
	v, _ := a.g.Static(class, "sCurrentActivityThread")
	array := a.follow(a.g.Find(v.Bits), "mServices", "mArray")
	if v.Bits == 0 || array == 0 {
		return
	}
	a.services = map[graph.Object]bool{}
	a.g.Elements(array, 1<<16, func(_ int, v graph.Value) bool {
		if o := a.g.Find(v.Bits); o != 0 && v.Bits != 0 {
			a.services[o] = true
		}
		return true
	})
}

// watched returns the objects that LeakCanary's watcher had found to be retained.
func (a *android) watched() map[graph.Object]bool {
	found := map[graph.Object]bool{}
	for _, name := range [...]string{"leakcanary.KeyedWeakReference", "com.squareup.leakcanary.KeyedWeakReference"} {
		class := a.g.ClassByName(name)
		if class == nil {
			continue
		}
		at, timed := a.g.Slot(class, "", "retainedUptimeMillis")
		for o := graph.Object(1); int(o) <= a.g.Len(); o++ {
			if a.g.Kind(o) != graph.KindInstance || a.g.Class(o) != class {
				continue
			}
			if v, ok := a.g.At(o, at); timed && (!ok || int64(v.Bits) == -1) {
				continue // watched, and perhaps not for long
			}
			if v, ok := a.g.Field(o, "referent"); ok && v.Bits != 0 {
				if t := a.g.Find(v.Bits); t != 0 {
					found[t] = true
				}
			}
		}
	}
	return found
}

// device returns the API level and the maker of a dump's device, 0 and "" if it does not
// say.
func (a *android) device() (sdk int, maker string) {
	v, _ := a.g.Static(a.g.ClassByName("android.os.Build$VERSION"), "SDK_INT")
	return int(int32(v.Bits)), a.text("android.os.Build", "MANUFACTURER")
}

// text returns a static field that is a string.
func (a *android) text(class, field string) string {
	v, _ := a.g.Static(a.g.ClassByName(class), field)
	if v.Bits == 0 {
		return ""
	}
	s, _ := a.g.Text(a.g.Find(v.Bits), 100)
	return s
}

// known returns the fields of known leaks that apply to a dump's device, by class and
// field, and the classes of JNI globals.
func (a *android) known() (fields, globals map[string]string) {
	sdk, maker := a.device()
	fields, globals = map[string]string{}, map[string]string{}
	for _, l := range libraryLeaks {
		if sdk < l.from || l.to != 0 && sdk > l.to || l.maker != "" && !strings.EqualFold(l.maker, maker) {
			continue
		}
		if l.field == "" {
			globals[l.class] = l.class
		} else {
			fields[l.class+"."+l.field] = l.class + "." + l.field
		}
	}
	return fields, globals
}

// android adds objects whose life is over and large objects, with one finding for all
// that share a path.
func (s *search) android() error {
	if !s.report.Android {
		return nil
	}
	l := newAndroidLeaks(s)
	for _, n := range s.g.FileOrder() {
		if o := graph.Object(n); s.g.Strength(o) == graph.Strong {
			l.inspect(o)
		}
	}
	if len(l.objects) == 0 {
		return s.ctx.Err()
	}
	f := newFinder(s.ctx, s.g)
	f.whole = true
	groups := f.groups(l.objects)
	slices.SortStableFunc(groups, func(x, y *trace) int {
		return strings.Compare(l.kinds[x.object], l.kinds[y.object]) // finished objects before large ones
	})
	for _, t := range groups[:min(len(groups), maxFindings)] {
		bytes := int64(0)
		for _, o := range t.objects {
			bytes += s.retained(o)
		}
		s.add(Finding{Kind: l.kinds[t.object], Class: s.g.Class(t.object).Name, Object: hex(s.g.ID(t.object)), Count: t.count, Bytes: bytes,
			Title:     fmt.Sprintf("%s: %s keeps %s", l.reasons[t.object], Name(s.g, t.object), Bytes(bytes)),
			Path:      f.path(t),
			Library:   t.library,
			Signature: t.signature, object: t.object})
	}
	return s.ctx.Err()
}

// androidLeaks collects objects that should not be there, and why.
type androidLeaks struct {
	android
	koom       koomSearch
	inspectors map[*graph.Class][]*inspector
	watched    map[graph.Object]bool // by LeakCanary
	bitmap     *graph.Class          // nil: the dump has none

	objects []graph.Object // in the order of the file
	kinds   map[graph.Object]string
	reasons map[graph.Object]string
}

func newAndroidLeaks(s *search) *androidLeaks {
	l := &androidLeaks{android: android{g: s.g}, koom: koomSearch{g: s.g, ctx: s.ctx}, inspectors: map[*graph.Class][]*inspector{},
		bitmap: s.g.ClassByName("android.graphics.Bitmap"), kinds: map[graph.Object]string{}, reasons: map[graph.Object]string{}}
	l.findServices()
	l.watched = l.android.watched()
	for _, c := range s.g.Classes() {
		if c.Count == 0 {
			continue
		}
		for i := range inspectors {
			if c.Is(inspectors[i].class) {
				l.inspectors[c] = append(l.inspectors[c], &inspectors[i])
			}
		}
	}
	return l
}

// add adds an object; only the first reason counts.
func (l *androidLeaks) add(o graph.Object, kind, reason string) {
	if l.reasons[o] == "" {
		l.objects = append(l.objects, o)
		l.kinds[o], l.reasons[o] = kind, reason
	}
}

// inspect adds the object if its life is over or if it is large.
func (l *androidLeaks) inspect(o graph.Object) {
	switch l.g.Kind(o) {
	case graph.KindInstance:
		l.instance(o, l.g.Class(o))
	case graph.KindObjectArray, graph.KindPrimitiveArray:
		if n := l.g.Length(o); n >= koomArray {
			l.add(o, KindLarge, fmt.Sprintf("an array of %d elements", n))
		}
	}
}

func (l *androidLeaks) instance(o graph.Object, c *graph.Class) {
	for _, i := range l.inspectors[c] {
		if r := i.over(&l.android, o); r != "" {
			l.add(o, KindInspector, r)
			break
		}
	}
	if l.watched[o] {
		l.add(o, KindInspector, "LeakCanary watched it, and it was not collected")
	}
	if l.bitmap != nil && c.Is(l.bitmap.Name) {
		if w, h := l.koom.pixels(o); int64(w)*int64(h) >= koomBitmap {
			l.add(o, KindLarge, fmt.Sprintf("a bitmap of %d × %d pixels", w, h))
		}
	}
}

// path returns a trace as the steps of a report.
func (f *finder) path(t *trace) (steps []Step) {
	g := f.g
	ref, static := t.root.String(), false
	for _, st := range t.steps {
		steps = append(steps, Step{Ref: ref, Static: static, Class: Name(g, st.object), Object: hex(g.ID(st.object)), Retained: max(g.Retained(st.object), 0)})
		ref, static = st.owner+"."+st.name, st.kind == refStatic
		if st.kind == refElement {
			ref = st.name
		}
	}
	return append(steps, Step{Ref: ref, Static: static, Class: Name(g, t.object), Object: hex(g.ID(t.object)), Retained: max(g.Retained(t.object), 0)})
}
