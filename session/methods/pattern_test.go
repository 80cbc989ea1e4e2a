package methods

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/target"
)

func parseText(t *testing.T, text string) (pattern, error) {
	t.Helper()
	p, err := calls.ParsePattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return parse(&p)
}

// TestPatterns: what JFR is asked for, with three classes loaded.
func TestPatterns(t *testing.T) {
	loaded := []string{"shop.Cart", "shop.Cart$Item", "big.Cart"}
	for _, c := range []struct {
		pattern, filters, missing string
	}{
		{"shop.Cart::total", "shop.Cart::total", ""},
		{"shop.Cart.total", "shop.Cart::total", ""},
		{"Cart::total", "shop.Cart::total big.Cart::total", ""},
		{"Cart.total", "shop.Cart::total big.Cart::total", ""},
		{"Cart$Item.<init>", "shop.Cart$Item::<init>", ""},
		{"total", "::total", ""},
		{"*::total", "::total", ""},
		{"*.total", "::total", ""},
		{"shop.*::*", "shop.Cart shop.Cart$Item", ""},
		{"*.Cart.*", "shop.Cart big.Cart", ""},
		{"big.C?rt::total", "big.Cart::total", ""},
		{"Cart::*", "shop.Cart big.Cart", ""},
		{"late.Shelf::put", "late.Shelf::put", ""},
		{"Shelf::put", "Shelf::put", "Shelf::put"},
		{"art::total", "art::total", "art::total"},
	} {
		p, err := parseText(t, c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		fs, missing, err := filters([]pattern{p, p}, loaded)
		if got := strings.Trim(fmt.Sprint(fs), "[]"); err != nil || got != c.filters || !slices.Equal(slices.Compact(missing), strings.Fields(c.missing)) {
			t.Errorf("%s: filters %q, missing %q, %v", c.pattern, got, missing, err)
		}
	}
	for pattern, want := range map[string]string{
		"/^tot/":         "not by a regular expression",
		"Cart::get*":     "a whole name or *",
		"*":              "name a class or a method",
		"*::*":           "name a class or a method",
		"a::b::c":        "Class::method or package.Class::method",
		"Cart.java:put":  "Class::method or package.Class::method",
		"Cart::put;x::y": "Class::method or package.Class::method",
		"Cart::put put":  "not the name of a Java method",
		`Cart::"put`:     "not the name of a Java method",
	} {
		if _, err := parseText(t, pattern); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", pattern)) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
	p, _ := parseText(t, "none.*::*")
	if _, _, err := filters([]pattern{p}, loaded); err == nil || !strings.Contains(err.Error(), "no loaded class matches none.*::*") {
		t.Error(err)
	}
	var many []string
	for i := range maxFilters + 1 {
		many = append(many, fmt.Sprintf("many.C%d", i))
	}
	if p, _ = parseText(t, "many.*::*"); len(many) > maxFilters {
		if _, _, err := filters([]pattern{p}, many); err == nil || !strings.Contains(err.Error(), "more than 500 classes") {
			t.Error(err)
		}
	}
}

// TestClassList: classes of an answer of Java 25, once each. A name that could end a filter is left out.
func TestClassList(t *testing.T) {
	got := classes(`KlassAddr           Size  State                 Flags    ClassName  
0x0000000040040420    66  allocated                      a.b.T  
0x0000000040040000    66  fully_initialized     WR       a.b.T  
0x00000000400563a0    73  fully_initialized     W        jdk.jfr.internal.dcmd.DCmdCheck$$Lambda/0x00000000400563a0  
0x000000003f27e018    64                                 [[Ljava.lang.invoke.LambdaForm$Name;  
0x000000003f1afb18    66  fully_initialized     WS       java.lang.reflect.Array  
0x000000003f1afb18    66  fully_initialized     WS       evil;::run
0x000000003f1afb18
`)
	if want := []string{"a.b.T", "java.lang.reflect.Array"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestVersion(t *testing.T) {
	for answer, want := range map[string]int{
		"OpenJDK 64-Bit Server VM version 25.0.3+9-LTS\nJDK 25.0.3\n": 25,
		"OpenJDK 64-Bit Server VM version 17.0.15+6\nJDK 17.0.15\n":   17,
		"Java HotSpot(TM) 64-Bit Server VM version 26-ea\nJDK 26.0.0": 26,
		"OpenJDK 64-Bit Server VM version 25.362-b09\nJDK 8.0_362\n":  8,
		"":              0,
		"x\nJDK early":  0,
		"JDK 25\nJDK 9": 9,
	} {
		if got := version(answer); got != want {
			t.Errorf("%q: %d, want %d", answer, got, want)
		}
	}
}

// TestSettings: JFR's file of settings has the filters as they are.
func TestSettings(t *testing.T) {
	var got struct {
		Events []struct {
			Name     string `xml:"name,attr"`
			Settings []struct {
				Name  string `xml:"name,attr"`
				Value string `xml:",chardata"`
			} `xml:"setting"`
		} `xml:"event"`
	}
	if err := xml.Unmarshal(settings([]filter{{"a.B$C", "<init>"}, {"", "run"}, {"a.B", ""}}), &got); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, e := range got.Events {
		for _, s := range e.Settings {
			values[e.Name+" "+s.Name] = s.Value
		}
	}
	if f := values["jdk.MethodTrace filter"]; f != "a.B$C::<init>;::run;a.B" || values["jdk.MethodTrace threshold"] != "0 ns" || values["jdk.DataLoss enabled"] != "true" {
		t.Errorf("%q", values)
	}
}

// TestTooManyCalls: above the limit tracing of the busiest filter stops, and what else it chose is reported.
func TestTooManyCalls(t *testing.T) {
	tracer := func() *Tracer {
		x := &Tracer{numbers: map[string]int{}, o: Options{Limit: exact.Limit{Hits: 1000}}}
		x.filters = []filter{{"a.B", ""}, {"a.C", "run"}}
		x.number(x.filters[0], "a.B", "one")
		x.number(x.filters[1], "a.C", "run")
		x.part.since = target.Now() - 1e9
		return x
	}
	x := tracer()
	x.part.calls = []uint64{300, 100}
	if x.cool(); len(x.filters) != 2 || len(x.Stats().Hot) != 0 || x.part.calls[0] != 0 {
		t.Errorf("below the limit: %+v, %+v", x.filters, x.Stats())
	}
	x = tracer()
	x.part.calls = []uint64{300, 1000}
	if x.cool(); len(x.filters) != 1 || x.filters[0].class != "a.B" || len(x.Stats().Hot) != 1 || x.Stats().Hot[0].Fn != 1 || len(x.Stats().Untraced) != 0 {
		t.Errorf("a method: %+v, %+v", x.filters, x.Stats())
	}
	x = tracer()
	x.part.calls = []uint64{1000, 300}
	x.cool()
	if st := x.Stats(); len(x.filters) != 1 || x.filters[0].class != "a.C" || len(st.Untraced) != 1 || !strings.Contains(st.Untraced[0], "all methods of a.B") || st.Hot[0].Calls <= 0 || st.Hot[0].Rate != 2*st.Hot[0].Calls || st.Hot[0].Share != st.Hot[0].Calls*CallCost.Seconds() {
		t.Errorf("a class: %+v, %+v", x.filters, st)
	}
	x.stats.Funcs[0] = exact.FuncStats{Calls: 1}
	x.asked = []filter{{"a.B", ""}, {"a.C", "run"}, {"", "never"}}
	if got := x.Silent(); !slices.Equal(got, []string{"a.C::run", "never"}) {
		t.Errorf("silent: %q", got)
	}
}
