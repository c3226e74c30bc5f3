// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Hint is what a user declared of a job in its comment, as in
//
//	sbatch --comment="themis: app=sweep7 runtime=3h checkpoint=10m model=vgg16"
//
// or, on YARN, in application tags themis:app=sweep7, themis:runtime=3h and so on.
// Zero values mean "not declared".
type Hint struct {
	App        string        // jobs of one user with the same app are one app
	Runtime    time.Duration // of the whole job at its smallest form (-N's least)
	Remaining  time.Duration // of a running job
	Progress   float64       // share of its work that a running job has done, (0,1]
	Checkpoint time.Duration // how often it saves its state; it may then be reclaimed
	Model      string        // names a known sensitivity to placement
	Place      []float64     // speed in a slot, on a machine, in a rack, in the cluster
	Speedup    []Point       // speed by number of GPUs, GPUs rising
	Speed      []TypeSpeed   // speed by GPU type, each type once
	Order      string        // how an app divides what it wins: one of orders
}

// Point is a point of a speed curve: how fast a job is with so many GPUs.
// Between two points the curve is linear, beyond the last it is flat.
type Point struct {
	GPUs  int // 1 to gpusMost
	Speed float64
}

// TypeSpeed is how fast a job is on GPUs of a type; 1 is the speed that its run
// time is stated for.
type TypeSpeed struct {
	Type  string
	Speed float64 // 0.001 to 1000
}

// hintForm ends every refusal: the right form is shown where the wrong one is.
const hintForm = `; the form is: themis: app=NAME runtime=3h checkpoint=10m model=vgg16 speedup=1:1,2:1.9,4:3.5 speed=a100:1,v100:.45 (separated by spaces)`

// hintMost bounds names and values, so that nothing a user wrote grows without
// bound in tables and on screens.
const hintMost = 64

// The bounds of a speed curve. One of pointsMost points with 8 digits each
// leaves room for the other keys in the 1,024 bytes that Slurm gives a comment.
const (
	pointsMost = 32
	gpusMost   = 1 << 16
	linearSlip = 1e-6 // relative: what rounding may add to a linear curve
)

// The bounds of speeds by type.
const (
	typesMost             = 8
	speedLeast, speedMost = 1e-3, 1e3
)

// orders are the ways in which an app may divide what it wins among its jobs:
// as submitted (the default), by remaining run time, by GPUs.
var orders = []string{"submit", "short", "long", "small", "large"}

var hintKeys = map[string]func(*Hint, string) error{
	"app":        func(h *Hint, v string) (err error) { h.App, err = hintName(v); return },
	"model":      func(h *Hint, v string) (err error) { h.Model, err = hintName(v); return },
	"runtime":    func(h *Hint, v string) (err error) { h.Runtime, err = hintDuration(v); return },
	"remaining":  func(h *Hint, v string) (err error) { h.Remaining, err = hintDuration(v); return },
	"checkpoint": func(h *Hint, v string) (err error) { h.Checkpoint, err = hintDuration(v); return },
	"progress":   func(h *Hint, v string) (err error) { h.Progress, err = hintFraction(v); return },
	"place":      hintPlace,
	"speedup":    hintSpeedup,
	"speed":      hintSpeed,
	"order":      hintOrder,
}

// ParseHint finds and reads the hint in a job's comment or tag. The hint begins
// with "themis:" at the start of a word and goes on to the end of the text or
// to the first of ; | " } or a line break; what is around it is not ours. No
// hint is not an error. Any error shows the right form. Safe for any bytes.
func ParseHint(comment string) (Hint, error) {
	var h Hint
	text, ok := cutHint(comment)
	if !ok {
		return h, nil
	}
	seen := map[string]bool{}
	words := strings.Fields(text)
	if len(words) == 0 {
		return h, fmt.Errorf("themis hint is empty%s", hintForm)
	}
	for _, w := range words {
		key, value, found := strings.Cut(w, "=")
		set := hintKeys[key]
		switch {
		case !found || set == nil:
			return Hint{}, fmt.Errorf("themis hint: %s is none of %s%s", quote(w), strings.Join(HintKeys(), "= ")+"=", hintForm)
		case seen[key]:
			return Hint{}, fmt.Errorf("themis hint: %s is given twice%s", key, hintForm)
		}
		seen[key] = true
		if err := set(&h, value); err != nil {
			return Hint{}, fmt.Errorf("themis hint: %s=%s: %w%s", key, quote(value), err, hintForm)
		}
	}
	return h, nil
}

