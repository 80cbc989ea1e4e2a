package leak

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/heap/graph"
)

// KOOM's rules and report, of https://github.com/KwaiAppTeam/KOOM: version 1 is that of
// tag v1.1.0 (java-oom: SuspicionLeaksFinder, the detectors and HeapAnalyzeReporter),
// version 2 that of commit f653d7c (koom-java-leak: HeapAnalysisService, HeapReport).
const (
	koomPaths      = 45         // paths of a class
	koomArray      = 256 * 1024 // version 1: elements; version 2: bytes of the record
	koomBitmap     = 768 * 1366 // pixels; version 2 wants one more
	koomLowBits    = 1<<32 - 1  // of an ID in version 2
	koomMaxObjects = 1 << 20    // objects whose paths are wanted
)

// KOOM is KOOM's report of a version. Fields of runningInfo that are not known are omitted,
// as its encoder, Gson, omits null fields.
type KOOM struct {
	version int
	classes []koomClass
	paths   []koomPath
	objects []koomObject

	running            *Running // nil: only the dump is known
	sdk, threads       int
	maker, model, time string
	filter, search     time.Duration
}

// seconds writes a time as KOOM does.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 32) }

type koomClass struct {
	name       string
	all, leaks int
}

type koomPath struct {
	root, reason, signature string
	instances               int
	path                    []koomItem
}

type koomItem struct{ reference, kind, declared string }

type koomObject struct {
	class  string
	size   int64
	id     uint64
	detail string
}

// koomSearch is one run of KOOM's rules.
type koomSearch struct {
	g       *graph.Graph
	ctx     context.Context
	report  *KOOM
	leaking []graph.Object // in the order in which they were found
	reasons map[graph.Object]string
}

// FindKOOM makes KOOM's report. It needs a level that has objects.
func FindKOOM(ctx context.Context, g *graph.Graph, version int) (*KOOM, error) {
	if g.Level() == graph.LevelHistogram {
		return nil, fmt.Errorf("KOOM's report needs more --memory: the histogram alone knows no objects")
	}
	s := &koomSearch{g: g, ctx: ctx, report: &KOOM{version: version}, reasons: map[graph.Object]string{}}
	a := &android{g: g}
	s.report.sdk, s.report.maker = a.device()
	s.report.model = a.text("android.os.Build", "MODEL")
	s.report.threads = len(g.Threads())
	s.report.time = koomNow(g.Header().Time.UTC(), version)
	var err error
	begin := time.Now()
	if version == 1 {
		err = s.findV1()
	} else {
		err = s.findV2()
	}
	if err != nil {
		return nil, err
	}
	if len(s.leaking) > koomMaxObjects {
		return nil, fmt.Errorf("%d objects are above KOOM's thresholds: at most %d are supported", len(s.leaking), koomMaxObjects)
	}
	s.report.filter, begin = time.Since(begin), time.Now()
	finder := newFinder(ctx, g)
	for _, t := range finder.groups(s.leaking) {
		p := koomPath{root: koomRoots[t.root], signature: t.signature, instances: t.count}
		p.reason = s.reasons[t.object]
		if p.reason == "" { // object arrays of version 2 have none, which Kotlin writes so
			p.reason = "null"
		}
		if t.library != "" && version == 1 {
			p.reason += " This is the leaking object"
		}
		for _, st := range t.steps {
			reference := st.class + "." + st.name
			if st.kind == refElement {
				reference = st.class
			} else if st.kind == refLocal {
				reference = st.class + ".<Java Local>"
			}
			p.path = append(p.path, koomItem{reference, refKinds[st.kind], st.owner})
		}
		kind := map[graph.Kind]string{graph.KindInstance: "instance", graph.KindClass: "class"}[g.Kind(t.object)]
		if kind == "" {
			kind = "array"
		}
		p.path = append(p.path, koomItem{g.Class(t.object).Name, kind, ""})
		s.report.paths = append(s.report.paths, p)
		if t.library != "" && version == 2 {
			break // its loop over library leaks ends after the first
		}
	}
	s.report.search = time.Since(begin)
	return s.report, nil
}

