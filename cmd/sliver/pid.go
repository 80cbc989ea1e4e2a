package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pidError is a complete error message for an invalid PID; pflag's prefix would only
// repeat the argument.
type pidError struct{ msg string }

func (e *pidError) Error() string { return e.msg }

// programName matches program names that pgrep takes literally.
var programName = regexp.MustCompile(`^[A-Za-z][\w-]+$`)

// parsePID parses a PID as shells pass it: empty if pidof found none, several if it found
// several, the next flag if a variable was empty.
func parsePID(s string) (int, error) {
	pid, err := strconv.Atoi(s)
	switch several := strings.Fields(s); {
	case err == nil && pid > 0:
		return pid, nil
	case len(several) == 0:
		return 0, &pidError{"the PID is empty: is the program running?"}
	case err == nil:
		return 0, &pidError{fmt.Sprintf("invalid PID %q", s)}
	case s[0] == '-':
		return 0, &pidError{fmt.Sprintf("missing PID before %q: is the program running?", s)}
	case len(several) > 1:
		return 0, &pidError{fmt.Sprintf("invalid PID %q: give one PID", s)}
	case programName.MatchString(s):
		return 0, &pidError{fmt.Sprintf("invalid PID %q ('pgrep -l %s' finds the PID of a program)", s, s)}
	}
	return 0, &pidError{fmt.Sprintf("invalid PID %q", s)}
}

// onePID is a flag's value: one PID, given once; 0 if not set.
type onePID int

func (p *onePID) Type() string { return "int" }

// String is empty if not set, so that help shows no default.
func (p *onePID) String() string {
	if *p == 0 {
		return ""
	}
	return strconv.Itoa(int(*p))
}

func (p *onePID) Set(s string) error {
	pid, err := parsePID(s)
	if err == nil && *p != 0 {
		err = &pidError{"--pid given twice: this command is for one process"}
	}
	if err != nil {
		return err
	}
	*p = onePID(pid)
	return nil
}

// somePIDs is a flag's value: distinct PIDs, separated by commas or blanks, or given by
// repeated flags.
type somePIDs []int

func (p *somePIDs) Type() string { return "ints" }

func (p *somePIDs) String() string { return strings.Trim(fmt.Sprint([]int(*p)), "[]") }

// words returns the PIDs as arguments.
func (p *somePIDs) words() (words []string) {
	for _, pid := range *p {
		words = append(words, strconv.Itoa(pid))
	}
	return words
}

func (p *somePIDs) Set(s string) error {
	for one := range strings.SplitSeq(s, ",") {
		words := strings.Fields(one) // from pidof, in quotes
		if len(words) == 0 {
			words = []string{""}
		}
		for _, w := range words {
			pid, err := parsePID(w)
			if err != nil {
				return err
			}
			if !slices.Contains(*p, pid) {
				*p = append(*p, pid)
			}
		}
	}
	return nil
}
