// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// swf is the Standard Workload Format of the Parallel Workloads Archive: lines
// of 18 numbers, -1 for unknown, seconds; comments begin with ";". It knows no
// GPUs: its processors are read as such.
var swf = format{
	name: "swf", about: "Standard Workload Format of the Parallel Workloads Archive; processors are read as GPUs",
	form: "the form is 18 numbers a line: job, submitted, waited, ran (s), processors, CPU time, memory, processors asked for, time asked for, memory asked for, status, user, group, application, queue, partition, job before, think time",
	sniff: func(_, head string) bool {
		for line := range strings.Lines(head) {
			if line = strings.TrimSpace(line); line == "" || line[0] == ';' {
				continue
			}
			f := strings.Fields(line)
			return len(f) == len(swfFields) && strings.Trim(strings.Join(f, ""), "0123456789.-") == ""
		}
		return false
	},
	read: readSWF,
}

var swfFields = []string{
	"job", "submit time", "wait time", "run time", "processors", "CPU time", "memory", "processors asked for",
	"time asked for", "memory asked for", "status", "user", "group", "application", "queue", "partition", "job before", "think time",
}

func readSWF(in *input) error {
	next := lines(in.data, func(s string) []string {
		if s = strings.TrimSpace(s); s[0] == ';' {
			return []string{s}
		}
		return strings.Fields(s)
	})
	cols := columns(nil)
	for i, f := range swfFields {
		cols[f] = i
	}
	for {
		line, cells, err := next()
		if err != nil {
			break
		}
		if cells[0][0] == ';' {
			in.swfHeader(cells[0])
			continue
		}
		var j Job
		if len(cells) != len(swfFields) {
			err = errors.New("has " + strconv.Itoa(len(cells)) + " fields, not 18")
		} else {
			j, err = in.swfJob(&row{line: line, cell: func(col string) string { return cells[cols[col]] }})
		}
		if err := in.take(line, j, err); err != nil {
			return err
		}
	}
	in.note("Processors are read as GPUs, as the format has none.")
	in.note("Each job is an app of its own.")
	return nil
}

func (in *input) swfHeader(s string) {
	key, value, _ := strings.Cut(strings.TrimLeft(s, "; "), ":")
	if strings.TrimSpace(key) != "UnixStartTime" {
		return
	}
	if d, ok := moment(strings.TrimSpace(value)); ok && d > 0 {
		in.epoch = unix0.Add(d)
	}
}

// swfJob reads a line. Status 2, 3 and 4 mark parts of a job that has a line of
// its own as well.
func (in *input) swfJob(r *row) (Job, error) {
	has := func(col string) bool { return !strings.HasPrefix(r.text(col), "-") }
	switch status := r.text("status"); {
	case status == "2" || status == "3" || status == "4":
		return Job{}, in.leave("parts of jobs that are there whole")
	case r.text("run time") == "0" || status == "5" && !has("run time"):
		return Job{}, in.leave("never ran")
	}
	j := Job{ID: r.text("job"), Submit: r.span("submit time", time.Second), Runtime: r.span("run time", time.Second)}
	procs := "processors"
	if !has(procs) || r.text(procs) == "0" {
		procs = "processors asked for"
	}
	j.GPUs = r.count(procs)
	if has("time asked for") {
		j.Limit = r.span("time asked for", time.Second)
	}
	for _, f := range []struct {
		col string
		to  *string
	}{{"user", &j.User}, {"group", &j.Account}, {"queue", &j.Account}} {
		if has(f.col) {
			*f.to = f.col + r.text(f.col)
		}
	}
	return j, r.err
}