// koomRoots are Shark's descriptions of roots.
var koomRoots = map[graph.RootKind]string{
	graph.RootJNIGlobal: "Global variable in native code", graph.RootJNILocal: "Local variable in native code",
	graph.RootJavaFrame: "Java local variable", graph.RootNativeStack: "Input or output parameters in native code",
	graph.RootStickyClass: "System class", graph.RootThreadBlock: "Thread block", graph.RootThread: "Thread object",
	graph.RootMonitor:    "Monitor (anything that called the wait() or notify() methods, or that is synchronized.)",
	graph.RootJNIMonitor: "Root JNI monitor",
}

func (s *koomSearch) leak(o graph.Object, reason string) {
	s.leaking = append(s.leaking, o)
	if reason != "" {
		s.reasons[o] = reason
	}
}

// flag returns a boolean or int field that a class declares.
func (s *koomSearch) field(o graph.Object, class, name string) (graph.Value, bool) {
	slot, ok := s.g.Slot(s.g.Class(o), class, name)
	if !ok {
		return graph.Value{}, false
	}
	return s.g.At(o, slot)
}

// each calls f with all objects of a kind, in the order of the file as KOOM sees them.
func (s *koomSearch) each(want func(graph.Kind) bool, f func(graph.Object)) error {
	for i, o := range s.g.FileOrder() {
		if i&0xfffff == 0 && s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if want(s.g.Kind(graph.Object(o))) {
			f(graph.Object(o))
		}
	}
	return nil
}

func isInstance(k graph.Kind) bool       { return k == graph.KindInstance }
func isPrimitiveArray(k graph.Kind) bool { return k == graph.KindPrimitiveArray }
func isObjectArray(k graph.Kind) bool    { return k == graph.KindObjectArray }

// ancestor returns the class that has n superclasses among those of c: 1 is what extends
// java.lang.Object.
func ancestor(c *graph.Class, n int) *graph.Class {
	var chain []*graph.Class
	for k := range c.Supers {
		chain = append(chain, k)
	}
	if i := len(chain) - 1 - n; i >= 0 {
		return chain[i]
	}
	return nil
}

var fragments = [...]string{"androidx.fragment.app.Fragment", "android.app.Fragment", "android.support.v4.app.Fragment"}

func (s *koomSearch) fragment() *graph.Class {
	for _, name := range fragments {
		if c := s.g.ClassByName(name); c != nil {
			return c
		}
	}
	return nil
}

// destroyed reports whether an activity is finished or destroyed.
func (s *koomSearch) destroyed(o graph.Object) bool {
	const activity = "android.app.Activity"
	d, _ := s.field(o, activity, "mDestroyed")
	f, _ := s.field(o, activity, "mFinished")
	return d.Bits != 0 || f.Bits != 0
}

// detached reports whether a fragment has no manager, and whether its life is over.
func (s *koomSearch) detached(o graph.Object, class string) (without, leak bool) {
	m, ok := s.field(o, class, "mFragmentManager")
	if !ok || m.Bits != 0 {
		return false, false
	}
	c, _ := s.field(o, class, "mCalled")
	return true, c.Bits != 0
}

func (s *koomSearch) pixels(o graph.Object) (w, h int32) {
	a, _ := s.field(o, "android.graphics.Bitmap", "mWidth")
	b, _ := s.field(o, "android.graphics.Bitmap", "mHeight")
	return int32(a.Bits), int32(b.Bits)
}