// HintKeys lists the known keys, sorted.
func HintKeys() []string {
	keys := make([]string, 0, len(hintKeys))
	for k := range hintKeys {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// HintAt returns where in the comment the hint stands, from the start of
// "themis:", or found false.
func HintAt(comment string) (from, to int, found bool) {
	const mark = "themis:"
	for at := 0; ; {
		i := strings.Index(comment[at:], mark)
		if i < 0 {
			return 0, 0, false
		}
		i += at
		at = i + len(mark)
		end := at
		if n := strings.IndexAny(comment[at:], ";|\"}\n\r"); n >= 0 {
			end += n
		} else {
			end = len(comment)
		}
		if (i == 0 || !wordByte(comment[i-1])) && startsHint(comment[at:end]) {
			return i, end, true
		}
	}
}

func cutHint(comment string) (string, bool) {
	from, to, ok := HintAt(comment)
	if !ok {
		return "", false
	}
	return comment[from+len("themis:") : to], true
}

// startsHint tells a hint from a host name and port: a space or a key follows.
func startsHint(rest string) bool {
	if rest == "" || rest[0] == ' ' || rest[0] == '\t' {
		return true
	}
	key, _, found := strings.Cut(rest, "=")
	return found && key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyz") == ""
}

func wordByte(c byte) bool {
	return c == '_' || c == '-' || c == '/' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func hintName(v string) (string, error) {
	if v == "" || len(v) > hintMost {
		return "", fmt.Errorf("must have 1 to %d characters", hintMost)
	}
	for _, c := range []byte(v) {
		if !wordByte(c) || c == '/' {
			return "", fmt.Errorf("may have only letters, digits, . _ -")
		}
	}
	return v, nil
}

// hintDuration reads 90s, 10m, 2h30m, 1d12h.
func hintDuration(v string) (time.Duration, error) {
	rest, days := v, 0
	if n, after, ok := strings.Cut(v, "d"); ok {
		d, err := strconv.Atoi(n)
		if err != nil || d < 0 || d > 3650 {
			return 0, fmt.Errorf("is not a time such as 90s, 10m, 2h30m or 1d12h")
		}
		days, rest = d, after
	}
	t := time.Duration(days) * 24 * time.Hour
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return 0, fmt.Errorf("is not a time such as 90s, 10m, 2h30m or 1d12h")
		}
		t += d
	}
	if t < time.Second || t > 3650*24*time.Hour {
		return 0, fmt.Errorf("must be at least 1s and at most 3650d")
	}
	return t, nil
}

func hintFraction(v string) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f >= 1e-4 && f <= 1) {
		return 0, fmt.Errorf("must be a number above 0 and at most 1, such as 0.43 (0.0001 is the least)")
	}
	return f, nil
}

func hintPlace(h *Hint, v string) error {
	parts := strings.Split(v, ",")
	if len(parts) > 4 {
		return fmt.Errorf("has more than the 4 levels slot, machine, rack, cluster")
	}
	last := 1.0
	for _, p := range parts {
		f, err := hintFraction(p)
		if err != nil {
			return err
		}
		if f > last {
			return fmt.Errorf("must not rise from slot to cluster, such as 1,.9,.7,.5")
		}
		last = f
		h.Place = append(h.Place, f)
	}
	return nil
}

