// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Numbers as text: what isn't finite is a dash.

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func unit(x float64) float64 {
	if !finite(x) {
		return 0
	}
	return min(max(x, 0), 1)
}

const none = "–"

// commas writes x with dec decimals and a comma between thousands.
func commas(x float64, dec int) string {
	if !finite(x) {
		return none
	}
	if math.Abs(x) >= 1e15 {
		return "over 10¹⁵"
	}
	s := strconv.FormatFloat(math.Abs(x), 'f', dec, 64)
	whole, frac, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if frac != "" {
		whole += "." + frac
	}
	if x < 0 && strings.Trim(s, "0.") != "" {
		whole = "−" + whole
	}
	return whole
}

func rho(x float64) string {
	if x >= 100 {
		return commas(x, 0)
	}
	return commas(x, 2)
}

func quantity(x float64) string {
	switch a := math.Abs(x); {
	case a < 9.995:
		return commas(x, 2)
	case a < 99.95:
		return commas(x, 1)
	}
	return commas(x, 0)
}

func hours(x float64) string {
	if !finite(x) {
		return none
	}
	return quantity(x) + " h"
}

func count(n int) string { return commas(float64(n), 0) }

func pct(x float64) string {
	switch {
	case x > 0 && x < 0.0005:
		return "< 0.1%"
	case !finite(x):
		return none
	}
	return commas(x*100, 1) + "%"
}

func signed(x float64, f func(float64) string) string {
	s := f(x)
	if finite(x) && x > 0 && strings.Trim(s, "0.% h") != "" {
		s = "+" + s
	}
	return s
}

func seconds(s float64) string {
	switch {
	case !finite(s):
		return none
	case s >= 3600:
		return strconv.FormatFloat(math.Round(s/36)/100, 'f', -1, 64) + " h"
	case s >= 120:
		return strconv.FormatFloat(math.Round(s/6)/10, 'f', -1, 64) + " min"
	}
	return strconv.FormatFloat(math.Round(s*10)/10, 'f', -1, 64) + " s"
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

// Names.

// clean takes out what could garble a page: controls and marks of direction.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) {
			return unicode.ReplacementChar
		}
		return c
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

func short(s string, n int) string {
	if c := []rune(clean(s)); len(c) > n {
		return string(c[:n-1]) + "…"
	}
	return clean(s)
}

// tail keeps the end, where the names of nodes differ.
func tail(s string, n int) string {
	if c := []rune(clean(s)); len(c) > n {
		return "…" + string(c[len(c)-n+1:])
	}
	return clean(s)
}
