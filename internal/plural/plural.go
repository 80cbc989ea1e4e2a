// Package plural writes numbers of things in English: "1 root", "2 roots". It knows none of the things.
// All functions may be called concurrently.
package plural

import (
	"strconv"
	"strings"
)

type integer interface {
	~int | ~int32 | ~int64 | ~uint | ~uint32 | ~uint64
}

// Of returns n with its noun, in the plural unless n is 1: "1 root", "2 classes", "0 entries". The noun is in the
// singular and may have adjectives before it: "more file". It ends in the word that changes.
func Of[N integer](n N, noun string) string {
	return strconv.FormatInt(int64(n), 10) + " " + Word(n, noun, of(noun))
}

// Either returns n with a noun whose plural is given: "1 read or write", "2 reads and writes".
func Either[N integer](n N, one, more string) string {
	return strconv.FormatInt(int64(n), 10) + " " + Word(n, one, more)
}

// Word returns one if n is 1, and else more: of a verb or of a noun without a number before it.
func Word[N integer](n N, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// of returns the plural of a noun that is regular in writing.
func of(noun string) string {
	switch {
	case noun == "":
		return ""
	case hasSuffix(noun, "s", "x", "ch", "sh"):
		return noun + "es"
	case strings.HasSuffix(noun, "y") && !hasSuffix(noun, "ay", "ey", "oy", "uy"):
		return noun[:len(noun)-1] + "ies"
	}
	return noun + "s"
}

func hasSuffix(s string, all ...string) bool {
	for _, x := range all {
		if strings.HasSuffix(s, x) {
			return true
		}
	}
	return false
}