func hintSpeedup(h *Hint, v string) error {
	if v == "" {
		return fmt.Errorf("needs at least 1 point GPUS:SPEED")
	}
	parts := strings.Split(v, ",")
	if len(parts) > pointsMost {
		return fmt.Errorf("has more than %d points; a few are enough, what is between is interpolated", pointsMost)
	}
	for i, part := range parts {
		p, err := hintPoint(part)
		if err != nil {
			return err
		}
		if i > 0 {
			if err := p.follows(h.Speedup[i-1], h.Speedup[0]); err != nil {
				return err
			}
		}
		h.Speedup = append(h.Speedup, p)
	}
	return nil
}

// hintPoint reads 4:3.5. ParseFloat would take 0x1p2, 1_0, 1e3 and Inf too.
func hintPoint(v string) (Point, error) {
	gpus, speed, found := strings.Cut(v, ":")
	if !found {
		return Point{}, fmt.Errorf("%s is not a point GPUS:SPEED", quote(v))
	}
	n, err := strconv.ParseUint(gpus, 10, 32)
	if err != nil || n < 1 || n > gpusMost {
		return Point{}, fmt.Errorf("%s GPUs: must be a whole number from 1 to %d", quote(gpus), gpusMost)
	}
	f, err := strconv.ParseFloat(speed, 64)
	if err != nil || strings.Trim(speed, "0123456789.") != "" || f == 0 {
		return Point{}, fmt.Errorf("speed %s: must be a plain number above 0, such as 3.5", quote(speed))
	}
	return Point{GPUs: int(n), Speed: f}, nil
}

// follows tells whether p may stand after the point last on a curve that
// begins with first.
func (p Point) follows(last, first Point) error {
	switch {
	case p.GPUs <= last.GPUs:
		return fmt.Errorf("%d GPUs after %d: the numbers of GPUs must rise", p.GPUs, last.GPUs)
	case p.Speed < last.Speed:
		return fmt.Errorf("is a curve that falls, from %g with %d GPUs to %g with %d: it may rise or stay", last.Speed, last.GPUs, p.Speed, p.GPUs)
	case p.Speed/first.Speed > float64(p.GPUs)/float64(first.GPUs)*(1+linearSlip):
		return fmt.Errorf("is faster than linear: from %g with %d GPUs to %g with %d", first.Speed, first.GPUs, p.Speed, p.GPUs)
	}
	return nil
}

// hintSpeed reads a100:1,v100:.45.
func hintSpeed(h *Hint, v string) error {
	parts := strings.Split(v, ",")
	if len(parts) > typesMost {
		return fmt.Errorf("has more than %d types", typesMost)
	}
	for _, part := range parts {
		typ, speed, found := strings.Cut(part, ":")
		if !found {
			return fmt.Errorf("%s is not TYPE:SPEED", quote(part))
		}
		name, err := hintType(typ)
		if err != nil {
			return fmt.Errorf("type %s %w", quote(typ), err)
		}
		f, err := strconv.ParseFloat(speed, 64)
		if err != nil || strings.Trim(speed, "0123456789.") != "" || f < speedLeast || f > speedMost {
			return fmt.Errorf("speed %s: must be a plain number from %g to %g, such as .45", quote(speed), speedLeast, speedMost)
		}
		if slices.ContainsFunc(h.Speed, func(s TypeSpeed) bool { return s.Type == name }) {
			return fmt.Errorf("names %s twice", name)
		}
		h.Speed = append(h.Speed, TypeSpeed{name, f})
	}
	return nil
}

// hintType is a GPU type as hosts name it: 1g.5gb+me is part of one.
func hintType(v string) (string, error) {
	_, err := hintName(strings.ReplaceAll(v, "+", "."))
	return v, err
}

func hintOrder(h *Hint, v string) error {
	if !slices.Contains(orders, v) {
		return fmt.Errorf("is none of %s", strings.Join(orders, ", "))
	}
	h.Order = v
	return nil
}

// quote shows what a user wrote: short, printable ASCII.
func quote(s string) string {
	if len(s) > hintMost {
		s = s[:hintMost] + "..."
	}
	return strconv.QuoteToASCII(s)
}
