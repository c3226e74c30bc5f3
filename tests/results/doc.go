// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"

	"themis/core/sim"
)

// doc is Markdown that is being written.
type doc struct{ strings.Builder }

func (d *doc) head(s string) { fmt.Fprintf(d, "\n## %s\n", s) }

func (d *doc) say(form string, args ...any) { fmt.Fprintf(d, "\n"+form+"\n", args...) }

func (d *doc) points(lines ...string) {
	d.WriteString("\n")
	for _, l := range lines {
		d.WriteString("- " + l + "\n")
	}
}

// table is rows under a header; cells of a row are text.
func (d *doc) table(header []string, rows [][]string) {
	d.WriteString("\n| " + strings.Join(header, " | ") + " |\n|" + strings.Repeat("---|", len(header)) + "\n")
	for _, r := range rows {
		d.WriteString("| " + strings.Join(r, " | ") + " |\n")
	}
}

// rho is printed to the hundredth, and from 100 on as a whole number.
func rho(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func maxMedian(p sim.PolicyResult, definition string) string {
	r := p.Rho[definition]
	return rho(r.Max) + " (" + rho(r.Median) + ")"
}

// reference is the worst rho by what we promise.
func reference(p sim.PolicyResult) float64 { return p.Rho["reference"].Max }

func tenth(x float64) string { return thousands(fmt.Sprintf("%.1f", x)) }

func hours(x float64) string { return fmt.Sprintf("%.2f", x) }

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// against is how far x is from y.
func against(x, y float64) string {
	if y == 0 {
		return ""
	}
	return fmt.Sprintf("%+.0f%%", 100*(x/y-1))
}

// thousands puts commas into a number.
func thousands(s string) string {
	whole, rest, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}

// list is "a, b and c"; none is "none".
func list(all []string) string {
	switch n := len(all); n {
	case 0:
		return "none"
	case 1:
		return all[0]
	default:
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// ratio is 0 where there is nothing to divide by, as before the runs.
func ratio(x, y float64) float64 {
	if y == 0 || math.IsNaN(x/y) {
		return 0
	}
	return x / y
}
