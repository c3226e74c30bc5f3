// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"themis/bridge"
)

// table prints rows under a header, columns aligned.
func table(header string, rows func(row func(cells ...any))) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(header, " ", "\t"))
	rows(func(cells ...any) { writeRow(w, cells) })
	w.Flush()
}

func writeRow(w io.Writer, cells []any) {
	text := make([]string, len(cells))
	for i, c := range cells {
		switch v := c.(type) {
		case float64:
			text[i] = fmt.Sprintf("%.2f", v)
		default:
			text[i] = fmt.Sprint(v)
		}
	}
	fmt.Fprintln(w, strings.Join(text, "\t"))
}

// clock shows a time of today as a time, another with its date, none as "-".
func clock(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	l := t.Local()
	if n := time.Now(); l.YearDay() == n.YearDay() && l.Year() == n.Year() {
		return l.Format("15:04:05")
	}
	return l.Format("2006-01-02 15:04")
}

// span shows seconds as people say them: 45s, 12m, 2h05m, 3d04h.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

func places(on []bridge.Share) string {
	if len(on) == 0 {
		return "-"
	}
	parts := make([]string, len(on))
	for i, s := range on {
		parts[i] = fmt.Sprintf("%s:%d", s.Node, s.GPUs)
		var slots []string
		for k, n := range s.Slots {
			if n > 0 {
				slots = append(slots, fmt.Sprint(k))
			}
		}
		if len(slots) > 0 {
			parts[i] += "(slot " + strings.Join(slots, "+") + ")"
		}
	}
	return strings.Join(parts, ",")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
