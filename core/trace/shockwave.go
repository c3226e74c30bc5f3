// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"themis/core/fairness"
)

// The fields of a Shockwave trace that count, from 0.
const (
	shockwaveName     = 0
	shockwaveGPUs     = 6
	shockwaveDuration = 10
	shockwaveArrival  = 11
	shockwaveFields   = 12
	gavelFields       = 10
)

// shockwave is the form of uw-mad-dash/shockwave: 12 fields between tabs, no
// header; seconds. Gavel's own traces lack the duration, which there is steps
// over a measured throughput.
var shockwave = format{
	name: "shockwave", about: "Shockwave's trace, tab separated, 12 fields: duration in the 11th, arrival in the 12th (s)",
	form: "the form is 12 fields between tabs: model, command, folder, steps argument, needs data, steps, GPUs, mode, priority, SLO, duration (s), arrival (s)",
	sniff: func(first, _ string) bool {
		n := strings.Count(first, "\t") + 1
		return n == shockwaveFields || n == gavelFields
	},
	read: readShockwave,
}

func readShockwave(in *input) error {
	known, unknown := fairness.Models(), 0
	next := lines(in.data, func(s string) []string { return strings.Split(s, "\t") })
	for {
		line, cells, err := next()
		if err != nil {
			break
		}
		var j Job
		switch len(cells) {
		case shockwaveFields:
			r := row{line: line, cell: func(col string) string { return cells[shockwaveCols[col]] }}
			j = Job{
				ID: strconv.Itoa(line), Name: cells[shockwaveName], Model: modelOf(cells[shockwaveName], known),
				GPUs: r.count("GPUs"), Runtime: r.span("duration", time.Second), Submit: r.span("arrival", time.Second),
			}
			if j.Model == "" {
				unknown++
			}
			err = r.err
		case gavelFields:
			return in.fail(line, ourForm, "is a Gavel trace, which has steps and no durations: they depend on throughputs measured elsewhere")
		default:
			err = errors.New("has " + strconv.Itoa(len(cells)) + " fields, not 12")
		}
		if err := in.take(line, j, err); err != nil {
			return err
		}
	}
	if unknown > 0 {
		in.note("Of a model whose sensitivity to placement is unknown: %s.", several(unknown, "job"))
	}
	in.note("Each job is an app of its own.")
	return nil
}

var shockwaveCols = map[string]int{"GPUs": shockwaveGPUs, "duration": shockwaveDuration, "arrival": shockwaveArrival}

// modelOf maps ResNet-50 (batch size 64) to resnet50, if that is a known model.
func modelOf(name string, known []string) string {
	s, _, _ := strings.Cut(name, " (")
	s = strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(s))
	if slices.Contains(known, s) {
		return s
	}
	return ""
}
