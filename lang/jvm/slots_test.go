package jvm

import (
	"fmt"
	"slices"
	"testing"
)

// The references of an inlined call and of its caller, among values of all sorts.
func TestSlots(t *testing.T) {
	const oop3, narrow1, number2, register, oop5 = 3<<5 | typeOop, 1<<5 | typeNarrowOop, 2<<5 | 1, locationRegister | typeOop, 5<<5 | typeOop
	data := []byte{0,
		7, valueLocation, oop3, valueLocation, number2, valueLocation, register, valueInt, 9, valueOop, 1, valueLong, 4, 5, valueLocation, narrow1, // at 1
		3, valueDouble, 8, 8, valueLocation, oop5, 5, // at 17: what follows a replaced object is not decoded
		1, valueLocation, oop3, // at 24
		0, 0, 1, 24, 0, 0, // at 27: the caller
		27, 0, 1, 1, 17, 0, // at 33: the inlined call
	}
	var got []string
	(&scopes{data: data}).slots(pcDesc{scope: 33}, true, func(call int, off uint64) { got = append(got, fmt.Sprint(call, ":", off)) })
	if want := []string{"0:12", "0:4", "0:20", "1:12"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for cut := range data {
		(&scopes{data: data[:cut]}).slots(pcDesc{scope: 33}, true, func(int, uint64) {})
	}
}