func (s *koomSearch) findV1() error {
	g := s.g
	type detector struct {
		koomClass
		class      *graph.Class
		generation int
		leaks      func(o graph.Object) bool
		reason     string
	}
	detect := func(name string, generation int, reason string, leaks func(o graph.Object) bool) *detector {
		return &detector{koomClass{name: name}, g.ClassByName(name), generation, leaks, reason}
	}
	never := func(graph.Object) bool { return false }
	fragment := s.fragment()
	name := fragments[0]
	if fragment != nil {
		name = fragment.Name
	}
	all := []*detector{
		detect("android.app.Activity", 4, "Activity Leak", s.destroyed),
		detect(name, 1, "Fragment Leak", func(o graph.Object) bool { _, leak := s.detached(o, name); return leak }),
		detect("android.graphics.Bitmap", 1, "Bitmap Size", func(o graph.Object) bool {
			w, h := s.pixels(o)
			return w*h >= koomBitmap
		}),
		detect("libcore.util.NativeAllocationRegistry", 1, "NativeAllocation", never),
		detect("android.view.Window", 1, "Window", never),
	}
	err := s.each(isInstance, func(o graph.Object) {
		c := g.Class(o)
		if wrappers[c.Name] {
			return
		}
		for _, d := range all {
			if d.class == nil || ancestor(c, d.generation) != d.class {
				continue
			}
			d.koomClass.all++
			if d.leaks(o) {
				d.koomClass.leaks++
				if d.koomClass.leaks <= koomPaths {
					s.leak(o, d.reason)
				}
			}
		}
	})
	if err != nil {
		return err
	}
	for _, d := range all {
		s.report.classes = append(s.report.classes, d.koomClass)
	}
	if err := s.each(isPrimitiveArray, func(o graph.Object) {
		if n := g.Length(o); n >= koomArray {
			s.leak(o, fmt.Sprintf("primitive array size over threshold:%d,%dKB", n, n/1024))
		}
	}); err != nil {
		return err
	}
	return s.each(isObjectArray, func(o graph.Object) {
		if n := g.Length(o); n >= koomArray {
			s.leak(o, fmt.Sprintf("object array size over threshold:%d", n))
		}
	})
}

func (s *koomSearch) findV2() error {
	g := s.g
	count := map[*graph.Class]int{} // place in report.classes
	counter := func(c *graph.Class, leak bool) int {
		i, ok := count[c]
		if !ok {
			i = len(s.report.classes)
			count[c] = i
			s.report.classes = append(s.report.classes, koomClass{name: c.Name})
		}
		s.report.classes[i].all++
		if leak {
			s.report.classes[i].leaks++
		}
		return s.report.classes[i].leaks
	}
	activity, bitmap := g.ClassByName("android.app.Activity"), g.ClassByName("android.graphics.Bitmap")
	fragment := s.fragment()
	counted := map[*graph.Class]bool{}
	for _, name := range [...]string{"libcore.util.NativeAllocationRegistry", "libcore.util.NativeAllocationRegistry$CleanerThunk", "android.view.Window"} {
		if c := g.ClassByName(name); c != nil {
			counted[c] = true
		}
	}
	err := s.each(isInstance, func(o graph.Object) {
		c := g.Class(o)
		if wrappers[c.Name] {
			return
		}
		first, fourth := ancestor(c, 1), ancestor(c, 4)
		switch {
		case activity != nil && fourth == activity:
			if s.destroyed(o) && counter(c, true) <= koomPaths {
				s.leak(o, "Activity Leak")
			}
		case fragment != nil && first == fragment:
			if without, leak := s.detached(o, fragment.Name); without && counter(c, leak) <= koomPaths && leak {
				s.leak(o, "Fragment Leak")
			}
		case bitmap != nil && first == bitmap:
			w, h := s.pixels(o)
			if w*h >= koomBitmap+1 && counter(c, true) <= koomPaths {
				s.leak(o, fmt.Sprintf("Bitmap Size Over Threshold, %dx%d", w, h))
				s.report.objects = append(s.report.objects, koomObject{c.Name, int64(w * h), g.ID(o) & koomLowBits, fmt.Sprintf("%d x %d", w, h)})
			}
		case first != nil && counted[first]:
			counter(c, false)
		}
	})
	if err != nil {
		return err
	}
	ids := g.Header().IDSize
	if err := s.each(isPrimitiveArray, func(o graph.Object) {
		if n := ids + 9 + g.Length(o)*g.Class(o).Element().Size(ids); n >= koomArray {
			s.leak(o, fmt.Sprintf("Primitive Array Size Over Threshold, %d", n))
			s.report.objects = append(s.report.objects, koomObject{g.Class(o).Name, int64(n), g.ID(o) & koomLowBits, ""})
		}
	}); err != nil {
		return err
	}
	return s.each(isObjectArray, func(o graph.Object) {
		if n := 2*ids + 8 + g.Length(o)*ids; n >= koomArray {
			s.leak(o, "")
			s.report.objects = append(s.report.objects, koomObject{g.Class(o).Name, int64(n), g.ID(o) & koomLowBits, ""})
		}
	})
}

