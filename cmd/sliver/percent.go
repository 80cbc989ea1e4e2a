package main

import (
	"fmt"
	"strconv"
	"strings"
)

// percent is a flag such as 1% or 0.01, stored as a share of one.
type percent float64

func (p *percent) String() string { return strconv.FormatFloat(float64(*p)*100, 'g', 4, 64) + "%" }
func (p *percent) Type() string   { return "percent" }

func (p *percent) Set(s string) error {
	num, isPercent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if err != nil || v != v {
		return fmt.Errorf("invalid percentage %q (example: 1%%)", s)
	}
	if isPercent {
		v /= 100
	} else if v > 1 {
		return fmt.Errorf("%q is over 1; write %s%% for percent", s, num)
	}
	*p = percent(v)
	return nil
}
