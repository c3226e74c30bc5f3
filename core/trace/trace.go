// SPDX-License-Identifier: Apache-2.0

// Package trace reads workloads and clusters of others for the simulator: one
// file here per format. A reader takes an io.Reader and decides nothing about
// scheduling.
package trace

import (
	"fmt"
	"time"

	"themis/core/cluster"
)

// Trace is a workload: jobs by time of submission, in the file's order where
// that is equal.
type Trace struct {
	Name    string    // of its file, without folder and ending
	Format  string    // Format.Name of its reader
	Start   time.Time // of Submit 0; zero if the trace has offsets only
	Jobs    []Job
	Skipped []Bad    // rows left out, with Options.Lenient only
	Notes   []string // what had to be assumed, one sentence each
}

// Job is one job of a trace. Zero values mean "not stated".
type Job struct {
	ID      string // unique in the trace
	App     string // jobs of one App serve one goal; never empty: a job alone is its own app
	User    string
	Account string // or queue, or virtual cluster
	Name    string
	Model   string // as the hint model=
	Submit  time.Duration
	Runtime time.Duration // on all its GPUs in one machine (S = 1), until it ends
	Full    time.Duration // the same had its app not stopped it early; at least Runtime
	Limit   time.Duration // time limit
	GPUs    int           // of the gang; of an elastic job the most that it can use; at least 1
	Elastic bool          // runs on any number of GPUs up to GPUs, as fast as there are (times S)
	Place   []float64     // S by cluster.Level, relative to a machine or a slot
}

// Work is what the job needs in GPU-seconds at S = 1.
func (j *Job) Work() float64 { return float64(j.GPUs) * j.Runtime.Seconds() }

// Bad is a row that cannot be used.
type Bad struct {
	Line int // from 1; of a JSON file the number of the job
	Why  string
}

// Error is a row or a file that cannot be used.
type Error struct {
	File string
	Bad
	Hint string // the form that would do
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Why)
	if e.Line == 0 {
		s = fmt.Sprintf("%s: %s", e.File, e.Why)
	}
	if e.Hint != "" {
		s += "\nhint: " + e.Hint
	}
	return s
}

// Cluster is the machines that a trace is played on.
type Cluster struct {
	Name  string
	Nodes []cluster.Node // all up, nothing used
}

// GPUs counts them.
func (c *Cluster) GPUs() int {
	var n int
	for i := range c.Nodes {
		total, _ := c.Nodes[i].TotalGPUs()
		n += total
	}
	return n
}
