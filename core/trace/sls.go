// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// sls is the input of Hadoop's scheduler load simulator (SLSConfiguration.java
// names its keys): JSON objects one after another or in a list, milliseconds.
// A task's GPUs are its "container.yarn.io/gpu". A job is one gang of the most
// GPUs that its tasks hold at once, from the first of them to the last.
var sls = format{
	name: "sls", about: "YARN: the JSON input of Hadoop's scheduler load simulator, with container.yarn.io/gpu",
	form:  slsForm,
	sniff: object("job.tasks", "job.start.ms"),
	read:  readSLS,
}

const slsForm = `the form is: {"job.id": "1", "job.user": "a", "job.queue.name": "q", "job.start.ms": 0, "job.end.ms": 9000, "job.tasks": [{"count": 1, "container.start.ms": 0, "container.end.ms": 9000, "container.yarn.io/gpu": 4}]}`

// slsCopies bounds job.count and a task's count.
const slsCopies = 10000

func readSLS(in *input) error {
	all, err := objects(in.data, "jobs")
	if err != nil {
		return in.fail(0, in.form, "%s", err)
	}
	jobs := 0
	for i, o := range all {
		if o != nil && o["job.tasks"] == nil && o["num.nodes"] != nil {
			continue // the cluster's size
		}
		jobs++
		if err := in.slsObject(i+1, o); err != nil {
			return err
		}
	}
	if len(in.t.Jobs) == 0 && len(in.left) > 0 && in.left[0].count == jobs {
		return in.fail(0, slsForm+"\n"+ourForm, "none of its %d jobs has GPUs: no task states container.yarn.io/gpu", jobs)
	}
	in.note("A job's containers are one gang, as many GPUs as they hold at once.")
	return nil
}

// slsObject adds a job as often as its job.count says.
func (in *input) slsObject(number int, o map[string]any) error {
	if o == nil {
		return in.bad(number, "is no object")
	}
	r := &row{line: number, cell: cellOf(o)}
	j, err := in.slsJob(r, o)
	copies := 1
	if r.text("job.count") != "" {
		copies = r.count("job.count")
		if err == nil && (copies < 1 || copies > slsCopies) {
			err = fmt.Errorf("job.count %d: must be from 1 to %d", copies, slsCopies)
		}
	}
	id := cmp.Or(j.ID, fmt.Sprintf("object%d", number))
	for c := range max(copies, 1) {
		if j.ID = id; copies > 1 {
			j.ID = fmt.Sprintf("%s.%d", id, c)
		}
		if err := in.take(number, j, err); err != nil {
			return err
		}
		if err != nil {
			break
		}
	}
	return nil
}

func (in *input) slsJob(r *row, o map[string]any) (Job, error) {
	j := Job{
		ID: r.text("job.id"), User: cmp.Or(r.text("job.user"), "default"), Account: r.text("job.queue.name"),
		Name: r.text("am.type"), Submit: r.span("job.start.ms", time.Millisecond),
	}
	tasks, ok := o["job.tasks"].([]any)
	if !ok {
		return j, errors.New("has no list job.tasks")
	}
	var g gang
	for _, t := range tasks {
		m, ok := t.(map[string]any)
		if !ok {
			return j, errors.New("job.tasks has what is no object")
		}
		task := &row{cell: cellOf(m)}
		g.add(task)
		if task.err != nil {
			return j, task.err
		}
	}
	if g.sum == 0 {
		return j, in.leave("no GPUs")
	}
	j.GPUs, j.Runtime = g.shape()
	if j.Runtime == 0 && r.text("job.end.ms") != "" {
		j.Runtime = r.span("job.end.ms", time.Millisecond) - j.Submit
	}
	return j, r.err
}

// gang gathers the tasks with GPUs of a job.
type gang struct {
	sum     int
	untimed bool // some have no start and end
	longest time.Duration
	moves   []move
}

// move is a change of the GPUs held.
type move struct {
	at   time.Duration
	gpus int
}

func (g *gang) add(task *row) {
	gpus := 0
	for _, col := range []string{"container.yarn.io/gpu", "resource.yarn.io/gpu", "yarn.io/gpu"} {
		if task.text(col) != "" {
			gpus = task.count(col)
			break
		}
	}
	if count := task.text("count"); count != "" {
		n := task.count("count")
		if n > slsCopies {
			task.wrong("count", "is too large")
		}
		gpus *= min(n, slsCopies)
	}
	if gpus == 0 || gpus > gpusMost {
		if gpus > gpusMost {
			task.wrong("container.yarn.io/gpu", "is too large")
		}
		return
	}
	g.sum = min(g.sum+gpus, gpusMost+1)
	if task.text("container.start.ms") == "" || task.text("container.end.ms") == "" {
		g.untimed = true
		for _, col := range []string{"duration.ms", "container.duration.ms"} {
			if task.text(col) != "" {
				g.longest = max(g.longest, task.span(col, time.Millisecond))
			}
		}
		return
	}
	from, to := task.span("container.start.ms", time.Millisecond), task.span("container.end.ms", time.Millisecond)
	if to < from {
		task.wrong("container.end.ms", "is before the task's start")
	}
	g.longest = max(g.longest, to-from)
	g.moves = append(g.moves, move{from, gpus}, move{to, -gpus})
}

// shape is the most GPUs held at once and the time from the first to the last;
// where tasks tell no start and end, the sum of their GPUs and the longest.
func (g *gang) shape() (gpus int, took time.Duration) {
	if g.untimed {
		return g.sum, g.longest
	}
	slices.SortFunc(g.moves, func(a, b move) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.gpus, b.gpus)) })
	held := 0
	for _, m := range g.moves {
		held += m.gpus
		gpus = max(gpus, held)
	}
	return gpus, g.moves[len(g.moves)-1].at - g.moves[0].at
}
