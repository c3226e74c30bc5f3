// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strconv"
	"time"
)

// philly is the Microsoft Philly trace as a table (siasosp23/artifacts): time of
// submission in UTC, seconds, GPUs, virtual cluster. Rows have no id: theirs is
// the line.
var philly = format{
	name: "philly", about: "Microsoft Philly as CSV: timestamp,duration,num_gpus,gpu_time,cluster",
	form:  "the form is: timestamp,duration,num_gpus,gpu_time,cluster as in 2017-10-09 07:01:55,66.0,1,66.0,11cb48",
	sniff: header(",", "timestamp", "duration", "num_gpus"),
	read: func(in *input) error {
		in.epoch = unix0
		in.note("Each job is an app of its own.")
		return in.table(commas(in.data), []string{"timestamp", "duration", "num_gpus", "cluster"}, func(r *row) (Job, error) {
			return Job{
				ID: strconv.Itoa(r.line), Account: r.text("cluster"), Submit: r.moment("timestamp"),
				Runtime: r.span("duration", time.Second), GPUs: r.count("num_gpus"),
			}, r.err
		})
	},
}