// Of adds the running information of the process.
func (k *KOOM) Of(r *Running) { k.running = r }

// WriteJSON writes the report with the field names, order and types that KOOM's has.
func (k *KOOM) WriteJSON(w io.Writer) error {
	type item struct {
		Reference     string `json:"reference"`
		ReferenceType string `json:"referenceType"`
		DeclaredClass string `json:"declaredClass,omitempty"`
	}
	type gcPath struct {
		InstanceCount int    `json:"instanceCount"`
		LeakReason    string `json:"leakReason"`
		GCRoot        string `json:"gcRoot"`
		Signature     string `json:"signature"`
		Path          []item `json:"path"`
	}
	type info struct {
		ClassName         string `json:"className"`
		InstanceCount     any    `json:"instanceCount"`
		LeakInstanceCount any    `json:"leakInstanceCount,omitempty"`
	}
	type object struct {
		ClassName string `json:"className"`
		Size      string `json:"size"`
		ObjectID  string `json:"objectId"`
		ExtDetail string `json:"extDetail,omitempty"`
	}
	doc := struct {
		RunningInfo  koomRunning `json:"runningInfo"`
		GCPaths      []gcPath    `json:"gcPaths"`
		ClassInfos   []info      `json:"classInfos"`
		LeakObjects  *[]object   `json:"leakObjects,omitempty"`
		AnalysisDone *bool       `json:"analysisDone,omitempty"`
	}{GCPaths: []gcPath{}, ClassInfos: []info{}}
	for _, p := range k.paths {
		q := gcPath{InstanceCount: p.instances, LeakReason: p.reason, GCRoot: p.root, Signature: p.signature}
		for _, i := range p.path {
			q.Path = append(q.Path, item{i.reference, i.kind, i.declared})
		}
		doc.GCPaths = append(doc.GCPaths, q)
	}
	for _, c := range k.classes {
		i := info{ClassName: c.name, InstanceCount: c.all, LeakInstanceCount: c.leaks}
		if k.version == 2 { // it writes texts, and never sets the second
			i.InstanceCount, i.LeakInstanceCount = strconv.Itoa(c.all), nil
		}
		doc.ClassInfos = append(doc.ClassInfos, i)
	}
	if k.version == 1 {
		done := true
		doc.AnalysisDone = &done
	} else {
		objects := []object{}
		for _, o := range k.objects {
			objects = append(objects, object{o.class, strconv.FormatInt(o.size, 10), strconv.FormatUint(o.id, 10), o.detail})
		}
		doc.LeakObjects = &objects
		doc.RunningInfo.ThreadList, doc.RunningInfo.FdList = &[]string{}, &[]string{}
	}
	number := func(n int) any {
		if k.version == 2 {
			return strconv.Itoa(n)
		}
		return n
	}
	doc.RunningInfo.Manufacture, doc.RunningInfo.BuildModel, doc.RunningInfo.NowTime = k.maker, k.model, k.time
	if k.threads > 0 {
		doc.RunningInfo.ThreadCount = number(k.threads)
	}
	if k.sdk > 0 {
		doc.RunningInfo.SDKInt = number(k.sdk)
	}
	if k.running != nil {
		doc.RunningInfo.fill(k.running, k.version)
	}
	doc.RunningInfo.FilterInstanceTime, doc.RunningInfo.FindGCPathTime = seconds(k.filter), seconds(k.search)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(doc)
}

// wrappers are the classes of boxed primitives.
var wrappers = map[string]bool{"java.lang.Boolean": true, "java.lang.Character": true, "java.lang.Float": true, "java.lang.Double": true,
	"java.lang.Byte": true, "java.lang.Short": true, "java.lang.Integer": true, "java.lang.Long": true}

func sha(text string) string {
	sum := sha1.Sum([]byte(text))
	return fmt.Sprintf("%x", sum)
}

// sortedRefs sorts named references by name, as Shark visits fields.
func sortedRefs(refs []graph.Ref) {
	slices.SortStableFunc(refs, func(a, b graph.Ref) int { return strings.Compare(a.Name, b.Name) })
}
